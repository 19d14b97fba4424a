"""Statements and functions of the tensor level.  With `ir/expr/grammar.py` this file is the whole grammar.

    Stmt = Seq(stmts)
         | For(var, begin, extent, kind, body, thread, annotations)
                                             var runs over [begin, begin + extent); kind in FOR_KINDS
         | While(cond, body)
         | If(cond, then, orelse?)
         | Let(var, value, body)
         | Store(buffer, indices, value)     one element, or a vector when the last index is a Ramp
         | Eval(call)                        an intrinsic called for its effect
         | Alloc(buffer, body)               fresh memory of the buffer's scope, alive in body, undefined
         | View(buffer, base, body)          `buffer` is a window on `base`, of any dtype: its offset, shape
                                             and strides address elements of its own from base's pointer
         | Block(...)                        a unit of computation that schedules move as a whole

    Block = (name, axes: IterVar*, values: Expr*, reads: Region*, writes: Region*, init: Stmt?, body: Stmt,
             predicate)
        A block declares its own iteration space: each axis is a fresh variable with a domain and a kind
        (spatial or reduce) bound to `values[i]`, an expression over the loops around it.  The body uses axes,
        not loops.
        `init` runs before the first reduction step of each spatial point.

    PrimFunc = (name, params: (Buffer | Var)*, body, attrs)
        Buffer parameters are passed as pointers, Var parameters by value.

Statements are immutable values compared by identity; `tir/functor.py` walks and rebuilds them.  The types of
the fields are the only declaration: `tir/grammar.py` derives walks, rebuilding and records from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any

from dlc_core.diag import Span, UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, const
from dlc_core.ir.text import Printable
from dlc_core.support.record import record
from dlc_core.tir.axes import IterVar as IterVar
from dlc_core.tir.axes import Range as Range
from dlc_core.tir.axes import Region as Region
from dlc_core.tir.grammar import BINDS, FIRST, Parts, identical
from dlc_core.tir.grammar import Stmt as Stmt

FOR_KINDS = frozenset({"serial", "parallel", "vectorized", "unrolled", "thread"})
"""Kinds of loops. "thread" binds the loop to the hardware axis `For.thread`."""

LANES = "lanes"
"""Annotation of a serial loop that is vectorised on cores with vectors."""

EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Seq(Stmt):
    stmts: tuple[Stmt, ...]

    def with_parts(self, children: Sequence[Stmt], parts: Parts) -> Stmt:
        return self if identical(children, self.stmts) else seq(*children)


@dataclass(frozen=True, eq=False)
class For(Stmt):
    var: Var
    begin: Expr
    extent: Expr
    body: Stmt
    kind: str = "serial"
    thread: str = ""
    annotations: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        if self.kind not in FOR_KINDS:
            raise UsageError(
                f"unknown loop kind {self.kind!r}", hint=f"known: {', '.join(sorted(FOR_KINDS))}"
            )


@record(frozen=True, eq=False)
class While(Stmt):
    cond: Expr
    body: Stmt


@record(frozen=True, eq=False)
class If(Stmt):
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@record(frozen=True, eq=False)
class Let(Stmt):
    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, eq=False)
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@record(frozen=True, eq=False)
class Eval(Stmt):
    value: Expr


@dataclass(frozen=True, eq=False)
class Alloc(Stmt):
    buffer: Annotated[Buffer, BINDS]
    body: Stmt


@record(frozen=True, eq=False)
class View(Stmt):
    buffer: Annotated[Buffer, BINDS]
    base: Buffer
    body: Stmt


@dataclass(frozen=True, eq=False)
class Block(Stmt):
    name: str
    axes: tuple[IterVar, ...]
    values: tuple[Expr, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Stmt
    init: Annotated[Stmt | None, FIRST] = None
    predicate: Expr = field(default_factory=lambda: const(True, BOOL))
    annotations: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, eq=False)
class PrimFunc(Printable):
    """A tensor program.  `attrs` holds target-independent facts; `spans` the model nodes it computes."""

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    spans: tuple[Span, ...] = ()

    def with_attrs(self, **attrs: Any) -> PrimFunc:
        """The program with more attributes."""
        return replace(self, attrs=MappingProxyType({**self.attrs, **attrs}))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer parameters."""
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def scalars(self) -> tuple[Var, ...]:
        """The by-value parameters, including symbolic dims."""
        return tuple(p for p in self.params if isinstance(p, Var))


def seq(*stmts: Stmt | None) -> Stmt:
    """A sequence without nested sequences and without None. A single statement is returned as it is."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def store(buffer: Buffer, indices: Sequence[ExprLike], value: ExprLike) -> Store:
    """A store. Checks the rank, and the value's dtype including lanes."""
    exprs = tuple(as_expr(i) for i in indices)
    if len(exprs) != buffer.ndim:
        raise UsageError(
            f"buffer {buffer.name} has {buffer.ndim} dims but is written with {len(exprs)} indices"
        )
    value = as_expr(value, None if isinstance(value, Expr) else buffer.dtype)
    if value.dtype.scalar is not buffer.dtype:
        raise UsageError(
            f"{value.dtype} stored to buffer {buffer.name} of {buffer.dtype}",
            hint="cast the value with .astype(...)",
        )
    return Store(buffer, exprs, value)


def loop(
    var: Var,
    extent: ExprLike,
    body: Stmt,
    kind: str = "serial",
    *,
    begin: ExprLike = 0,
    thread: str = "",
    annotations: Mapping[str, Any] = EMPTY,
) -> For:
    """A For loop; bounds may be Python numbers."""
    return For(var, as_expr(begin), as_expr(extent), body, kind, thread, annotations)
