"""Software pipelining: parts of a loop's body run for different iterations at the same time.

`software_pipeline` only checks the request and annotates the loop. The pass `inject_software_pipeline`
rewrites it. With stages (0, 1) the first part runs one iteration ahead of the second:

    for k in range(8):                                 load(0)
        load(k)                                        for k in range(1, 8):
        compute(k)                                         load(k)
                                                           compute(k - 1)
                                                       compute(7)

A buffer that passes values from one part to a later stage has one version for each stage between the two. If
memory on the chip (shared memory or a scratchpad) is filled two or more stages before it is read, the copies
may be asynchronous: they form groups (`tir.copies`), and the groups for the stages in between stay in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.ir.buffer import Buffer
from dlc_core.schedule.compact import is_private_to
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.loops import annotate
from dlc_core.schedule.query import readers, written_by
from dlc_core.schedule.tree import Program
from dlc_core.support.record import record
from dlc_core.tir.functor import buffers_read, buffers_written, stmts
from dlc_core.tir.scopes import in_main_memory
from dlc_core.tir.stmt import Alloc, For, Seq, Stmt

STAGE, ORDER, SPARE = "software_pipeline_stage", "software_pipeline_order", "software_pipeline_spare"
"""Annotations of a loop: for each part of its body the stage, and the place among the parts; iterations for
which memory is kept although nothing is to read it."""


@record(frozen=True)
class Pipelined:
    """A loop that may be pipelined."""

    allocs: tuple[Buffer, ...]
    """Memory allocated in the body."""
    parts: tuple[Stmt, ...]
    stages: tuple[int, ...]
    order: tuple[int, ...]
    versions: dict[Buffer, int]
    """The number of iterations whose values are live at once, for buffers that every iteration refills."""
    ahead: int
    """The least number of iterations between writes to shared memory by `copies` and their readers."""
    copies: frozenset[int]
    """The numbers of the parts that asynchronous copies may compute."""
    spare: int
    """The number of further iterations for which that memory is kept."""


def parts_of_body(body: Stmt) -> tuple[tuple[Buffer, ...], tuple[Stmt, ...]]:
    """The allocations of a body, and its statements in order of execution."""
    allocs: list[Buffer] = []
    parts: list[Stmt] = []
    work = [body]
    while work:
        stmt = work.pop()
        match stmt:
            case Alloc():
                allocs.append(stmt.buffer)
                work.append(stmt.body)
            case Seq():
                work.extend(reversed(stmt.stmts))
            case _:
                parts.append(stmt)
    return tuple(allocs), tuple(parts)


def software_pipeline(
    program: Program, handle: LoopRV, stages: Sequence[int], order: Sequence[int] | None, spare: int = 0
) -> None:
    loop = program.loop(handle)
    chosen = tuple(range(len(stages))) if order is None else tuple(order)
    check_pipeline(program, loop, tuple(stages), chosen, spare)
    annotate(program, handle, STAGE, tuple(stages))
    annotate(program, handle, ORDER, chosen)
    if spare:
        annotate(program, handle, SPARE, spare)


def check_pipeline(
    program: Program, loop: For, stages: tuple[int, ...], order: tuple[int, ...], spare: int = 0
) -> Pipelined:
    """Return the pipeline of a loop; raise ScheduleError if it would change the result."""
    what = f"cannot pipeline loop {loop.var.name!r} in stages {stages}"
    allocs, parts = parts_of_body(loop.body)
    if loop.kind != "serial":
        raise program.error(what, loop, why=f"it is {loop.kind}: its iterations are in no order")
    if len(stages) != len(parts) or sorted(order) != list(range(len(parts))):
        raise program.error(
            what,
            loop,
            why=f"its body has {len(parts)} part(s), the order is {order}",
            hint="give each part, in order of execution, a stage and a place of its own",
        )
    if any(stage < 0 for stage in stages) or min(stages, default=0) > 0:
        raise program.error(what, loop, why="stages count from 0")
    touched = [(set(buffers_read(p)), set(buffers_written(p))) for p in parts]
    kept: dict[Buffer, bool] = {}
    for j in range(len(parts)):
        for i in range(j):
            (read_i, written_i), (read_j, written_j) = touched[i], touched[j]
            for buffer in (written_i & (read_j | written_j)) | (read_i & written_j):
                if buffer not in kept:
                    kept[buffer] = buffer in allocs or _made_anew(program, loop, buffer)
                _check_pair(program, loop, (parts[i], parts[j]), (stages[i], stages[j]), (order[i], order[j]),
                            buffer, kept[buffer], what)  # fmt: skip
    versions: dict[Buffer, int] = {}
    for buffer, anew in kept.items():
        if anew:
            own = [s for s, (read, written) in zip(stages, touched, strict=True) if buffer in read | written]
            versions[buffer] = max(own) - min(own) + 1
    ahead, copies = _copies(stages, touched, versions)
    if spare and (spare < 0 or ahead < 2):
        raise program.error(what, loop, why="no copies run ahead by two stages, so that none can be spared")
    for buffer in {b for i in copies for b in touched[i][1] & versions.keys() if spare}:
        versions[buffer] += spare
    return Pipelined(allocs, parts, stages, order, versions, ahead, copies, spare)


def _copies(
    stages: tuple[int, ...],
    touched: Sequence[tuple[set[Buffer], set[Buffer]]],
    versions: Mapping[Buffer, int],
) -> tuple[int, frozenset[int]]:
    """Find the parts that asynchronous copies to shared memory may compute.

    Returns how many stages they run ahead of their readers, and their numbers.  Every part that fills shared
    memory for a later stage must be at least two stages ahead; otherwise there are none.
    """
    ahead: dict[int, int] = {}
    for i, (_, written) in enumerate(touched):
        for buffer in written & versions.keys():
            readers = [s for s, (read, _) in zip(stages, touched, strict=True) if buffer in read]
            if not in_main_memory(buffer) and readers and min(readers) > stages[i]:
                ahead[i] = min(ahead.get(i, min(readers)), min(readers) - stages[i])
    least = min(ahead.values(), default=0)
    return (least, frozenset(ahead)) if least > 1 else (0, frozenset())


def _check_pair(
    program: Program,
    loop: For,
    parts: tuple[Stmt, Stmt],
    stages: tuple[int, int],
    order: tuple[int, int],
    buffer: Buffer,
    anew: bool,
    what: str,
) -> None:
    """Check that two parts of an iteration that access one buffer keep their order."""
    if stages[0] > stages[1] or (stages[0] == stages[1] and order[0] > order[1]):
        raise program.error(
            what, loop, *parts, why=f"a part would run before the one that it shares {buffer.name} with"
        )
    if stages[0] != stages[1] and not anew:
        raise program.error(
            what,
            loop,
            *parts,
            why=f"elements of {buffer.name} may pass from one iteration to another",
            hint="give parts that share it one stage, or let each iteration fill it before it reads it",
        )


def _made_anew(program: Program, loop: For, buffer: Buffer) -> bool:
    """Whether a buffer is used only in the loop, and every iteration writes it before reading it."""
    if buffer not in program.tree.allocs:
        return False
    inside = set(stmts(loop))
    if any(user not in inside for user in program.tree.users(buffer)):
        return False
    return is_private_to(program, loop, buffer)


def double_buffer(program: Program, handle: BlockRV) -> LoopRV:
    block = program.block(handle)
    what = f"cannot double buffer block {block.name!r}"
    users = [b for b in readers(program, written_by(block)) if b is not block]
    if not users:
        raise program.error(what, block, why="nothing reads its result")
    common = program.tree.common([block, *users])
    around = [common, *program.tree.ancestors(common)]
    loop = next((s for s in around if isinstance(s, For)), None)
    if loop is None or loop.kind != "serial":
        raise program.error(
            what,
            block,
            *users,
            why="no serial loop holds it and all its readers",
            hint="compute it at that loop, outside of the loops of threads",
        )
    _, parts = parts_of_body(loop.body)
    own = [i for i, p in enumerate(parts) if block in set(stmts(p))]
    known = loop.annotations.get(STAGE)
    stages = list(known) if known is not None and len(known) == len(parts) else [1] * len(parts)
    for i in own:
        stages[i] = 0
    for j in range(len(parts) - 1, -1, -1):
        for i in range(j):
            shared = set(buffers_written(parts[i])) & {*buffers_read(parts[j]), *buffers_written(parts[j])}
            if stages[j] == 0 and shared:
                stages[i] = 0
    software_pipeline(program, LoopRV(loop.var), stages, None)
    return LoopRV(loop.var)


__all__ = [
    "ORDER",
    "SPARE",
    "STAGE",
    "Pipelined",
    "check_pipeline",
    "double_buffer",
    "parts_of_body",
    "software_pipeline",
]
