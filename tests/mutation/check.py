"""Checks of mutants: each is a few seconds of work with known results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlc_core.passes.tir.bounds import prove
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.tir.stmt import PrimFunc


@dataclass(frozen=True)
class Check:
    """Work that raises, or ends the process, where something is wrong.

    It gives the number of accesses that the proof leaves open, which no mutant may increase.  Whatever it
    needs it builds itself: types and nodes made before a mutant is in place would hide it.
    """

    name: str
    run: Callable[[], int]


def open_accesses(func: PrimFunc) -> int:
    """How many accesses of a program are not proved to lie in their buffers."""
    return len(prove(flatten_and_simplify(lower_blocks(func))).open)


__all__ = ["Check", "open_accesses"]
