"""Elementwise and injective kernels: one pass over the output, vectorised over its contiguous axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.ir.expr import Binary, Call, Expr, Var, const_value, post_order
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    coefficients,
    inline_pointwise,
    is_plain,
    is_pointwise,
    loads_of,
    mergeable_tail,
    parallelize,
    spatial,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.threads import worth_threads
from dlc_core.schedule.rules.cpu.transpose import schedule_transpose, turned
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, PrimFunc, Store

_TURNS = ("cos", "sin", "tan", "cosh", "sinh", "tanh")
LONG = frozenset((*_TURNS, "erf", "exp", "exp2", "log", "log2", "pow", "rsqrt", "sigmoid", "sqrt"))
"""Functions of many instructions that wait for one another, or of one that takes long."""
GROUP = Decision(
    "map.registers",
    "Registers that each value of an elementwise kernel spans, for instructions that are independent.",
    ("one", "several"),
    has_values=True,
)
TRANSPOSE = Decision(
    "map.transpose",
    "Whether data read across the axis it is written along is transposed by tiles and vector shuffles.",
    ("strided", "tiles"),
)
PARALLEL_ELEMENTS = 1 << 14
"""Elements below which a kernel is not worth waking other threads for."""


@dataclass(frozen=True)
class MapRule(ScheduleRule):
    """Kernels of pointwise blocks only."""

    name: ClassVar[str] = "cpu.map"
    priority: ClassVar[int] = 10

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return all(is_pointwise(block) for block in block_list(func.body))

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        inline_pointwise(schedule)
        for handle in schedule.get_blocks():
            schedule_map(schedule, handle, machine)


def schedule_map(schedule: Schedule, handle: BlockRV, machine: Machine) -> None:
    """Vectorise a pointwise block's contiguous axis and deal its outer axes out to threads."""
    block = schedule.get(handle)
    if not isinstance(block.body, Store) or not block.axes:
        return
    loops = schedule.get_loops(handle)
    if _reads_across(schedule, block, loops, machine):
        return
    group = _group(block, machine)
    merged = mergeable_tail(block, loops)
    if merged > 1:
        loops = [*loops[:-merged], schedule.fuse(*loops[-merged:])]
    total = 1
    for loop in loops:
        total *= const_value(schedule.extent(loop)) or PARALLEL_ELEMENTS
    inner = loops.pop()
    extent = const_value(schedule.extent(inner))
    lanes = machine.lanes(max(block.body.buffer.dtype.bits, 32))
    if lanes < 2:
        loops.append(inner)
    elif extent is None or extent > lanes:
        span = lanes * group
        split = schedule.split(
            inner, [None, span if extent is not None and extent >= 4 * span else lanes], tail="partition"
        )
        schedule.vectorize(split[1])
        loops.append(split[0])
        if split.tail is not None and const_value(schedule.extent(split.tail.loop)) is not None:
            vectorize_columns(schedule, split.tail.loop, lanes)
    else:
        vectorize_columns(schedule, inner, lanes)
    if worth_threads(machine, total, PARALLEL_ELEMENTS):
        parallelize(schedule, loops)


def _group(block: Block, machine: Machine) -> int:
    """Registers that each value of a block spans: several where long functions follow one another.

    Each waits for the one before it, longer than a processor looks ahead: instructions of several elements
    have to be side by side.
    """
    most = machine.description.vector_group
    assert isinstance(block.body, Store)
    if most < 2 or not _along(block, spatial(block)[-1].var):
        return 1
    depth: dict[Expr, int] = {}
    for e in post_order(block.body.value):
        long = e.dtype.is_float and (
            e.name in LONG if isinstance(e, Call) else isinstance(e, Binary) and e.op == "div"
        )
        depth[e] = long + max((depth[child] for child in e.children), default=0)
    longest = depth[block.body.value]
    return GROUP.pick(
        1 if longest < 2 else min(most, 2 if longest < 4 else 4),
        lambda: [count for count in (1, 2, 4) if count <= most],
        lambda count: "one" if count == 1 else "several",
    )


def _along(block: Block, axis: Var) -> bool:
    """Whether every access of a block is contiguous along an axis, or the same all along it."""
    assert isinstance(block.body, Store)
    accesses = [(block.body.buffer, block.body.indices), *((e.buffer, e.indices) for e in loads_of(block))]
    known = [coefficients(buffer, indices, [axis]) for buffer, indices in accesses]
    return all(steps is not None and const_value(steps[axis]) in (0, 1) for steps in known)


def _reads_across(schedule: Schedule, block: Block, loops: list[LoopRV], machine: Machine) -> bool:
    """Schedule a block whose results lie across what it reads; whether it is one."""
    if not is_plain(block, loops) or not isinstance(block.body, Store):
        return False
    found = turned(block, machine)
    total = 1
    for loop in loops:
        total *= const_value(schedule.extent(loop)) or 1
    if found is None or TRANSPOSE.choose("tiles") == "strided":
        return False
    lanes = machine.lanes(max(block.body.buffer.dtype.bits, 32))
    tiles = schedule_transpose(schedule, loops, found, lanes)
    if tiles is not None and worth_threads(machine, total, PARALLEL_ELEMENTS):
        parallelize(schedule, tiles)
    return tiles is not None
