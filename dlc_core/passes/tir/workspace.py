"""Turn large temporaries into parameters, so that they are in the caller's arena and kernels allocate
nothing.

A temporary inside a parallel loop needs a slice for each iteration. If there are many iterations, the loop is
split into parts, each of which runs its iterations in sequence. The number of parts then bounds the memory:

    for i in parallel(n):               for p in parallel(parts):
      alloc t …                           for i in range(n * p // parts, n * (p + 1) // parts):
                                            t is workspace[p * size:]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.decisions import Decision
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, ceildiv, const, const_value, free_vars
from dlc_core.passes.base import PassContext
from dlc_core.passes.heuristics import MEMORY
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.support.record import record
from dlc_core.target import Description
from dlc_core.tir.failures import parameters_of
from dlc_core.tir.functor import child_stmts, move_accesses, substitute_stmt
from dlc_core.tir.scopes import in_main_memory, oversized
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Stmt, View
from dlc_core.tir.threads import has_axes

STACK_BYTES = Description().stack_bytes
"""Temporaries up to this size may be on the stack, unless the target sets another limit."""
LINE = Description().cache_line
"""Slices begin at multiples of this, unless the target's cache lines have another size."""
LOCATION = Decision(
    "temporaries.memory",
    "Whether small temporaries of a kernel are on the stack, or all of them in the caller's arena.",
    ("stack", "arena"),
)
SLICES = Decision(
    "temporaries.slices",
    "How many parts, each with a slice of the arena, a parallel loop with large temporaries has.",
    ("several_per_thread", "one_per_thread", "one"),
)

Loops = tuple[For, ...]
Part = tuple[Var, int]
"""The index of a part of a loop, and the number of parts."""


