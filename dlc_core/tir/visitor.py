"""A visitor with one method for each kind of statement; the base class of code writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from dlc_core.diag import CodegenError
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, Seq, Stmt, Store, View, While

_METHODS: Mapping[type[Stmt], str] = {
    Store: "visit_store",
    For: "visit_for",
    If: "visit_if",
    Alloc: "visit_alloc",
    Eval: "visit_eval",
    While: "visit_while",
}
"""The method for each class of statements; sequences, values and windows are handled by the loop itself."""


class StmtVisitor(ABC):
    """A writer of programs without blocks. Its methods visit nested statements by `stmt`."""

    def stmt(self, stmt: Stmt) -> None:
        """Hand a statement to the method of its kind, the parts of a sequence one by one.

        Raises CodegenError for blocks.  The windows of a whole model and the values of a long program without
        loops, which may be thousands, one inside the other, take no stack.
        """
        while isinstance(stmt, (Let, View)):
            stmt = self.visit_let(stmt) if isinstance(stmt, Let) else self.visit_view(stmt)
        if isinstance(stmt, Seq):
            for part in stmt.stmts:
                self.stmt(part)
            return
        method = _METHODS.get(type(stmt))
        if method is None:
            raise CodegenError(
                f"{type(stmt).__name__} reached code generation",
                hint="lower blocks to loops first (pass lower_blocks)",
            )
        getattr(self, method)(stmt)

    @abstractmethod
    def visit_store(self, stmt: Store) -> None: ...

    @abstractmethod
    def visit_for(self, loop: For) -> None: ...

    @abstractmethod
    def visit_if(self, stmt: If) -> None: ...

    @abstractmethod
    def visit_let(self, stmt: Let) -> Stmt:
        """Define the variable, and return the body, which `stmt` visits next."""

    @abstractmethod
    def visit_alloc(self, stmt: Alloc) -> None: ...

    @abstractmethod
    def visit_view(self, stmt: View) -> Stmt:
        """Define the view, and return the body, which `stmt` visits next."""

    @abstractmethod
    def visit_eval(self, stmt: Eval) -> None: ...

    @abstractmethod
    def visit_while(self, stmt: While) -> None: ...


__all__ = ["StmtVisitor"]
