"""Unrolled loops to their iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlc_core.diag import CodegenError
from dlc_core.ir.expr import Expr, Var, const_value, post_order
from dlc_core.tir.functor import bound_vars, rename_bound, stmts, substitute_stmt, transform_stmt
from dlc_core.tir.stmt import Alloc, Eval, For, PrimFunc, Seq, Stmt, Store, View, seq


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Every loop of kind "unrolled" as one copy of its body for each iteration; its extent must be
    constant."""
    return replace(func, body=_Unroll().rebuild(func.body))


class _Unroll:
    """Nests of unrolled loops around stores are written out at once, sharing what does not differ."""

    def rebuild(self, root: Stmt) -> Stmt:
        nests = {s for s in stmts(root) if _is_nest(s)}
        inside = {s for nest in nests for s in stmts(nest) if s is not nest}

        def visit(stmt: Stmt) -> Stmt | None:
            if not isinstance(stmt, For) or stmt.kind != "unrolled" or stmt in inside:
                return None
            return _Nest(stmt).written_out() if stmt in nests else _one_by_one(stmt)

        return transform_stmt(root, stmt_fn=visit)


def _is_nest(stmt: Stmt) -> bool:
    """Unrolled loops around nothing but stores and calls."""
    if not isinstance(stmt, For) or stmt.kind != "unrolled":
        return False
    return all(
        isinstance(s, (Store, Eval, Seq)) or (isinstance(s, For) and s.kind == "unrolled")
        for s in stmts(stmt)
    )


def _count(loop: For) -> int:
    count = const_value(loop.extent)
    if count is None:
        raise CodegenError(
            f"loop {loop.var.name!r} of extent {loop.extent} cannot be unrolled",
            hint="split it by a constant first",
        )
    return count


def _one_by_one(loop: For) -> Stmt:
    binds = any(bound_vars(s) or isinstance(s, (Alloc, View)) for s in stmts(loop.body))
    copies = []
    for step in range(_count(loop)):
        body = substitute_stmt(loop.body, {loop.var: loop.begin + step})
        copies.append(rename_bound(body) if binds and step else body)
    return seq(*copies)


class _Nest:
    """Expressions are rebuilt once for each combination of the loop variables that they mention."""

    def __init__(self, root: For) -> None:
        self.root = root
        self.loops = {s.var for s in stmts(root) if isinstance(s, For)}
        self.depends: dict[Expr, tuple[Var, ...]] = {}
        self.orders: dict[Expr, list[Expr]] = {}
        self.made: dict[tuple[Expr, ...], Expr] = {}

    def written_out(self) -> Stmt:
        out: list[Stmt] = []
        self._write(self.root, {}, out)
        return seq(*out)

    def _write(self, stmt: Stmt, values: Mapping[Var, Expr], out: list[Stmt]) -> None:
        if isinstance(stmt, Store):
            indices = tuple(self._at(i, values) for i in stmt.indices)
            out.append(Store(stmt.buffer, indices, self._at(stmt.value, values)))
        elif isinstance(stmt, Eval):
            out.append(Eval(self._at(stmt.value, values)))
        elif isinstance(stmt, Seq):
            for part in stmt.stmts:
                self._write(part, values, out)
        else:
            assert isinstance(stmt, For)
            begin = self._at(stmt.begin, values)
            for step in range(_count(stmt)):
                self._write(stmt.body, {**values, stmt.var: begin + step}, out)

    def _order(self, root: Expr) -> Sequence[Expr]:
        """Subexpressions that mention loop variables, operands first."""
        found = self.orders.get(root)
        if found is None:
            found = []
            for e in post_order(root):
                if e not in self.depends:
                    if isinstance(e, Var):
                        self.depends[e] = (e,) if e in self.loops else ()
                    else:
                        used = dict.fromkeys(v for c in e.children for v in self.depends[c])
                        self.depends[e] = tuple(used)
                if self.depends[e]:
                    found.append(e)
            self.orders[root] = found
        return found

    def _at(self, root: Expr, values: Mapping[Var, Expr]) -> Expr:
        here: dict[Expr, Expr] = {}
        for e in self._order(root):
            if isinstance(e, Var):
                here[e] = values[e]
                continue
            key = (e, *(values[v] for v in self.depends[e]))
            new = self.made.get(key)
            if new is None:
                new = self.made[key] = e.rebuild([here.get(c, c) for c in e.children])
            here[e] = new
        return here.get(root, root)
