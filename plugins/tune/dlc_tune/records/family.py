"""Families of kernels: those that differ in sizes only.

What is fast for one size is often fast for a near one, so kernels without a record try those of their family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dlc_core.ir.expr import const_value
from dlc_core.ir.structural import structural_hash
from dlc_core.tir.functor import stmts_of
from dlc_core.tir.stmt import Block, PrimFunc
from dlc_tune.task import KERNEL

SYMBOLIC = 0
"""Stands for the size of a symbolic dim."""
NEAR = 1.0
"""The binary logarithm of the largest ratio of two sizes that count as near."""


def family_of(func: PrimFunc) -> tuple[str, tuple[int, ...]]:
    """A hash of an unscheduled kernel without its sizes, and the sizes.

    These are the extents of the axes of its blocks, in the order of the program; 0 for a symbolic dim.

    Every constant of the dtype of indices counts as a size: strides and offsets of a convolution as well. So
    kernels of a family may differ in more than the extents, and whether a schedule fits is checked for each.
    """
    axes = [axis for block in stmts_of(func.body, Block) for axis in block.axes]
    extents = tuple(const_value(axis.dom.extent) or SYMBOLIC for axis in axes)
    return structural_hash(replace(func, name=KERNEL), sizes=False), extents


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """The distance of the sizes of two kernels of a family: the binary logarithm of the largest ratio of two
    extents, and a little for each that differs. Infinite if extents are symbolic in one kernel only.
    """
    if len(one) != len(other):
        return math.inf
    total = 0.0
    for left, right in zip(one, other, strict=True):
        if left == right:
            continue
        if SYMBOLIC in (left, right):
            return math.inf
        total = max(total, abs(math.log2(left / right)))
    return total + 1e-6 * sum(left != right for left, right in zip(one, other, strict=True))


__all__ = ["NEAR", "SYMBOLIC", "distance", "family_of"]
