"""Reductions over the threads of a group: each thread sums a part, and a tree adds the parts.

    for t in thread_binding(8, thread="thread.x"):     for t in thread_binding(8, thread="thread.x"):
        for k in range(16):                                S[t] = sum of A[0:16, t]
            block: B[0] = B[0] + A[k, t]               for t in thread_binding(4, …): S[t] = S[t] + S[t + 4]
                                                       for t in thread_binding(2, …): S[t] = S[t] + S[t + 2]
                                                       for t in thread_binding(1, …): S[t] = S[t] + S[t + 1]
                                                       B[0] = S[0]

The stages are consecutive loops. `unify_thread_binding` makes one launch of them, and `thread_sync` inserts
the barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import PassError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, cast_to, const, const_value, eq, load, substitute
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.thread_base import ThreadPass, has_threads
from dlc_core.schedule.dependence import TRUE, axis_kinds
from dlc_core.schedule.reduction import parts_of
from dlc_core.schedule.regions import read_regions
from dlc_core.schedule.threads import CrossThread, cross_thread
from dlc_core.schedule.tree import Program, Tree
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.functor import block_list, rename_bound, stmts
from dlc_core.tir.intrinsics import if_then_else, intrinsic
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, Let, PrimFunc, Range, Region, Stmt, Store, loop, seq
from dlc_core.tir.threads import THREAD, has_axes, level, level_of


def lower_cross_thread_reductions(func: PrimFunc, subgroup: int = 0, axis: str = "") -> PrimFunc:
    """Replace every reduction over a loop of threads by a tree of partial results.

    The threads of a subgroup exchange partial results directly, without memory and barriers, if `subgroup`, a
    power of two, divides the number of threads, or this number is a smaller power of two. Subgroups consist
    of consecutive threads of `axis`, or of any axis if none is named. Raises PassError for a reduction that
    threads cannot share; see `schedule.threads.cross_thread`.
    """
    if subgroup & (subgroup - 1):
        raise PassError(f"subgroups of {subgroup} threads", hint="take a power of two")
    program = Program(func)
    while True:
        found = _next_reduction(program)
        if found is None:
            return program.func
        _lower(program, found, subgroup if axis in ("", found.loop.thread) else 0)


def subgroups(machine: Description) -> tuple[int, str]:
    """Return the size of a subgroup (0 if there are none), and the axis of its consecutive threads."""
    return machine.subgroup, next((a for a in machine.thread_axes if level_of(a) == THREAD), "")


def _next_reduction(program: Program) -> CrossThread | None:
    for at in stmts(program.func.body):
        if level(at) != THREAD:
            continue
        assert isinstance(at, For)
        accumulating = [s for s in block_list(at.body) if "reduce" in axis_kinds(s, at.var)]
        if not accumulating:
            continue
        found = cross_thread(program, at)
        if found is None:
            raise PassError(
                f"{program.func.name}: block {accumulating[0].name} accumulates over the loop {at.var.name} "
                f"bound to {at.thread} in a way that threads cannot share",
                hint="put all loops that accumulate inside of it, or use rfactor",
                spans=program.func.spans,
            )
        return found
    return None


def _lower(program: Program, found: CrossThread, subgroup: int) -> None:
    block, at, result = found.block, found.loop, found.combination.buffers[0]
    size = const_value(at.extent)
    assert size is not None
    width = 1
    if subgroup > 1 and size % subgroup == 0:
        width = subgroup
    elif 1 < size < subgroup and not size & (size - 1):
        width = size
    count = size // width
    enclosing = [s for s in program.tree.path(at)[:-1] if level(s) == THREAD]
    outer = [s for s in enclosing if isinstance(s, For)]
    parts = Buffer(f"{result.name}_parts", [*(s.extent for s in outer), count], result.dtype, scope="shared")
    stages: list[Stmt] = [_partial_result(program, found, parts, outer, width)]
    names = [f"{block.name}_part"]
    while count > 1:
        half = 1 << ((count - 1).bit_length() - 1)
        name = program.fresh_block_name(f"{block.name}_step{half}", names)
        names.append(name)
        stages.append(_step(name, found, parts, outer, half, min(half, count - half)))
        count = half
    spatial = [(a, v) for a, v in zip(block.axes, block.values, strict=True) if a.kind == "spatial"]
    lanes = _lanes(outer)
    index = (*(a.var - s.begin for a, s in zip(lanes, outer, strict=True)), const(0))
    stages.append(
        rename_bound(
            Block(
                block.name,
                (*(a for a, _ in spatial), *lanes),
                (*(v for _, v in spatial), *(s.var for s in outer)),
                (Region.point(parts, index),),
                block.writes,
                Store(result, found.combination.point, load(parts, index)),
                predicate=parts_of(block.predicate, _reducing(found))[0],
                annotations=block.annotations,
            )
        )
    )
    top = outer[0] if outer else at
    program.replace({top: Alloc(parts, Tree(top).replace({at: seq(*stages)}))})


def _reducing(found: CrossThread) -> set[Var]:
    return {found.loop.var, *(s.var for s in found.inner)}


def _lanes(loops: Sequence[For]) -> list[IterVar]:
    return [IterVar(Var(f"v_{s.var.name}"), Range(s.begin, s.extent)) for s in loops]


def _partial_result(
    program: Program, found: CrossThread, parts: Buffer, outer: Sequence[For], width: int
) -> Stmt:
    """Emit the partial reduction of each thread in thread-local memory, and its copy to shared memory."""
    block, at = found.block, found.loop
    assert isinstance(block.init, Store)
    spatial = [(a, v) for a, v in zip(block.axes, block.values, strict=True) if a.kind == "spatial"]
    reducing = [(a, v) for a, v in zip(block.axes, block.values, strict=True) if a.kind == "reduce"]
    lane = IterVar(Var(f"v_{at.var.name}"), Range(at.begin, at.extent))
    reduce_axes = [IterVar(Var(f"v_{s.var.name}"), Range(s.begin, s.extent), "reduce") for s in found.inner]
    names: dict[Var, Expr] = {
        at.var: lane.var,
        **{s.var: a.var for s, a in zip(found.inner, reduce_axes, strict=True)},
    }
    env = {a.var: substitute(v, names) for a, v in reducing}
    always, sometimes = parts_of(block.predicate, _reducing(found))
    source = substitute(found.combination.terms[0], env)
    if sometimes is not TRUE:
        # Steps outside of the predicate add the identity, so that every thread has a partial result.
        source = if_then_else(substitute(sometimes, names), source, block.init.value)
    own = Buffer(f"{parts.name}_own", (1,), parts.dtype, scope="local")
    (value,) = found.combination.combine((own[0],), (source,))
    add = Block(
        program.fresh_block_name(f"{block.name}_part"),
        (*(a for a, _ in spatial), lane, *reduce_axes),
        (*(v for _, v in spatial), at.var, *(s.var for s in found.inner)),
        (),
        (Region.point(own, (const(0),)),),
        Store(own, (const(0),), value),
        Store(own, (const(0),), block.init.value),
        always,
    )
    add = replace(add, reads=read_regions(add))
    nest: Stmt = add
    for one in reversed(found.inner):
        nest = replace(one, body=nest)
    lanes = _lanes([*outer, at])
    *row, number = (a.var - a.dom.begin for a in lanes)
    index = (*row, number if width == 1 else number // width)
    publish = Block(
        program.fresh_block_name(f"{block.name}_shown"),
        tuple(lanes),
        tuple(s.var for s in (*outer, at)),
        (Region.point(own, (const(0),)),),
        (Region.point(parts, index),),
        Store(parts, index, own[0]),
        predicate=TRUE if width == 1 else eq((at.var - at.begin) % width, 0),
    )
    exchange = None if width == 1 else _exchange(program, found, own, width)
    first: Stmt | None = None
    if always is not TRUE:
        # Threads without a contribution store, and exchange, the identity.
        region = (Region.point(own, (const(0),)),)
        name = program.fresh_block_name(f"{block.name}_nothing")
        first = Block(name, (), (), (), region, Store(own, (const(0),), block.init.value))
    return replace(at, body=Alloc(own, seq(first, nest, exchange, publish)))


def _exchange(program: Program, found: CrossThread, own: Buffer, width: int) -> Stmt:
    """Emit the exchange after which the first thread of each subgroup has its result."""
    steps: list[Stmt] = []
    distance = width // 2
    while distance:
        sent = cast_to("int32", own[0]) if own.dtype.is_bool else own[0]
        received = intrinsic("subgroup_shuffle_down", sent, distance, width)
        # Exchanges take numbers. `and` and `or` may skip their second operand, so that it gets a name before.
        other = Var("other", received.dtype) if own.dtype.is_bool else None
        read = received if other is None else cast_to(own.dtype, other)
        (value,) = found.combination.combine((own[0],), (read,))
        step = Store(own, (const(0),), value)
        steps.append(step if other is None else Let(other, received, step))
        distance //= 2
    region = (Region.point(own, (const(0),)),)
    return Block(
        program.fresh_block_name(f"{found.block.name}_exchanged"), (), (), region, region, seq(*steps)
    )


def _step(name: str, found: CrossThread, parts: Buffer, outer: Sequence[For], half: int, count: int) -> Stmt:
    """Emit one level of the tree: `count` threads combine their part with the part `half` positions after."""
    at = found.loop
    var = Var(at.var.name, at.var.dtype)
    lanes = _lanes(outer)
    lane = IterVar(Var(f"v_{at.var.name}"), Range(const(0), const(count)))
    row = [a.var - a.dom.begin for a in lanes]
    here, there = (*row, lane.var), (*row, lane.var + half)
    (value,) = found.combination.combine((load(parts, here),), (load(parts, there),))
    block = Block(
        name,
        (*lanes, lane),
        (*(s.var for s in outer), var),
        (Region.point(parts, here), Region.point(parts, there)),
        (Region.point(parts, here),),
        Store(parts, here, value),
    )
    return loop(var, count, block, "thread", thread=at.thread)


@record(frozen=True)
class LowerCrossThreadReduction(ThreadPass):
    """Lower reductions over threads to trees of partial results in shared memory.

    First, the threads of a subgroup exchange partial results directly. `subgroup` is its size, a power of
    two; 0 takes the target's.
    """

    name: ClassVar[str] = "lower_cross_thread_reduction"
    exact: ClassVar[bool] = False
    subgroup: int = 0

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if not has_axes(func.body) or not has_threads(context):
            return func
        if self.subgroup or context.target is None:
            return lower_cross_thread_reductions(func, self.subgroup)
        return lower_cross_thread_reductions(func, *subgroups(context.target.describe()))


__all__ = ["LowerCrossThreadReduction", "lower_cross_thread_reductions", "subgroups"]
