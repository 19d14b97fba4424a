"""Effects of statements on memory: the buffers that they write, and whether a value is unchanged between
them.
"""

from __future__ import annotations

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Load, loads_in, post_order
from dlc_core.tir.functor import child_stmts, exprs_of, stmts_of
from dlc_core.tir.intrinsics import CONVERGENT, has_effect
from dlc_core.tir.stmt import Stmt, Store, View

NOTHING: frozenset[Buffer] = frozenset()


class Memory:
    """The accesses of one program. Buffers that share memory through views count as one.

    The facts about a statement are computed on first use and then kept.
    """

    def __init__(self, root: Stmt) -> None:
        self.base: dict[Buffer, Buffer] = {s.buffer: s.base for s in stmts_of(root, View)}
        self._written: dict[Stmt, frozenset[Buffer] | None] = {}
        self._effects: dict[Expr, tuple[frozenset[Buffer], bool]] = {}

    def alias(self, new: Buffer, old: Buffer) -> None:
        """Treat a buffer that replaces another one as that one."""
        self.base[new] = old

    def root(self, buffer: Buffer) -> Buffer:
        """Return the buffer that another one is a window on, or itself."""
        while buffer in self.base:
            buffer = self.base[buffer]
        return buffer

    def roots(self, *exprs: Expr) -> frozenset[Buffer]:
        """Return the buffers that expressions read, or whose address they take."""
        return frozenset(self.root(e.buffer) for e in loads_in(*exprs))

    def written(self, stmt: Stmt) -> frozenset[Buffer] | None:
        """Return the buffers that a statement may write.

        None if it synchronises with other threads: any buffer may change then.
        """
        if stmt in self._written:
            return self._written[stmt]
        total: frozenset[Buffer] | None = NOTHING
        if isinstance(stmt, Store):
            total = frozenset((self.root(stmt.buffer),))
        for e in exprs_of(stmt):
            buffers, synchronises = self.effects(e)
            total = None if synchronises or total is None else total | buffers
        for child in child_stmts(stmt):
            inner = self.written(child)
            total = None if inner is None or total is None else total | inner
        self._written[stmt] = total
        return total

    def effects(self, expr: Expr) -> tuple[frozenset[Buffer], bool]:
        """Return the buffers that calls in an expression may write, and whether it synchronises threads."""
        found = self._effects.get(expr)
        if found is None:
            buffers, synchronises = NOTHING, False
            hint = isinstance(expr, Call) and expr.name == "prefetch"
            for e in post_order(expr) if not hint and (isinstance(expr, Call) or loads_in(expr)) else ():
                if isinstance(e, Call) and e.name == "address_of":
                    buffers |= {self.root(a.buffer) for a in e.args if isinstance(a, Load)}
                synchronises = synchronises or (isinstance(e, Call) and e.name in CONVERGENT)
            found = self._effects[expr] = buffers, synchronises
        return found

    def preserves(self, stmt: Stmt, *exprs: Expr) -> bool:
        """Whether a statement cannot change memory that expressions read."""
        read = self.roots(*exprs)
        if not read:
            return True
        written = self.written(stmt)
        return written is not None and not (read & written)


def is_pure(expr: Expr) -> bool:
    """Whether an expression has no side effects."""
    return not any(has_effect(e) for e in post_order(expr))


__all__ = ["Memory", "is_pure"]
