"""Reductions along rows: softmax, normalisations, sums over inner axes.

    for row (parallel):
      each stage over that row, vectorised

A row is a point of the output axes that no reduction covers. All stages of a row run while it is in L1, and
its scalars stay in registers. If rows are contiguous in memory (the innermost axis is not reduced), vector
lanes are neighbouring rows. Otherwise the lanes are partial results of the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Binary, Load, Var, const_value, post_order
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV
from dlc_core.schedule.rules.analysis import (
    contiguous_over,
    extent_of,
    is_pointwise,
    loads_of,
    mergeable_axes,
    reduced,
    work_of,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.gemm_decisions import TRANSPOSED
from dlc_core.schedule.rules.cpu.heuristics import LOOPS
from dlc_core.schedule.rules.cpu.threads import THREADS, worth_threads
from dlc_core.schedule.rules.cpu.vector import vectorize_long
from dlc_core.schedule.rules.stages import has_row_stages, is_costly, output_axes, row_axes
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, IterVar, PrimFunc, Store

SPLITTABLE = ("add", "mul", "min", "max")
"""Reductions whose partial results may be combined in any order."""
LANES = Decision(
    "rows.lanes",
    "The lanes of vectors: neighbouring rows, if these are contiguous, or terms of one row's reduction.",
    ("rows", "terms"),
)
KEEP = Decision(
    "rows.keep",
    "Whether an elementwise stage of a row is stored in the cache or recomputed by each reader.",
    ("inline", "keep"),
)

CHAINS = Decision(
    "rows.chains",
    "Vectors of independent partial results of a row's reduction, which hide the latency of an operation.",
    ("one", "several"),
    has_values=True,
)


@record(frozen=True)
class RowsRule(ScheduleRule):
    """The rule for softmax, normalisations and sums along rows.

    It applies if every block is a reduction of one value or pointwise.  Rules of higher priority schedule
    the GEMMs and windows among such kernels.
    """

    name: ClassVar[str] = "cpu.rows"
    priority: ClassVar[int] = 40
    decisions: ClassVar[tuple[str, ...]] = (
        *(LANES.name, KEEP.name, CHAINS.name),
        *(THREADS.name, TRANSPOSED.name),
    )

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return has_row_stages(func)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s = schedule
        work = work_of(s.func)
        out = s.get_output_blocks()[0]
        if s.get(out).init is not None:
            out = s.cache_write(out, 0, "local")
        _inline(s, out)
        stages = [handle for handle in s.get_blocks() if handle != out]
        rows = _rows(s, out)
        axes, around = s.get(out).axes, s.get_loops(out)
        if len(axes) != len(around):
            raise ScheduleError(f"the loops around block {out.name!r} are not its axes one to one")
        loops = dict(zip((a.var for a in axes), around, strict=True))
        outer = [loops[v] for v in rows]
        inner = [loop for v, loop in loops.items() if v not in rows]
        if len(loops) > 1:
            s.reorder(*outer, *inner)
        if outer:
            row = s.fuse(*outer) if len(outer) > 1 else outer[0]
        else:
            row = s.add_unit_loop(inner[0] if inner else out)
        for handle in reversed(stages):
            s.compute_at(handle, row)
            s.set_scope(handle, 0, "local")
        if outer and worth_threads(machine, work, "iterations"):
            s.parallel(row)
        lanes = machine.lanes(32)
        for handle in stages:
            block = s.get(handle)
            if block.init is not None:
                reduce_in_lanes(s, handle, lanes)
            elif block.axes:
                _pointwise(s, s.get_loops(handle)[-len(block.axes) :], lanes)
        _pointwise(s, inner, lanes)


# Row axes


def _rows(s: Schedule, out: BlockRV) -> tuple[Var, ...]:
    """Return the output axes that no reduction covers, outer to inner.

    The innermost axis is left out if vector lanes cover it.
    """
    along = output_axes(s, out)
    axes = [a.var for a in s.get(out).axes]
    rows = row_axes(s, out, along)
    found = [(s.get(handle), along[handle]) for handle in along if s.get(handle).init is not None]
    if rows and rows[-1] is axes[-1] and _has_several(s.get(out).axes[-1]):
        own = [(block, next(a for a, v in owners.items() if v is axes[-1])) for block, owners in found]
        if all(contiguous_over(block, axis) for block, axis in own) and LANES.choose("rows") == "rows":
            rows.pop()
    return tuple(rows)


def _has_several(axis: IterVar) -> bool:
    return const_value(axis.dom.extent) != 1


# Stored values of a row


def _inline(s: Schedule, out: BlockRV) -> None:
    """Inline pointwise stages that have one reader, are cheap, or have rows that are too long to store."""
    rows = set(_rows(s, out))
    along = output_axes(s, out)
    for handle in s.get_blocks():
        block = s.get(handle)
        if handle == out or not is_pointwise(block) or not isinstance(block.body, Store):
            continue
        costly = is_costly(block.body.value)
        loads = sum(isinstance(e, Load) for e in post_order(block.body.value))
        once = len(s.get_consumers(handle)) <= 1
        across = [a for a in block.axes if along[handle].get(a.var) not in rows]
        if costly and all(const_value(a.dom.extent) == 1 for a in across):
            continue
        inlined = once or not _is_small(block.body, across) or not (costly or loads > 2)
        # A stage with unbounded rows would need memory of unknown size for each row.
        both = all(const_value(a.dom.extent) is not None for a in across)
        candidates = None if both else ("inline",)
        if KEEP.choose("inline" if inlined else "keep", candidates, where=handle.name) == "inline":
            s.compute_inline(handle)


def _is_small(store: Store, across: Sequence[IterVar]) -> bool:
    """Whether the part of a buffer that one row needs is small enough to store."""
    size = store.buffer.dtype.itemsize
    for axis in across:
        extent = const_value(axis.dom.extent)
        if extent is None:
            return False
        size *= extent
    return size <= LOOPS.row_bytes


# Loops of a stage


def _pointwise(s: Schedule, loops: Sequence[LoopRV], lanes: int) -> None:
    own = [loop for loop in loops if const_value(s.extent(loop)) != 1]
    if own and s.get_for(own[-1]).kind == "serial":
        vectorize_long(s, own[-1], lanes)


def _outermost(s: Schedule, handle: BlockRV, candidates: Sequence[LoopRV]) -> LoopRV:
    """Return the outermost of the candidate loops around a block."""
    for loop in s.get_loops(handle):
        if loop in candidates:
            return loop
    raise ScheduleError(f"block {handle.name!r} has no reduction loop of its own")


def reduce_in_lanes(s: Schedule, handle: BlockRV, lanes: int) -> None:
    """Vectorise a reduction over a spatial axis if it has one, else by partial results in lanes."""
    block = s.get(handle)
    own = s.get_loops(handle)[-len(block.axes) :]
    pairs = list(zip(own, block.axes, strict=True))
    wide = [loop for loop, a in pairs if a.kind == "spatial" and const_value(s.extent(loop)) != 1]
    inner = [loop for loop, a in pairs if a.kind == "reduce"]
    if wide:
        s.reorder(*(loop for loop in own if loop != wide[-1]), wide[-1])
        s.decompose_reduction(handle, _outermost(s, handle, inner))
        vectorize_long(s, wide[-1], lanes)
        return
    body = block.body
    assert isinstance(body, Store)
    if lanes < 2:
        s.decompose_reduction(handle, _outermost(s, handle, inner))
        return
    if not isinstance(body.value, Binary) or body.value.op not in SPLITTABLE:
        return
    merged = _mergeable(block)
    if merged > 1:
        s.reorder(*(loop for loop in own if loop not in inner), *inner)
        inner = [*inner[:-merged], s.fuse(*inner[-merged:])]
    extent = const_value(s.extent(inner[-1]))
    if extent is not None and extent < lanes:
        return
    length = s.extent(inner[-1])
    steps, lane = s.split(inner[-1], [None, lanes], tail="predicate")
    partial = s.rfactor(lane, 0)
    s.set_scope(partial, 0, "local")
    exact = extent is not None and extent % lanes == 0
    chains = _chains(extent // lanes) if exact and extent is not None else 1
    if chains > 1:
        _reduce_in_chains(s, partial, [*inner[:-1], steps], lane, chains)
        _reduce_lanes(s, handle, lanes)
        return
    init = s.decompose_reduction(partial, _outermost(s, partial, (*inner, steps)))
    s.vectorize(s.get_loops(init)[-1])
    vectors = length // lanes
    for copy in [Copy(steps)] if exact else s.partition(steps, [vectors]):
        s.vectorize(copy[lane])
    _reduce_lanes(s, handle, lanes)


def _chains(vectors: int) -> int:
    """Choose the number of independent partial results of a row of so many vectors."""
    candidates = [n for n in (1, 2, 4) if vectors % n == 0 and vectors >= LOOPS.chain_vectors * n]
    return CHAINS.pick(
        max(candidates, default=1), lambda: candidates or [1], lambda n: "one" if n == 1 else "several"
    )


def _reduce_in_chains(
    s: Schedule, partial: BlockRV, steps: Sequence[LoopRV], lane: LoopRV, chains: int
) -> None:
    """Reduce the vectors of a row by turns into `chains` vectors, and these into one, `partial`."""
    rest, chain = s.split(steps[-1], [None, chains], tail="exact")
    parts = s.rfactor(chain, 0)
    s.set_scope(parts, 0, "local")
    first = s.decompose_reduction(parts, _outermost(s, parts, (*steps[:-1], rest)))
    s.unroll(s.get_loops(first)[-2])
    s.vectorize(s.get_loops(first)[-1])
    s.unroll(chain)
    s.vectorize(lane)
    own, each = s.get_loops(partial)[-2:]
    s.reorder(each, own)
    _add_vectors(s, partial, each, own)


def _reduce_lanes(s: Schedule, handle: BlockRV, lanes: int) -> None:
    """Reduce the lanes of a vector by halves, so that few operations wait for each other."""
    while lanes > 2 and lanes % 2 == 0:
        lanes //= 2
        halves, lane = s.split(s.get_loops(handle)[-1], [2, lanes], tail="exact")
        half = s.rfactor(lane, 0)
        s.set_scope(half, 0, "local")
        _add_vectors(s, half, halves, lane)
    s.unroll(s.get_loops(handle)[-1])


def _add_vectors(s: Schedule, handle: BlockRV, each: LoopRV, lane: LoopRV) -> None:
    """Reduce a few vectors, the loop `each`, into one."""
    start = s.decompose_reduction(handle, each)
    s.vectorize(s.get_loops(start)[-1])
    s.unroll(each)
    s.vectorize(lane)


def _mergeable(block: Block) -> int:
    """Return how many innermost reduction axes form one contiguous axis in every input."""
    axes = reduced(block)
    symbolic = [i for i, axis in enumerate(axes) if extent_of(axis) is None]
    axes = axes[symbolic[-1] :] if symbolic else axes
    return mergeable_axes(axes, [(e.buffer, e.indices) for e in loads_of(block)])
