"""Lower blocks to plain loop nests: axes become their bindings, `init` and predicates become conditions.

If a reduction may have no iterations because its extent is symbolic, it is initialised before its loops. A
loop without iterations would not store the neutral value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Const, Expr, Var, const_value, eq, free_vars, logical_and, substitute
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.schedule import Schedule
from dlc_core.schedule.dependence import outer_blocks
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.query import read_by, written_by
from dlc_core.schedule.reduction import init_nest
from dlc_core.schedule.tree import Program
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list, substitute_stmt, transform_each
from dlc_core.tir.stmt import Alloc, Block, For, If, PrimFunc, Seq, Stmt, seq


def lower_blocks(func: PrimFunc) -> PrimFunc:
    """Lower blocks to statements. `init` runs if all reduction axes are at their begin.

    Raises ScheduleError if a reduction may be empty and cannot be initialised before its loops.
    """
    if any(b.init is not None and _may_be_empty(b) for b in block_list(func.body)):
        func = _initialised(func)
    return replace(func, body=transform_each(func.body, Block, _lower))


def _may_be_empty(block: Block) -> bool:
    return any(a.kind == "reduce" and not const_value(a.dom.extent) for a in block.axes)


def _initialised(func: PrimFunc) -> PrimFunc:
    schedule = Schedule(func)
    initialised: set[Buffer] = set()
    for handle in schedule.get_blocks():
        block = schedule.get(handle)
        if block.init is None:
            initialised.update(region.buffer for region in block.writes)
            continue
        if not _may_be_empty(block):
            continue
        loop = _first_empty(schedule, handle)
        if loop is None:
            continue
        results = {region.buffer for region in block.writes}
        try:
            schedule.decompose_reduction(handle, loop)
        except ScheduleError:
            # A later part of a partitioned reduction loop: the results are already initialised.
            if not results <= initialised:
                schedule = Schedule(_initialise_parts(schedule.func, handle, loop))
        initialised |= results
    return schedule.func


def _initialise_parts(func: PrimFunc, handle: BlockRV, target: LoopRV) -> PrimFunc:
    """Initialise, before a loop, all blocks inside it that accumulate into the buffers of a block."""
    program = Program(func)
    at, block = program.loop(target), program.block(handle)
    what = f"cannot initialise block {block.name!r} before loop {at.var.name!r}"
    results = set(written_by(block))
    nests: list[Stmt] = []
    updates: dict[Stmt, Stmt] = {}
    for part in outer_blocks(at):
        if part.init is None or set(written_by(part)) != results:
            if not results.isdisjoint([*written_by(part), *read_by(part)]):
                raise program.error(what, at, block, part, why=f"block {part.name!r} uses its results inside")
            continue
        path = program.tree.path(part)
        between = path[path.index(at) : -1]
        if not all(isinstance(s, (For, Seq, Alloc)) for s in between):
            raise program.error(what, at, part, why="other statements stand between the two")
        nests.append(init_nest(program, part, [s for s in between if isinstance(s, For)], what)[1])
        updates[part] = replace(part, init=None)
    program.replace(updates)
    at = program.loop(target)
    program.replace({at: seq(*nests, at)})
    return program.func


def _first_empty(schedule: Schedule, handle: BlockRV) -> LoopRV | None:
    """Return the outermost reduction loop if any reduction loop may be empty."""
    block = schedule.get(handle)
    values = [v for a, v in zip(block.axes, block.values, strict=True) if a.kind == "reduce"]
    accumulating = set(free_vars(*values))
    analyzer = Analyzer()
    for scalar in schedule.func.scalars:
        analyzer.declare_dim(scalar, low=0)
    first, empty = None, False
    for handle_of_loop in schedule.get_loops(handle):
        loop = schedule.get_for(handle_of_loop)
        if loop.var in accumulating:
            first = first or handle_of_loop
            empty = empty or not analyzer.prove(loop.extent > 0)
        analyzer.bind(loop.var, loop.begin, loop.extent)
    return first if empty else None


def _lower(block: Block) -> Stmt:
    body = block.body
    if block.init is not None:
        first = logical_and(*(eq(a.var, a.dom.begin) for a in block.axes if a.kind == "reduce"))
        body = seq(_guarded(first, block.init), body)
    values: dict[Var, Expr] = {axis.var: value for axis, value in zip(block.axes, block.values, strict=True)}
    return _guarded(substitute(block.predicate, values), substitute_stmt(body, values))


def _guarded(cond: Expr, stmt: Stmt) -> Stmt:
    return stmt if isinstance(cond, Const) and cond.value else If(cond, stmt)


@record(frozen=True)
class LowerBlocks(PrimFuncPass):
    """Lower blocks to plain loop nests.

    Before:

        @T.prim_func
        def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
            for i, k in T.grid(4, 8):
                with T.block("sum"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    T.reads(A[vi, vk])
                    T.writes(B[vi])
                    with T.init():
                        B[vi] = T.float32(0.0)
                    B[vi] = B[vi] + A[vi, vk]

    After:

        @T.prim_func
        def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
            for i, k in T.grid(4, 8):
                if k == 0:
                    B[i] = T.float32(0.0)
                B[i] = B[i] + A[i, k]
    """

    name: ClassVar[str] = "lower_blocks"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return lower_blocks(func)
