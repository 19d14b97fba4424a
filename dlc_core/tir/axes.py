"""Parts of blocks: ranges, regions of buffers, and axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DTypeLike
from dlc_core.ir.expr import Expr, Var, binary, const


@dataclass(frozen=True)
class Range:
    """[begin, begin + extent)."""

    begin: Expr
    extent: Expr

    def __str__(self) -> str:
        return f"{self.begin}:{self.begin + self.extent}"


@dataclass(frozen=True)
class Region:
    """A rectangular part of a buffer that a block reads or writes."""

    buffer: Buffer
    ranges: tuple[Range, ...]

    @staticmethod
    def point(buffer: Buffer, indices: Iterable[Expr]) -> Region:
        """The region of one element."""
        return Region(buffer, tuple(Range(index, const(1)) for index in indices))

    @staticmethod
    def whole(buffer: Buffer) -> Region:
        """The region of all elements."""
        return Region(buffer, tuple(Range(const(0, size.dtype), size) for size in buffer.shape))


@dataclass(frozen=True, eq=False)
class IterVar:
    """An axis of a block: "spatial" (different points write different elements) or "reduce" (points
    accumulate).

    In expressions it stands for its variable.
    """

    var: Var
    dom: Range
    kind: str = "spatial"

    def __post_init__(self) -> None:
        if self.kind not in ("spatial", "reduce"):
            raise UsageError(f"unknown axis kind {self.kind!r}", hint="spatial or reduce")

    def __add__(self, other: Any) -> Expr:
        return binary("add", self.var, other)

    def __radd__(self, other: Any) -> Expr:
        return binary("add", other, self.var)

    def __sub__(self, other: Any) -> Expr:
        return binary("sub", self.var, other)

    def __rsub__(self, other: Any) -> Expr:
        return binary("sub", other, self.var)

    def __mul__(self, other: Any) -> Expr:
        return binary("mul", self.var, other)

    def __rmul__(self, other: Any) -> Expr:
        return binary("mul", other, self.var)

    def __floordiv__(self, other: Any) -> Expr:
        return binary("floordiv", self.var, other)

    def __mod__(self, other: Any) -> Expr:
        return binary("floormod", self.var, other)

    def __neg__(self) -> Expr:
        return -self.var

    def __lt__(self, other: Any) -> Expr:
        return binary("lt", self.var, other)

    def __le__(self, other: Any) -> Expr:
        return binary("le", self.var, other)

    def __gt__(self, other: Any) -> Expr:
        return binary("gt", self.var, other)

    def __ge__(self, other: Any) -> Expr:
        return binary("ge", self.var, other)

    def astype(self, to: DTypeLike) -> Expr:
        return self.var.astype(to)
