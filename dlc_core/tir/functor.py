"""Walking and rebuilding statements. All walks are iterative, so 10,000 nested allocations do not overflow
the stack.

The expressions *of* a statement are those that it evaluates itself (bounds, indices, values, conditions, axis
domains and bindings, shapes of allocations), not those of nested statements. A block's `reads` and `writes`
are declarations and are not evaluated. Walks skip them unless `regions=True`; rebuilding always rewrites
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dlc_core.cancel import checkpoint
from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Call,
    Expr,
    ExprLike,
    Load,
    Var,
    as_expr,
    free_vars,
    load,
    post_order,
    substitute,
    transform,
)
from dlc_core.ir.expr import loads_in as loads_in
from dlc_core.tir.grammar import Parts
from dlc_core.tir.grammar import buffer_exprs as buffer_exprs
from dlc_core.tir.stmt import Alloc, Block, Eval, PrimFunc, Region, Stmt, Store

T = TypeVar("T")
S = TypeVar("S", bound=Stmt)
StmtFn = Callable[[Stmt], "Stmt | None"]
ExprFn = Callable[[Expr], "Expr | None"]


def child_stmts(stmt: Stmt) -> tuple[Stmt, ...]:
    """Directly nested statements in order of execution. A block's init comes first."""
    return stmt.child_stmts()


def region_exprs(regions: Sequence[Region]) -> tuple[Expr, ...]:
    return tuple(e for region in regions for r in region.ranges for e in (r.begin, r.extent))


def exprs_of(stmt: Stmt, *, regions: bool = False) -> tuple[Expr, ...]:
    """Expressions of the statement itself. A store's indices come before its value."""
    own = stmt.exprs()
    return (*own, *region_exprs(stmt.regions())) if regions else own


def bound_vars(stmt: Stmt) -> tuple[Var, ...]:
    """Variables that the statement itself binds."""
    return stmt.bound_vars()


def stmts(root: Stmt) -> Iterator[Stmt]:
    """Every statement, outer before inner, in order of execution."""
    work = [root]
    while work:
        stmt = work.pop()
        checkpoint()
        yield stmt
        children = stmt.child_stmts()
        if children:
            work += children[::-1]


def stmts_of(root: Stmt, kind: type[S]) -> Iterator[S]:
    """Every statement of one class, outer before inner, in order of execution."""
    return (stmt for stmt in stmts(root) if isinstance(stmt, kind))


def walk(
    root: Stmt,
    on_stmt: Callable[[Stmt], object] | None = None,
    on_expr: Callable[[Expr], object] | None = None,
    *,
    after: Callable[[Stmt], object] | None = None,
    regions: bool = False,
) -> None:
    """Visit statements and expressions.

    `on_stmt` is called for each statement before its parts. If it returns False (not None), the parts are
    skipped. `on_expr` is called for every distinct subexpression of each statement's own expressions,
    operands first. `after` is called for each statement after its parts.
    """
    work: list[tuple[Stmt, bool]] = [(root, False)]
    while work:
        stmt, leaving = work.pop()
        if leaving:
            if after is not None:
                after(stmt)
            continue
        if after is not None:
            work.append((stmt, True))
        if on_stmt is not None and on_stmt(stmt) is False:
            continue
        if on_expr is not None:
            for expr in post_order(*exprs_of(stmt, regions=regions)):
                on_expr(expr)
        work.extend((child, False) for child in reversed(child_stmts(stmt)))


def transform_stmt(root: Stmt, *, stmt_fn: StmtFn | None = None, expr_fn: ExprFn | None = None) -> Stmt:
    """Rebuild bottom-up. Unchanged parts keep their identity.

    `expr_fn` is applied to every expression (including regions) by `ir.expr.transform`, with one memo for all
    of them. `stmt_fn` gets each statement with rebuilt parts. It returns the replacement, or None to keep the
    statement; `Seq(())` removes it. Descriptions of buffers are not rewritten, because their accesses would
    have to change too. `substitute_stmt` rewrites them.
    """
    memo: dict[Expr, Expr] = {}
    on_expr = _same if expr_fn is None else lambda e: transform(e, expr_fn, memo)
    return _rebuild(root, Parts(on_expr, _same, _same), stmt_fn)


def transform_each(root: Stmt, kind: type[S], change: Callable[[S], Stmt | None]) -> Stmt:
    """`transform_stmt` for the statements of one class. `change` returns the replacement, or None."""
    return transform_stmt(root, stmt_fn=lambda stmt: change(stmt) if isinstance(stmt, kind) else None)


