"""Limits of a target that a scheduled kernel must keep, checked before anything is compiled or measured.

Primitives check that a schedule computes the same. A legal schedule may still be one that no compile or run
should be spent on: it does not fit a memory, takes minutes to compile, or starts threads for nothing. The
limits are wide. They refuse what cannot be good on any machine of the description; what is merely slow is
left to the cost model.

Accesses of loops need no limit: the compiler proves that they are inside their buffers, or checks them at run
time. Regions that are passed to intrinsics are proved here, because the compiler refuses them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const_value, free_vars, loads_in
from dlc_core.passes.tir.bounds import prove_regions
from dlc_core.passes.tir.launchable import check_launches
from dlc_core.passes.tir.software_pipeline import inject_software_pipelines
from dlc_core.passes.tir.workspace import allocations_in_loops, on_stack, size_bound
from dlc_core.target.description import Description
from dlc_core.tir.functor import exprs_of
from dlc_core.tir.scopes import bytes_of, in_main_memory, oversized
from dlc_core.tir.stmt import Alloc, Block, Eval, For, PrimFunc, Stmt, Store

MAX_UNROLLED = 1 << 12
"""The copies of statements that unrolled loops may make; more take minutes to compile."""
MAX_VECTOR = 64
"""The vector registers that one value of a vectorised loop may take: code generators split it into as many
instructions."""
SPILLS = 4
"""The multiple of the registers of a machine that temporaries in registers may take. Somewhat more than fit
may pay, because a spill costs little beside a long loop; so many more never do."""
MAX_STACK = 8
"""The temporaries on the stack at the same time may take so many times the limit of a single one."""
MAX_ARENA = 64 << 20
"""The bytes of temporaries in the arena that are always allowed."""
ARENA_RATIO = 16
"""The multiple of the bytes of the parameters that temporaries in the arena may take beyond that."""
MIN_GRAIN = 1 / 64
"""The least iterations of a parallel loop with its inner loops that is started several times, for each cycle
that a start takes."""


def check_limits(func: PrimFunc, description: Description) -> None:
    """Raise ScheduleError, with the number and the limit, if a scheduled kernel exceeds a limit of the
    description.
    """
    _check_unrolled(func)
    _check_vectors(func, description)
    _check_memory(func, description)
    _check_registers(func, description)
    _check_parallel(func, description)
    if description.thread_axes:
        check_launches(func, description)
    else:
        _check_threads(func)
        _check_regions(func)


def _check_unrolled(func: PrimFunc) -> None:
    copied = 0
    for stmt, loops in _with_loops(func.body):
        unrolled = [loop for loop in loops if loop.kind == "unrolled"]
        symbolic = next((loop for loop in unrolled if const_value(loop.extent) is None), None)
        if symbolic is not None:
            raise ScheduleError(
                f"the unrolled loop {symbolic.var.name} has the extent {symbolic.extent}",
                hint="only loops of constant extent are unrolled: split it by a constant first",
            )
        if unrolled and isinstance(stmt, (Store, Eval)):
            copied += _extent(unrolled)
    if copied > MAX_UNROLLED:
        raise ScheduleError(
            f"unrolled loops copy statements {copied} times", hint=f"at most {MAX_UNROLLED} copies"
        )


def _check_vectors(func: PrimFunc, machine: Description) -> None:
    if machine.thread_axes and not machine.vector_bits:
        return
    for stmt, loops in _with_loops(func.body):
        if not isinstance(stmt, Store) or not loops or loops[-1].kind != "vectorized":
            continue
        if not machine.vector_bits:
            raise ScheduleError(
                f"the loop {loops[-1].var.name} is vectorised, and the machine has no vectors"
            )
        lanes, bits = _extent(loops[-1:]), stmt.buffer.dtype.bits
        registers = -(-lanes * bits // machine.vector_bits)
        if registers > MAX_VECTOR:
            raise ScheduleError(
                f"the vectorised loop {loops[-1].var.name} of {lanes} iterations makes values of {registers} "
                "vector registers",
                hint=f"at most {MAX_VECTOR}; split it first",
            )


def _check_memory(func: PrimFunc, machine: Description) -> None:
    """Check the sizes of memories of their own, of the stack, and of temporaries in the arena."""
    # Pipelined buffers have a copy for each stage.
    staged = inject_software_pipelines(func) if machine.capacities else func
    for buffer, size, free in oversized(staged.body, machine.capacities):
        whole = machine.capacities[buffer.scope]
        used = f", of which {whole - free:,} are in use" if free < whole else ""
        raise ScheduleError(
            f"the buffer {buffer.name} of {size:,} bytes does not fit the memory {buffer.scope!r}",
            why=f"that has {whole:,} bytes{used}",
        )
    unknown = {b.scope for b, _ in allocations_in_loops(func.body)} - {*machine.scope_names}
    if unknown and not machine.thread_axes:  # launches are checked on their own
        raise ScheduleError(
            f"there is no memory {min(unknown)!r}", hint=f"there is {', '.join(machine.scope_names)}"
        )
    analyzer = Analyzer()
    for scalar in func.scalars:
        analyzer.declare_dim(scalar, low=0)
    arena = 0
    for buffer, loops in allocations_in_loops(func.body):
        if not in_main_memory(buffer) or on_stack(buffer, machine.stack_bytes):
            continue
        if size_bound(buffer.num_elements(), loops, analyzer) is None:
            raise ScheduleError(f"the size of the temporary {buffer.name} has no bound outside of its loops")
        slices = machine.workers if any(loop.kind == "parallel" for loop in loops) else 1
        arena += (bytes_of(buffer) or 0) * slices
    allowed = max(MAX_ARENA, ARENA_RATIO * sum(bytes_of(buffer) or 0 for buffer in func.buffers))
    if arena > allowed:
        raise ScheduleError(f"temporaries take {arena:,} bytes", hint=f"at most {allowed:,} bytes")
    taken = _stack_bytes(func.body, machine.stack_bytes)
    if taken > MAX_STACK * machine.stack_bytes:
        raise ScheduleError(
            f"temporaries on the stack take {taken:,} bytes at the same time",
            hint=f"at most {MAX_STACK * machine.stack_bytes:,} bytes",
        )


def _stack_bytes(root: Stmt, limit: int) -> int:
    """The most bytes of temporaries on the stack that exist at the same time."""
    most = 0
    work = [(root, 0)]
    while work:
        stmt, taken = work.pop()
        if isinstance(stmt, Alloc) and in_main_memory(stmt.buffer) and on_stack(stmt.buffer, limit):
            taken += bytes_of(stmt.buffer) or 0
            most = max(most, taken)
        work += [(child, taken) for child in stmt.child_stmts()]
    return most


def _check_registers(func: PrimFunc, machine: Description) -> None:
    count, size = machine.usable_registers, machine.vector_bits // 8
    if machine.thread_axes:
        count, size = machine.thread_registers, 4
    elif machine.short_code:
        count = machine.vector_registers
    if not count:
        return
    for buffer, elements in register_elements(func.body).items():
        itemsize = buffer.dtype.itemsize
        needed = -(-elements * itemsize // max(size, itemsize))
        if needed > SPILLS * count:
            raise ScheduleError(
                f"unrolled loops keep {buffer.name} in {needed} registers, of which "
                f"about {needed - count} are spilled",
                hint=f"at most {SPILLS * count}: {SPILLS} times the machine's {count}",
            )


def register_elements(root: Stmt) -> dict[Buffer, int]:
    """The elements of temporaries that code generators may keep in registers: inside of their allocation only
    unrolled and vectorised loops change the index of every access.
    """
    found: dict[Buffer, int] = {}
    in_memory: set[Buffer] = set()
    depths: dict[Buffer, int] = {}
    uses: dict[Var, frozenset[Var]] = {}
    for stmt, loops in _with_loops(root):
        match stmt:
            case Alloc():
                depths[stmt.buffer] = len(loops)
            case Block():
                for axis, value in zip(stmt.axes, stmt.values):
                    uses[axis.var] = _loop_vars([value], uses)
        accesses = [(e.buffer, e.indices) for e in loads_in(*exprs_of(stmt))]
        if isinstance(stmt, Store):
            accesses.append((stmt.buffer, stmt.indices))
        for buffer, indices in accesses:
            if buffer not in depths or not in_main_memory(buffer):
                continue
            used = _loop_vars(indices, uses)
            inside = [loop for loop in loops[depths[buffer] :] if loop.var in used]
            if all(loop.kind in ("unrolled", "vectorized") for loop in inside):
                found[buffer] = max(found.get(buffer, 1), _extent(inside))
            else:
                in_memory.add(buffer)
    return {buffer: count for buffer, count in found.items() if buffer not in in_memory}


def _loop_vars(exprs: list[Expr] | tuple[Expr, ...], uses: Mapping[Var, frozenset[Var]]) -> frozenset[Var]:
    """The loop variables that expressions depend on, through the axes of blocks."""
    empty: frozenset[Var] = frozenset()
    return empty.union(*(uses.get(var, frozenset({var})) for var in free_vars(*exprs)))


def _check_parallel(func: PrimFunc, machine: Description) -> None:
    if machine.workers < 2 or machine.thread_axes:
        return
    for stmt, loops in _with_loops(func.body):
        if not isinstance(stmt, For) or stmt.kind != "parallel" or any(s.kind == "parallel" for s in loops):
            continue
        starts, each = _extent(loops), _runs(stmt)
        least = MIN_GRAIN * machine.fork_cycles
        if starts > 1 and each < least:
            raise ScheduleError(
                f"the parallel loop {stmt.var.name} is started {starts} times for {each} iterations each, "
                f"at {machine.fork_cycles} cycles a start",
                hint=f"at least {least:.0f} iterations: make an outer loop parallel",
            )


def _runs(root: Stmt) -> int:
    """How often a loop's statements run, at least."""
    inner = [(_extent(loops), stmt) for stmt, loops in _with_loops(root) if isinstance(stmt, (Store, Eval))]
    return sum(count for count, _ in inner)