def hoist_workspace(
    func: PrimFunc, parts: int | None = None, stack: int | None = None, line: int = LINE
) -> PrimFunc:
    """Turn allocations of more than `stack` bytes (default STACK_BYTES) into parameters after the outputs.
    The attribute `workspaces` counts them.

    An allocation inside a parallel loop gets at most `parts` slices (default: the heuristic
    `memory.max_slices`), which share no cache line of `line` bytes. Of nested parallel loops, only the
    outermost stays parallel.

    Allocations in memory scopes of their own, such as scratchpads, stay: only buffers in main memory move.
    Allocations inside thread loops stay too, because they are in the device's memory. The exception is an
    allocation of symbolic size in a launch of a single thread. Expects flat buffers. Raises CodegenError if a
    size has no bound that is known before the program runs.
    """
    hoisted = {
        buffer: loops
        for buffer, loops in allocations_in_loops(func.body)
        if in_main_memory(buffer)
        and not on_stack(buffer, stack)
        and (all(loop.kind != "thread" for loop in loops) or is_of_one_thread(buffer, loops))
    }
    if not hoisted:
        return func
    most = MEMORY.max_slices if parts is None else parts
    parts_of: dict[Var, Part] = {}
    inner: set[Var] = set()
    for loops in hoisted.values():
        parallel = [loop for loop in loops if loop.kind == "parallel"]
        for loop in parallel[:1]:
            parts_of.setdefault(loop.var, _part(loop, most))
        inner.update(loop.var for loop in parallel[1:])
    moved = {
        buffer: _workspace_of(
            func, buffer, loops, next((parts_of[s.var] for s in loops if s.var in parts_of), None), line
        )
        for buffer, loops in hoisted.items()
    }

    def moved_access(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        if buffer not in moved:
            return None
        workspace, start = moved[buffer]
        return workspace, (indices[0] + start,)

    def stmt(s: Stmt) -> Stmt | None:
        match s:
            case Alloc() if s.buffer in moved:
                return s.body
            case View() if s.base in moved:
                return _rebased(s, *moved[s.base])
            case For(kind="parallel") if s.var in parts_of:
                return _split_parallel(s, *parts_of[s.var])
            case For(kind="parallel") if s.var in inner:
                return replace(s, kind="serial")
        return None

    body = move_accesses(func.body, moved_access, stmt_fn=stmt)
    workspaces = [workspace for workspace, _ in moved.values()]
    buffers = func.buffers
    record = buffers[-1:] if parameters_of(func) is not None else ()  # the failure record stays last
    params: tuple[Buffer | Var, ...] = (
        *buffers[: len(buffers) - len(record)],
        *workspaces,
        *record,
        *func.scalars,
    )
    return replace(func, params=params, body=body).with_attrs(workspaces=len(moved))


def check_capacity(func: PrimFunc, capacities: Mapping[str, int]) -> None:
    """Check that the buffers in scopes of known capacity fit. `capacities` are bytes by scope.

    Raises CodegenError with the kernel, the buffer, its bytes and the capacity.
    """
    for buffer, size, free in oversized(func.body, capacities):
        whole = capacities[buffer.scope]
        rest = (
            ""
            if free == whole
            else f", of which other buffers that exist at the same time take {whole - free:,}"
        )
        raise CodegenError(
            f"{func.name}: buffer {buffer.name} of {size:,} bytes does not fit the scope {buffer.scope!r}",
            why=f"the scope has {whole:,} bytes{rest}",
            hint="use smaller tiles",
            spans=func.spans,
        )


def on_stack(buffer: Buffer, limit: int | None = None) -> bool:
    """Whether a temporary is small enough for the stack; `limit` in bytes (STACK_BYTES)."""
    size = const_value(buffer.num_elements())
    return size is not None and size * buffer.dtype.itemsize <= (STACK_BYTES if limit is None else limit)


def is_of_one_thread(buffer: Buffer, loops: Sequence[For]) -> bool:
    """Whether a temporary in a launch has a symbolic size, and only one thread uses it.

    The caller can then allocate it.
    """
    threads = (loop for loop in loops if loop.kind == "thread")
    return const_value(buffer.num_elements()) is None and all(const_value(t.extent) == 1 for t in threads)


def allocations_in_loops(root: Stmt) -> list[tuple[Buffer, Loops]]:
    """Return every allocated buffer with the loops around it, outer ones first."""
    found: list[tuple[Buffer, Loops]] = []
    work: list[tuple[Stmt, Loops]] = [(root, ())]
    while work:
        stmt, loops = work.pop()
        match stmt:
            case Alloc():
                found.append((stmt.buffer, loops))
            case For():
                loops = (*loops, stmt)
        work.extend((child, loops) for child in reversed(child_stmts(stmt)))
    return found


def size_bound(size: Expr, loops: Sequence[For], analyzer: Analyzer) -> Expr | None:
    """Return an upper bound of a size that does not depend on the loops; None if none is known."""
    variables = {loop.var: (loop.begin, loop.extent) for loop in loops}
    if not any(v in variables for v in free_vars(size)):
        return size
    found = analyzer.bounds(size, variables)
    return None if found is None else found[1]


def _rebased(view: View, workspace: Buffer, start: Expr) -> Stmt:
    """Rebase a view of a temporary to the parameter. A view's offset counts from the pointer."""
    old = view.buffer
    offset = old.offset + start * workspace.dtype.itemsize // old.dtype.itemsize
    new = Buffer(
        old.name, old.shape, old.dtype, strides=old.strides, scope=old.scope, offset=offset, align=old.align
    )
    return View(new, workspace, substitute_stmt(view.body, {}, {old: new}))


def _part(parallel: For, parts: int) -> Part:
    extent = const_value(parallel.extent)
    return Var(f"{parallel.var.name}_part"), parts if extent is None else max(1, min(parts, extent))


def _split_parallel(parallel: For, part: Var, count: int) -> Stmt:
    """Split a parallel loop into parallel parts of its range with a serial loop in each."""
    if const_value(parallel.extent) == count:
        body = substitute_stmt(parallel.body, {parallel.var: parallel.begin + part})
        return replace(parallel, var=part, begin=const(0), body=body)
    first, end = (parallel.extent * (part + k) // count for k in (0, 1))
    inner = replace(parallel, begin=parallel.begin + first, extent=end - first, kind="serial")
    return For(part, const(0), const(count), inner, "parallel", annotations=parallel.annotations)


def _workspace_of(
    func: PrimFunc, buffer: Buffer, loops: Loops, part: Part | None, line: int
) -> tuple[Buffer, Expr]:
    """Return the parameter that replaces a temporary, and the offset of a part's slice in it."""
    analyzer = Analyzer()
    for scalar in func.scalars:
        analyzer.declare_dim(scalar, low=0)
    size = size_bound(buffer.num_elements(), loops, analyzer)
    if size is None or not {*free_vars(size)} <= {*func.scalars}:
        raise CodegenError(
            f"{func.name}: the size of {buffer!r} depends on the loops around it",
            hint="compute it outside of the loops, or in parts of a known size",
        )
    if part is None:
        workspace = buffer if size is buffer.num_elements() else buffer.like(shape=(analyzer.simplify(size),))
        return workspace, const(0)
    number, count = part
    unit = max(1, line // buffer.dtype.itemsize)
    step = analyzer.simplify(ceildiv(size, unit) * unit)
    workspace = Buffer(buffer.name, (analyzer.simplify(step * count),), buffer.dtype, align=buffer.align)
    return workspace, number * step


@record(frozen=True)
class HoistWorkspace(PrimFuncPass):
    """Turn large temporaries into parameters.

    Before:

        @T.prim_func
        def f(A: T.Buffer((65536,), "float32"), B: T.Buffer((65536,), "float32")):
            t = T.alloc_buffer((65536,), "float32")
            for i in range(65536):
                t[i] = A[i]
            for i in range(65536):
                B[65535 - i] = t[i]

    After:

        @T.prim_func
        def f(A: T.Buffer((65536,), "float32"), B: T.Buffer((65536,), "float32"),
              t: T.Buffer((65536,), "float32")):
            T.func_attr({"workspaces": 1})
            for i in range(65536):
                t[i] = A[i]
            for i in range(65536):
                B[65535 - i] = t[i]
    """

    name: ClassVar[str] = "hoist_workspace"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if context.target is None:
            return hoist_workspace(func)
        machine = context.target.describe()
        check_capacity(func, machine.capacities)
        # Launches pass values in memory of their device, and never on the stack of the host.
        stack, parts = -1 if machine.thread_axes and has_axes(func.body) else machine.stack_bytes, 0
        temporaries = [(b, loops) for b, loops in allocations_in_loops(func.body) if in_main_memory(b)]
        if any(on_stack(buffer, stack) for buffer, _ in temporaries) and LOCATION.choose("stack") == "arena":
            stack = -1
        if any(not on_stack(buffer, stack) for buffer, _ in temporaries):
            per_thread = {"several_per_thread": MEMORY.slices_per_thread, "one_per_thread": 1}
            parts = per_thread.get(SLICES.choose("several_per_thread"), 0) * max(1, machine.cores)
        return hoist_workspace(func, max(1, parts), stack, machine.cache_line)


__all__ = [
    "STACK_BYTES",
    "HoistWorkspace",
    "allocations_in_loops",
    "check_capacity",
    "hoist_workspace",
    "is_of_one_thread",
    "on_stack",
    "size_bound",
]
