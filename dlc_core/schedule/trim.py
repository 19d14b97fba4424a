"""`trim`: end a reduction loop where the condition of its terms no longer holds."""

from __future__ import annotations

import functools
from dataclasses import replace

from dlc_core.arith.solve import solve_condition
from dlc_core.ir.expr import (
    Binary,
    Expr,
    Load,
    Select,
    binary,
    conjuncts,
    free_vars,
    logical_and,
    minimum,
    select,
    substitute,
)
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.tree import Program
from dlc_core.tir.stmt import Block, For, Stmt, Store


def trim(program: Program, handle: LoopRV) -> None:
    loop = program.loop(handle)
    what = f"cannot trim loop {loop.var.name!r}"
    nest: list[For] = []
    stmt: Stmt = loop
    while isinstance(stmt, For):
        nest.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Block):
        raise program.error(what, loop, why="it holds something besides one block and its loops")
    block, inner = stmt, [s.var for s in nest[1:]]
    value = _conditional(block)
    if value is None:
        return
    bindings = {axis.var: at for axis, at in zip(block.axes, block.values, strict=True)}
    analyzer = program.analyzer(nest[-1])
    outside = program.analyzer(*list(program.tree.ancestors(loop))[:1])
    sizes: list[Expr] = []
    left: list[Expr] = []
    for part in conjuncts(value.cond):
        bound = substitute(part, bindings)
        if analyzer.prove(bound):
            continue
        solved = solve_condition(analyzer, bound, loop.var)
        last = solved.values.high
        if last is None or solved.values.low is not None or not set(free_vars(last)).isdisjoint(inner):
            left.append(part)
            found = None if last is None else analyzer.bounds(last, inner)
            last = None if found is None else found[1]
        size = None if last is None else outside.simplify(last + 1 - loop.begin)
        if size is None or not outside.prove(size >= 1):
            # The first iteration initialises the result, so it must remain.
            left = list(dict.fromkeys((*left, part)))
        else:
            sizes.append(size)
    assert isinstance(block.body, Store)
    old = block.body.value
    assert isinstance(old, Binary)
    rest = select(logical_and(*left), value.a, value.b) if left else value.a
    update = replace(block.body, value=binary(old.op, old.a, rest))
    body: Stmt = replace(block, body=update)
    for s in reversed(nest[1:]):
        body = replace(s, body=body)
    extent = outside.simplify(functools.reduce(minimum, sizes, loop.extent))
    program.replace({loop: replace(loop, extent=extent, body=body)})


def _conditional(block: Block) -> Select | None:
    """Return the conditional value of a reduction with its neutral value; None for other blocks."""
    body, init = block.body, block.init
    if not isinstance(body, Store) or not isinstance(init, Store) or not isinstance(body.value, Binary):
        return None
    value = body.value
    if not isinstance(value.a, Load) or value.a.buffer is not body.buffer or not isinstance(value.b, Select):
        return None
    return value.b if value.b.b is init.value else None


__all__ = ["trim"]