def _check_threads(func: PrimFunc) -> None:
    """Check that no loop is bound to threads of launches, which the machine does not have."""
    for stmt, _ in _with_loops(func.body):
        if isinstance(stmt, For) and stmt.kind == "thread":
            raise ScheduleError(
                f"the loop {stmt.var.name} is bound to {stmt.thread!r}, which the machine does not have"
            )


def _check_regions(func: PrimFunc) -> None:
    found = prove_regions(func)
    if found.open:
        raise ScheduleError(
            f"{len(found.open)} regions of {len(found.open) + found.proved} that blocks pass to an intrinsic "
            "are not proved to be inside their buffers",
            why=str(found.open[0]),
            hint="split loops so that only whole tiles are tensorized, or pad the buffer",
        )


def _with_loops(root: Stmt) -> Iterator[tuple[Stmt, tuple[For, ...]]]:
    """Every statement with the loops around it, outer before inner, in order of execution."""
    work: list[tuple[Stmt, tuple[For, ...]]] = [(root, ())]
    while work:
        stmt, loops = work.pop()
        yield stmt, loops
        inner = (*loops, stmt) if isinstance(stmt, For) else loops
        work += [(child, inner) for child in reversed(stmt.child_stmts())]


def _extent(loops: list[For] | tuple[For, ...]) -> int:
    """The iterations of nested loops; a symbolic extent counts as 1."""
    total = 1
    for loop in loops:
        total *= const_value(loop.extent) or 1
    return total


__all__ = ["MAX_UNROLLED", "check_limits", "register_elements"]
