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
    """A function that raises, or ends the process, if something is wrong.

    It returns the number of accesses that are not proved, which a mutant must not increase. It makes all
    types and nodes itself, because those made before the mutation would hide it.
    """

    name: str
    run: Callable[[], int]


def open_accesses(func: PrimFunc) -> int:
    """The number of accesses of a program that are not proved to be in bounds."""
    return len(prove(flatten_and_simplify(lower_blocks(func))).open)


__all__ = ["Check", "open_accesses"]
