"""A visitor with one method for each kind of statement; the base class of code writers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dlc_core.cancel import checkpoint
from dlc_core.diag import CodegenError
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, Seq, Stmt, Store, View, While


class StmtVisitor(ABC):
    """A writer of programs without blocks. Its methods visit nested statements by `stmt`."""

    def stmt(self, stmt: Stmt) -> None:
        """Dispatch a statement to the method of its kind. The parts of a sequence are dispatched one by one.

        Raises CodegenError for blocks. Nested views and lets do not recurse, because a whole model's views,
        or the values of a long straight-line program, may be nested thousands deep.
        """
        while True:
            checkpoint()
            match stmt:
                case Let():
                    stmt = self.visit_let(stmt)
                case View():
                    stmt = self.visit_view(stmt)
                case _:
                    break
        match stmt:
            case Seq():
                for part in stmt.stmts:
                    self.stmt(part)
            case Store():
                self.visit_store(stmt)
            case For():
                self.visit_for(stmt)
            case If():
                self.visit_if(stmt)
            case Alloc():
                self.visit_alloc(stmt)
            case Eval():
                self.visit_eval(stmt)
            case While():
                self.visit_while(stmt)
            case _:
                raise CodegenError(
                    f"{type(stmt).__name__} reached code generation",
                    hint="lower blocks to loops first (pass lower_blocks)",
                )

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
