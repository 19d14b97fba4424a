"""`skip_zeros`: skip the iterations of a reduction loop whose products are zero because of padding.

A convolution with padding reads a padded copy of its input.  A tap outside of the input adds zero for all
channels.  With large dilations these are a large part of all taps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    conjuncts,
    const,
    const_value,
    free_vars,
    loads_in,
    logical_and,
    substitute,
)
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import stmts_of
from dlc_core.tir.stmt import Block, For, If, Store

NDArray = np.ndarray[Any, Any]
TRUE = const(True, BOOL)
MAX_POINTS = 1 << 14
"""The most iterations of the loops around a condition for which `zero_share` counts.  A limit on compile
time."""


def skip_zeros(program: Program, handle: LoopRV) -> None:
    loop = program.loop(handle)
    tests = [(margin >= 0) for margin in _margins(program, loop)]
    if tests:
        program.replace({loop: replace(loop, body=If(logical_and(*tests), loop.body))})


def zero_share(program: Program, handle: LoopRV) -> float:
    """Return the share of a loop's iterations that `skip_zeros` skips; 0 if it is not known."""
    loop = program.loop(handle)
    try:
        margins = _margins(program, loop)
    except ScheduleError:  # `skip_zeros` would refuse the loop
        return 0.0
    ranges = _ranges([*program.tree.loops_above(loop), loop], {v for e in margins for v in free_vars(e)})
    if not margins or ranges is None:
        return 0.0
    grid = dict(zip(ranges, np.meshgrid(*ranges.values(), indexing="ij"), strict=True))
    inside = np.ones([len(values) for values in ranges.values()], bool)
    for margin in margins:
        terms, constant = Analyzer().linear(margin)
        value = np.full(inside.shape, constant)
        for atom, factor in terms.items():
            if not isinstance(atom, Var):
                return 0.0
            value += factor * grid[atom]
        inside &= value >= 0
    return 1.0 - np.count_nonzero(inside) / inside.size


def _ranges(loops: Sequence[For], used: Collection[Var]) -> dict[Var, NDArray] | None:
    """Return the values of the used loop variables; None if they are not known, or too many to count."""
    found: dict[Var, NDArray] = {}
    for loop in loops:
        begin, extent = const_value(loop.begin), const_value(loop.extent)
        if loop.var in used:
            if begin is None or extent is None:
                return None
            found[loop.var] = np.arange(int(begin), int(begin + extent))
    points = math.prod(len(values) for values in found.values())
    return found if len(found) == len(used) and points <= MAX_POINTS else None


def _margins(program: Program, loop: For) -> list[Expr]:
    """Return expressions of which one is negative only if all products inside a loop are zero.

    They use variables of this loop and of loops around it.
    """
    what = f"cannot skip zeros in loop {loop.var.name!r}"
    blocks = list(stmts_of(loop.body, Block))
    if len(blocks) != 1:
        raise program.error(what, loop, why=f"it contains {len(blocks)} blocks, not one")
    (block,) = blocks
    if block.init is not None:
        raise program.error(
            what, loop, block, why="its block initialises the sum", hint="call decompose_reduction first"
        )
    product = _added(block)
    if product is None:
        raise program.error(what, loop, block, why="its block does not add a product to an element")
    bindings = {axis.var: value for axis, value in zip(block.axes, block.values, strict=True)}
    analyzer, outside = program.analyzer(block), program.analyzer(loop, inside=True)
    inner = [s.var for s in stmts_of(loop.body, For)]
    found: dict[Expr, None] = {}
    for factor in _factors(product):
        for part in conjuncts(_nonzero(program, factor)):
            margin = _margin(substitute(part, bindings))
            ends = None if margin is None else analyzer.bounds(margin, inner)
            if ends is not None and not outside.prove(ends[1] >= 0):
                found[outside.simplify(ends[1])] = None
    return list(found)


def _added(block: Block) -> Expr | None:
    """Return the product that a block adds to the element that it stores."""
    body = block.body
    if not isinstance(body, Store) or not isinstance(body.value, Binary) or body.value.op != "add":
        return None
    total, product = body.value.a, body.value.b
    if not isinstance(total, Load) or (total.buffer, total.indices) != (body.buffer, body.indices):
        return None
    return product if isinstance(product, Binary) and product.op == "mul" else None


def _factors(product: Expr) -> Iterable[Load]:
    """Yield the loads that are factors of a product."""
    work = [product]
    while work:
        match work.pop():
            case Binary(op="mul", a=a, b=b):
                work += (a, b)
            case Cast(a=a):
                work.append(a)
            case Load() as load:
                yield load


def _nonzero(program: Program, load: Load) -> Expr:
    """Return a condition on the indices of a load without which the loaded element is zero."""
    if load.buffer not in program.tree.allocs:
        return TRUE
    conditions = {
        _condition(block, load.buffer, load.indices)
        for block in program.tree.blocks.values()
        if any(region.buffer is load.buffer for region in block.writes)
    }
    return conditions.pop() if len(conditions) == 1 else TRUE


def _condition(block: Block, buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    """Return the condition without which a block writes zero to the element of these indices."""
    body = block.body
    if not isinstance(body, Store) or body.buffer is not buffer or block.init is not None:
        return TRUE
    match body.value:
        case Select(cond=cond, b=other):
            pass
        case Call(name="if_then_else", args=(cond, _, other)):
            pass
        case _:
            return TRUE
    axes = {axis.var for axis in block.axes}
    if not isinstance(other, Const) or other.value != 0 or loads_in(cond):
        return TRUE
    if not axes.issuperset(free_vars(cond)):
        return TRUE
    if len(body.indices) != len(axes) or not axes.issuperset(body.indices):
        return TRUE
    return substitute(cond, dict(zip(body.indices, indices, strict=True)))  # type: ignore[arg-type]


def _margin(comparison: Expr) -> Expr | None:
    """Return an integer expression that is not negative if and only if a comparison holds."""
    match comparison:
        case Binary(op="lt", a=a, b=b) if a.dtype.is_int:
            return b - a - 1
        case Binary(op="le", a=a, b=b) if a.dtype.is_int:
            return b - a
        case Binary(op="gt", a=a, b=b) if a.dtype.is_int:
            return a - b - 1
        case Binary(op="ge", a=a, b=b) if a.dtype.is_int:
            return a - b
    return None


__all__ = ["skip_zeros", "zero_share"]
