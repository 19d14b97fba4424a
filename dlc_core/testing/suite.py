"""`conformance_suite(target)`: the tests that every target passes, as a class for a test file.

    from dlc_core.testing import conformance_suite

    TestNpu = conformance_suite("npu")

The tiers, each a class of tests: `core` (laws that need no target), and the levels `device`, `ops`, `graphs`,
`models`, `hostile` and `speed`, which are what a suite has by default; the last runs on demand alone.
Options of pytest narrow or redirect what suites do: `--dlc-target`, `--dlc-tiers` or `--dlc-level` (0 is
`device`, 1 `ops` and so on), `--dlc-dtypes`, `--dlc-ops`, `--dlc-fraction`; `--dlc-isolate` runs them in a
process of their own, `--dlc-guard` with each value in pages of its own; `--dlc-report=DIR` writes what was
found.  `dlc_core.testing.conformance` is a suite for
any target, without a test file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.testing.levels import LEVELS
from dlc_core.testing.tiers.base import Settings, Tier
from dlc_core.testing.tiers.core import CoreTier
from dlc_core.testing.tiers.device import DeviceTier
from dlc_core.testing.tiers.exemptions import ExemptionsTier
from dlc_core.testing.tiers.graphs import GraphsTier
from dlc_core.testing.tiers.hostile import HostileTier
from dlc_core.testing.tiers.models import ModelsTier
from dlc_core.testing.tiers.ops import OpsTier
from dlc_core.testing.tiers.speed import SpeedTier

TIERS: dict[str, type[Tier]] = {
    "core": CoreTier,
    "device": DeviceTier,
    "ops": OpsTier,
    "graphs": GraphsTier,
    "models": ModelsTier,
    "hostile": HostileTier,
    "speed": SpeedTier,
}
"""The contents of each tier; the first needs no target."""


def conformance_suite(
    target: str,
    *,
    tiers: Sequence[str] = LEVELS,
    dtypes: Sequence[str] = (),
    fast_dtypes: Sequence[str] = (),
    fast_symbolic: int = 0,
    graphs: int = 40,
    ops: Sequence[str] = (),
    fraction: float = 0.0,
    guard: str = "",
) -> type[Any]:
    """A class of tests for a target, given as text.

    `dtypes` restricts what the ops are tried in (all, where empty); those not in `fast_dtypes` (all, where
    empty) are marked slow.  So are samples with symbolic dims behind the first `fast_symbolic` of an op (0 is
    no limit).  `graphs` random graphs are compiled; ten times as many in the slow tests.  `ops`
    restricts which ops are tried (all, where empty).  `fraction` is the part of the roofline that the
    description declares which level 5 wants at least.  In a `guard` mode ("end" or "begin") each value lies
    in pages of its own, and tests run in another process: an access outside of a value fails its test.
    """
    unknown = [name for name in tiers if name not in TIERS]
    if unknown:
        raise UsageError(f"no tier {unknown[0]!r}", hint=f"tiers: {', '.join(TIERS)}")
    settings = Settings(
        target,
        tuple(dtypes),
        tuple(fast_dtypes),
        fast_symbolic,
        graphs,
        tuple(ops),
        fraction,
        guard,
    )
    bases = (*(TIERS[name] for name in TIERS if name in tiers), ExemptionsTier)
    return type("Conformance", bases, {"settings": settings, "__doc__": f"Conformance of {target}."})


__all__ = ["TIERS", "conformance_suite"]
