"""The result of a proof that accesses are inside their buffers."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr
from dlc_core.support.record import record
from dlc_core.tir.stmt import Stmt


@record(frozen=True, eq=False)
class Access:
    """An access without a proof: its statement, and the conditions of expressions around it."""

    stmt: Stmt
    verb: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    guards: tuple[tuple[Expr, bool], ...] = ()
    """Conditions of `if_then_else` around it, outer ones first, and whether they hold."""
    why: str = ""
    when: Expr | None = None
    """A condition on the program's sizes under which the access is in bounds, if known."""

    def __str__(self) -> str:
        at = f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"
        return self.why or f"{self.verb} {at} of {self.buffer!r}"


@dataclass
class Proof:
    """The result of a proof: accesses with and without a proof."""

    proved: int = 0
    open: list[Access] = field(default_factory=list)


__all__ = ["Access", "Proof"]
