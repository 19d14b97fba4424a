"""Proofs that accesses are inside their buffers, and run-time checks of accesses without a proof."""

from __future__ import annotations

from dlc_core.passes.tir.bounds.insertion import with_access_checks, with_index_checks, with_own_checks
from dlc_core.passes.tir.bounds.proof import Access, Proof
from dlc_core.passes.tir.bounds.prover import prove
from dlc_core.passes.tir.bounds.regions import prove_regions

__all__ = [
    "Access", "Proof", "prove", "prove_regions", "with_access_checks", "with_index_checks", "with_own_checks",
]  # fmt: skip
