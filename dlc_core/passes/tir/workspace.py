"""Large temporaries become parameters, so that the caller's arena holds them and kernels allocate nothing.

A temporary of a parallel loop becomes one with a part for each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from dlc_core.arith import Analyzer
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Load, Var, const, const_value, free_vars, load
from dlc_core.tir.functor import child_stmts, transform_stmt
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Stmt, Store

STACK_BYTES = 1 << 16
"""Temporaries up to this size may live on the stack when they are inside a loop."""

Loops = tuple[For, ...]


def hoist_workspace(func: PrimFunc) -> PrimFunc:
    """Large allocations as parameters after the outputs; the attribute `workspaces` counts them.

    Expects flat buffers.  Raises CodegenError where a size has no bound that is known before the program
    runs.
    """
    wanted = {buffer: loops for buffer, loops in allocations_in_loops(func.body) if not on_stack(buffer)}
    if not wanted:
        return func
    moved = {buffer: _moved(func, buffer, loops) for buffer, loops in wanted.items()}

    def expr(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in moved:
            whole, start = moved[e.buffer]
            return load(whole, (e.indices[0] + start,))
        return None

    def stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Alloc) and s.buffer in moved:
            return s.body
        if isinstance(s, Store) and s.buffer in moved:
            whole, start = moved[s.buffer]
            return Store(whole, (s.indices[0] + start,), s.value)
        return None

    body = transform_stmt(func.body, stmt_fn=stmt, expr_fn=expr)
    wholes = [whole for whole, _ in moved.values()]
    params: tuple[Buffer | Var, ...] = (*func.buffers, *wholes, *func.scalars)
    attrs = MappingProxyType({**func.attrs, "workspaces": len(moved)})
    return replace(func, params=params, body=body, attrs=attrs)


def on_stack(buffer: Buffer) -> bool:
    """Whether a temporary is small enough for the stack."""
    size = const_value(buffer.num_elements())
    return size is not None and size * buffer.dtype.itemsize <= STACK_BYTES


def allocations_in_loops(root: Stmt) -> list[tuple[Buffer, Loops]]:
    """Every allocated buffer and the loops around it, outer ones first."""
    found: list[tuple[Buffer, Loops]] = []
    work: list[tuple[Stmt, Loops]] = [(root, ())]
    while work:
        stmt, loops = work.pop()
        if isinstance(stmt, Alloc):
            found.append((stmt.buffer, loops))
        inside = (*loops, stmt) if isinstance(stmt, For) else loops
        work.extend((child, inside) for child in reversed(child_stmts(stmt)))
    return found


def size_bound(size: Expr, loops: Sequence[For], analyzer: Analyzer) -> Expr | None:
    """What a size never exceeds, in no terms of the loops; None where that is not known."""
    variables = {loop.var: (loop.begin, loop.extent) for loop in loops}
    if not any(v in variables for v in free_vars(size)):
        return size
    found = analyzer.bounds(size, variables)
    return None if found is None else found[1]


def _moved(func: PrimFunc, buffer: Buffer, loops: Loops) -> tuple[Buffer, Expr]:
    """The parameter that stands for a temporary, and where in it an iteration's part begins."""
    analyzer = Analyzer()
    for scalar in func.scalars:
        analyzer.declare_dim(scalar, low=0)
    parallel = [loop for loop in loops if loop.kind == "parallel"]
    size = size_bound(buffer.num_elements(), loops, analyzer)
    parts: Expr = const(1)
    number: Expr = const(0)
    for loop in parallel:
        parts = parts * loop.extent
        number = number * loop.extent + (loop.var - loop.begin)
    if size is None or not {*free_vars(size, parts)} <= {*func.scalars}:
        raise CodegenError(
            f"{func.name}: the size of {buffer!r} depends on the loops around it",
            hint="compute it outside of the loops, or in parts of a known size",
        )
    if not parallel and size is buffer.num_elements():
        return buffer, const(0)
    whole = Buffer(buffer.name, (analyzer.simplify(parts * size),), buffer.dtype, align=buffer.align)
    return whole, analyzer.simplify(number * size)


__all__ = ["STACK_BYTES", "allocations_in_loops", "hoist_workspace", "on_stack", "size_bound"]
