"""Elementwise and injective kernels: one pass over the output, vectorised over its contiguous axis."""

from __future__ import annotations

from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.ir.expr import Binary, Call, Expr, Var, const_value, post_order
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    accesses_of,
    coefficients,
    count_of,
    inline_pointwise,
    is_plain,
    is_pointwise,
    mergeable_tail,
    parallelize,
    spatial,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.threads import THREADS, worth_threads
from dlc_core.schedule.rules.cpu.transpose import schedule_transpose, transposed_read
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, PrimFunc, Store

_TRIGONOMETRIC = ("cos", "sin", "tan", "cosh", "sinh", "tanh")
LONG_LATENCY = frozenset(
    (*_TRIGONOMETRIC, "erf", "exp", "exp2", "log", "log2", "pow", "rsqrt", "sigmoid", "sqrt")
)
"""Functions with long dependency chains or a long latency."""
REGISTERS = Decision(
    "map.registers",
    "Registers per value of an elementwise kernel, which give independent instructions.",
    ("one", "several"),
    has_values=True,
)
TRANSPOSE = Decision(
    "map.transpose",
    "How an elementwise kernel makes strided reads: by tiles that vector shuffles transpose, or by elements.",
    ("strided", "tiles"),
)

MAP_DECISIONS = (REGISTERS.name, TRANSPOSE.name, THREADS.name)
"""The decisions of `schedule_map`."""


@record(frozen=True)
class MapRule(ScheduleRule):
    """The rule for elementwise and injective kernels.

    It applies if all blocks are pointwise (one store, no reduction) and write different buffers. The start
    and the steps of a scan write the same one.
    """

    name: ClassVar[str] = "cpu.map"
    priority: ClassVar[int] = 10
    decisions: ClassVar[tuple[str, ...]] = MAP_DECISIONS

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        blocks = block_list(func.body)
        written = {block.body.buffer for block in blocks if isinstance(block.body, Store)}
        return all(is_pointwise(block) for block in blocks) and len(written) == len(blocks)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        inline_pointwise(schedule)
        for handle in schedule.get_blocks():
            schedule_map(schedule, handle, machine)


def schedule_map(schedule: Schedule, handle: BlockRV, machine: Machine) -> None:
    """Vectorise the contiguous axis of a pointwise block and parallelise its outer axes."""
    block = schedule.get(handle)
    if not isinstance(block.body, Store) or not block.axes:
        return
    loops = schedule.get_loops(handle)
    if not loops:  # all axes have one element
        return
    if _schedule_transposed(schedule, block, loops, machine):
        return
    registers = _registers_per_value(block, machine)
    merged = mergeable_tail(block, loops)
    if merged > 1:
        loops = [*loops[:-merged], schedule.fuse(*loops[-merged:])]
    total = count_of(schedule, loops)
    inner = loops.pop()
    extent = const_value(schedule.extent(inner))
    lanes = machine.lanes(max(block.body.buffer.dtype.bits, 32))
    if lanes < 2:
        loops.append(inner)
    elif extent is None or extent > lanes:
        span = lanes * registers
        split = schedule.split(
            inner, [None, span if extent is not None and extent >= 4 * span else lanes], tail="partition"
        )
        schedule.vectorize(split[1])
        loops.append(split[0])
        if split.tail is not None and const_value(schedule.extent(split.tail.loop)) is not None:
            vectorize_columns(schedule, split.tail.loop, lanes)
    else:
        vectorize_columns(schedule, inner, lanes)
    if worth_threads(machine, total, "elements"):
        parallelize(schedule, loops)


def _registers_per_value(block: Block, machine: Machine) -> int:
    """Return the registers per value of a block: several for chains of long functions.

    The latency of such a chain exceeds the out-of-order window, so independent elements are interleaved.
    """
    most = machine.description.vector_group
    assert isinstance(block.body, Store)
    if most < 2 or not _is_contiguous_along(block, spatial(block)[-1].var):
        return 1
    depth: dict[Expr, int] = {}
    for e in post_order(block.body.value):
        long = e.dtype.is_float and (
            e.name in LONG_LATENCY if isinstance(e, Call) else isinstance(e, Binary) and e.op == "div"
        )
        depth[e] = long + max((depth[child] for child in e.children), default=0)
    longest = depth[block.body.value]
    return REGISTERS.pick(
        1 if longest < 2 else min(most, 2 if longest < 4 else 4),
        lambda: [count for count in (1, 2, 4) if count <= most],
        lambda count: "one" if count == 1 else "several",
    )


def _is_contiguous_along(block: Block, axis: Var) -> bool:
    """Whether every access of a block is contiguous along an axis or does not depend on it."""
    factors = [coefficients(buffer, indices, [axis]) for buffer, indices in accesses_of(block)]
    return all(each is not None and const_value(each[axis]) in (0, 1) for each in factors)


def _schedule_transposed(schedule: Schedule, block: Block, loops: list[LoopRV], machine: Machine) -> bool:
    """Schedule a block with strided reads as a tiled transposition; return False if it has no such form."""
    if not is_plain(block, loops) or not isinstance(block.body, Store):
        return False
    found = transposed_read(block, machine)
    if found is None or TRANSPOSE.choose("tiles") == "strided":
        return False
    total = count_of(schedule, loops)
    lanes = machine.lanes(max(block.body.buffer.dtype.bits, 32))
    tiles = schedule_transpose(schedule, loops, found, lanes)
    if tiles is not None and worth_threads(machine, total, "elements"):
        parallelize(schedule, tiles)
    return tiles is not None
