"""Conditions of blocks that move: what their new loops must still test.

A condition that only keeps the axes of a block in their domains, as that of a split, follows from the new
loops. Others exclude points of the domain, as those of a padded layout, and are kept as conditions on axes.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.expr import Expr, Var, conjuncts, const_value, free_vars, substitute
from dlc_core.schedule.tree import Program
from dlc_core.tir.stmt import Block, For


def conditions_on_axes(program: Program, block: Block, around: Iterable[Var], what: str) -> list[Expr]:
    """The conditions of a block that do not follow from the domains of its axes, over the axes' variables.

    `around` are the loops that stay around the block. Raises ScheduleError for a condition on other loops.
    """
    analyzer = program.analyzer(block)
    domains = [
        (axis.dom.begin <= value, value < axis.dom.begin + axis.dom.extent)
        for axis, value in zip(block.axes, block.values, strict=True)
    ]
    with analyzer.assume(*(each for pair in domains for each in pair)):
        left = [each for each in conjuncts(block.predicate) if not analyzer.prove(each)]
    if not left:
        return []
    inverse = _loops_by_axes(program, block, analyzer)
    found = [analyzer.simplify(substitute(each, inverse)) for each in left]
    known = {*around, *(axis.var for axis in block.axes), *program.func.scalars}
    for given, over_axes in zip(left, found, strict=True):
        if not known.issuperset(free_vars(over_axes)):
            raise program.error(
                what, block, why=f"its condition {given} is no condition on its axes", hint="move it first"
            )
    return found


def _loops_by_axes(program: Program, block: Block, analyzer: Analyzer) -> dict[Var, Expr]:
    """One loop variable for each axis, as an expression of the axis and of the other loops.

    It is one that runs with this axis only, by steps of 1. In a condition on the axis the other loops cancel.
    """
    loops = {loop.var for loop in program.tree.path(block) if isinstance(loop, For)}
    uses = [loops.intersection(free_vars(value)) for value in block.values]
    found: dict[Var, Expr] = {}
    for axis, value, own in zip(block.axes, block.values, uses, strict=True):
        for var in own:
            step = analyzer.coefficient_of(value, var)
            if sum(var in each for each in uses) == 1 and step is not None and const_value(step) == 1:
                found[var] = axis.var - analyzer.simplify(value - var)
                break
    return found


__all__ = ["conditions_on_axes"]