def move_accesses(
    root: Stmt,
    redirect: Callable[[Buffer, tuple[Expr, ...]], tuple[Buffer, Sequence[Expr]] | None],
    *,
    region: Callable[[Region], Region] | None = None,
    stmt_fn: StmtFn | None = None,
) -> Stmt:
    """Redirect loads and stores to other elements.

    `redirect` maps the buffer and the indices of an access; None keeps the access. `region` maps the regions
    that blocks declare; without it, only the loads in regions change. `stmt_fn` is applied to all other
    statements: all but stores, and but blocks if `region` is given.
    """

    def on_expr(expr: Expr) -> Expr | None:
        new = redirect(expr.buffer, expr.indices) if isinstance(expr, Load) else None
        return None if new is None else load(*new)

    def on_stmt(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Store():
                new = redirect(stmt.buffer, stmt.indices)
                return None if new is None else Store(new[0], tuple(new[1]), stmt.value)
            case Block() if region is not None:
                return replace(
                    stmt, reads=tuple(map(region, stmt.reads)), writes=tuple(map(region, stmt.writes))
                )
        return None if stmt_fn is None else stmt_fn(stmt)

    return transform_stmt(root, stmt_fn=on_stmt, expr_fn=on_expr)


def substitute_stmt(
    root: Stmt, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None
) -> Stmt:
    """Replace variables and buffers everywhere: in expressions, loads, stores, regions, allocations and
    views.

    A buffer that is allocated inside gets a fresh copy if its description mentions a replaced variable. A
    variable that is bound inside is replaced at its binder too, if its new value is a variable.
    """
    fresh = dict(buffers or {})
    for stmt in stmts(root):
        for buffer in stmt.bound_buffers():
            if buffer not in fresh and (moved := substitute_buffer(buffer, values)) is not buffer:
                fresh[buffer] = moved
    return _replace(root, values, fresh)


def substitute_buffer(buffer: Buffer, values: Mapping[Var, Expr]) -> Buffer:
    """The buffer with variables of its description replaced. It is a fresh buffer, or the same one if nothing
    changes.
    """
    if all(substitute(e, values) is e for e in buffer_exprs(buffer)):
        return buffer
    return copy_buffer(buffer, lambda e: substitute(e, values))


def copy_buffer(
    buffer: Buffer, on_expr: Callable[[Expr], Expr] | None = None, name: str | None = None
) -> Buffer:
    """A fresh buffer with the same description. `on_expr` maps the description's expressions."""
    sub = on_expr or _same
    return Buffer(
        name or buffer.name,
        [sub(d) for d in buffer.shape],
        buffer.dtype,
        strides=None if buffer.strides is None else [sub(s) for s in buffer.strides],
        scope=buffer.scope,
        offset=sub(buffer.offset),
        align=buffer.align,
    )


def rename_bound(root: Stmt) -> Stmt:
    """A copy in which every bound variable and every allocated or viewed buffer is fresh."""
    names: dict[Var, Expr] = {}
    for stmt in stmts(root):
        names.update((var, Var(var.name, var.dtype)) for var in bound_vars(stmt))
    fresh = {buffer: copy_buffer(buffer, lambda e: substitute(e, names)) for buffer in bound_buffers(root)}
    return _replace(root, names, fresh)


def copy_func(func: PrimFunc, name: str | None = None) -> PrimFunc:
    """A copy of the program with fresh parameters, variables and buffers."""
    names: dict[Var, Expr] = {var: Var(var.name, var.dtype, var.bounds) for var in func.scalars}
    buffers: dict[Buffer, Buffer] = {}
    for buffer in func.buffers:
        moved = substitute_buffer(buffer, names)
        buffers[buffer] = copy_buffer(buffer) if moved is buffer else moved
    params = tuple(buffers[p] if isinstance(p, Buffer) else _as_var(names[p]) for p in func.params)
    body = rename_bound(substitute_stmt(func.body, names, buffers))
    return replace(func, name=name or func.name, params=params, body=body)


def replace_scalars(func: PrimFunc, others: Mapping[Var, Var]) -> PrimFunc:
    """The program with some by-value parameters replaced by other variables."""
    buffers = {b: substitute_buffer(b, others) for b in func.buffers}
    params = tuple(buffers[p] if isinstance(p, Buffer) else others.get(p, p) for p in func.params)
    return replace(func, params=params, body=substitute_stmt(func.body, others, buffers))


def specialize(func: PrimFunc, values: Mapping[Var, ExprLike]) -> PrimFunc:
    """The program with known values of some by-value parameters, which are no longer parameters.

    Raises UsageError if a key is not a by-value parameter.
    """
    known: dict[Var, Expr] = {}
    for var, value in values.items():
        if var not in func.scalars:
            raise UsageError(f"{var.name} is not a by-value parameter of {func.name}")
        known[var] = as_expr(value, None if isinstance(value, Expr) else var.dtype)
    buffers = {b: substitute_buffer(b, known) for b in func.buffers}
    params = tuple(buffers[p] if isinstance(p, Buffer) else p for p in func.params if p not in known)
    return replace(func, params=params, body=substitute_stmt(func.body, known, buffers))


def stores_in(root: Stmt) -> list[Store]:
    return list(stmts_of(root, Store))


def block_list(root: Stmt) -> list[Block]:
    """All blocks, outer before inner, in order of execution."""
    return list(stmts_of(root, Block))


def buffers_read(root: Stmt) -> list[Buffer]:
    """Buffers that are loaded from, or whose address is taken, in the order of first use."""
    return list(dict.fromkeys(e.buffer for stmt in stmts(root) for e in loads_in(*exprs_of(stmt))))


def buffers_written(root: Stmt) -> list[Buffer]:
    """Buffers that are stored to, or whose address is taken, in the order of first use.

    An address does not count if it is taken in a block that declares only reads of the buffer, by a prefetch,
    or as the source of a tensor copy.
    """
    found: dict[Buffer, None] = {}
    work: list[tuple[Stmt, frozenset[Buffer]]] = [(root, frozenset())]
    while work:
        stmt, only_read = work.pop()
        exprs = exprs_of(stmt)
        match stmt:
            case Store():
                found[stmt.buffer] = None
            case Block():
                written = {r.buffer for r in stmt.writes}
                only_read = frozenset(r.buffer for r in stmt.reads if r.buffer not in written)
            case Eval(value=Call(name="prefetch")):
                exprs = ()
            case Eval(value=Call(name="bulk_copy", args=args)):
                exprs = args[:1]
        for expr in post_order(*exprs) if loads_in(*exprs) else ():
            if isinstance(expr, Call) and expr.name == "address_of":
                taken = (arg.buffer for arg in expr.args if isinstance(arg, Load))
                found.update((buffer, None) for buffer in taken if buffer not in only_read)
        work.extend((child, only_read) for child in reversed(child_stmts(stmt)))
    return list(found)


def allocations(root: Stmt) -> list[Buffer]:
    """Buffers allocated inside, outer before inner."""
    return [stmt.buffer for stmt in stmts_of(root, Alloc)]


def bound_buffers(root: Stmt) -> list[Buffer]:
    """Buffers allocated or viewed inside, outer before inner."""
    return [buffer for stmt in stmts(root) for buffer in stmt.bound_buffers()]


def free_buffers(root: Stmt) -> list[Buffer]:
    """Buffers used (loaded, stored, viewed, in a region) but not bound inside, in the order of first use."""
    bound: set[Buffer] = set()
    used: dict[Buffer, None] = {}
    for stmt in stmts(root):
        bound.update(stmt.bound_buffers())
        used.update((region.buffer, None) for region in stmt.regions())
        used.update((e.buffer, None) for e in loads_in(*stmt.exprs()))
        used.update(dict.fromkeys(stmt.accessed_buffers()))
    return [buffer for buffer in used if buffer not in bound]


def free_vars_stmt(root: Stmt) -> list[Var]:
    """Variables used but not bound inside, in the order of first use. Those in descriptions of free buffers
    come last.
    """
    bound: set[Var] = set()
    used: dict[Var, None] = {}
    for stmt in stmts(root):
        bound.update(bound_vars(stmt))
        used.update(dict.fromkeys(free_vars(*exprs_of(stmt, regions=True))))
    for buffer in free_buffers(root):
        used.update(dict.fromkeys(free_vars(*buffer_exprs(buffer))))
    return [var for var in used if var not in bound]


def _same(value: T) -> T:
    return value


def _as_var(expr: Expr) -> Var:
    assert isinstance(expr, Var)
    return expr


def _replace(root: Stmt, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer]) -> Stmt:
    def binder(var: Var) -> Var:
        new = values.get(var)
        return new if isinstance(new, Var) else var

    memo: dict[Expr, Expr] = {}
    parts = Parts(lambda e: substitute(e, values, buffers, memo), lambda b: buffers.get(b, b), binder)
    return _rebuild(root, parts, None)


def _rebuild(root: Stmt, parts: Parts, stmt_fn: StmtFn | None) -> Stmt:
    done: list[Stmt] = []
    work: list[tuple[Stmt, bool]] = [(root, False)]
    while work:
        stmt, expanded = work.pop()
        checkpoint()
        children = stmt.child_stmts()
        if not expanded and children:
            work.append((stmt, True))
            work.extend((child, False) for child in reversed(children))
            continue
        first = len(done) - len(children)
        rebuilt = stmt.with_parts(done[first:], parts)
        del done[first:]
        new = stmt_fn(rebuilt) if stmt_fn is not None else None
        done.append(rebuilt if new is None else new)
    return done[0]


def with_children(stmt: Stmt, children: Sequence[Stmt]) -> Stmt:
    """The statement with other nested statements, in the order of `child_stmts`. It is the same statement if
    nothing changes.
    """
    return stmt.with_parts(children, _KEEP)


_KEEP = Parts(_same, _same, _same)
