"""Matching of a block with the description of a tensor intrinsic, and the positions of the description's
buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    const,
    const_value,
    free_vars,
    loads_in,
    substitute,
)
from dlc_core.support.record import record
from dlc_core.tir.functor import stores_in, substitute_stmt
from dlc_core.tir.stmt import Block, If, IterVar, Let, Seq, Stmt, Store

Access = tuple[Buffer, tuple[Expr, ...], tuple[Expr, ...], str]
"""A described buffer, its described indices, the actual indices, and the position for messages."""

COMMUTES = frozenset({"add", "mul", "min", "max", "and", "or", "bitand", "bitor", "bitxor", "eq", "ne"})


class MismatchError(Exception):
    """The first difference: its position, the form in the description, and the form in the program."""


@record(frozen=True)
class Window:
    """A described buffer as a window on a buffer of the program.

    Element [i…] of the description is `buffer[starts + i…]`.  Dim d is dim `dims[d]` of the buffer, or None:
    a dim of one element may have no counterpart.
    """

    buffer: Buffer
    starts: tuple[Expr, ...]
    dims: tuple[int | None, ...]

    def indices_of(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The buffer's indices of an element of the window."""
        moved = dict(enumerate(self.starts))
        for dim, index in zip(self.dims, indices, strict=True):
            if dim is not None:
                moved[dim] = moved[dim] + index
        return tuple(moved[d] for d in range(len(self.starts)))

    def strides(self) -> tuple[Expr, ...]:
        """The strides of the window in elements; a dim without counterpart in the buffer has any stride."""
        steps = self.buffer.element_strides()
        return tuple(const(1) if dim is None else steps[dim] for dim in self.dims)


@record(frozen=True)
class Scattered:
    """A described buffer whose elements are no window of the program's buffer.

    Element [i…] is `buffer[indices]` with i… substituted for the variables `carriers`.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    carriers: tuple[Var | None, ...]

    def indices_of(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The buffer's indices of an element of the described buffer."""
        values = {v: i for v, i in zip(self.carriers, indices, strict=True) if v is not None}
        return tuple(substitute(index, values) for index in self.indices)


Location = Window | Scattered


@record(frozen=True)
class Match:
    """The positions of the described buffers, and the values of the described scalars."""

    windows: Mapping[Buffer, Location]
    scalars: Mapping[Var, Expr]


@dataclass
class _State:
    axes: dict[Var, Var]
    """Maps described axes to actual axes."""
    lets: dict[Var, Var]
    buffers: dict[Buffer, Buffer]
    dims: dict[Buffer, tuple[int, ...]]
    """For each described buffer, the dims of the actual buffer whose indices depend on axes."""
    scalars: dict[Var, Expr]
    accesses: list[Access]

    def copy(self) -> _State:
        return _State(
            dict(self.axes),
            dict(self.lets),
            dict(self.buffers),
            dict(self.dims),
            dict(self.scalars),
            list(self.accesses),
        )


class Matcher:
    """Compares the block of a description with a block of a program.

    `loose` are the axes inside of the program's block; other variables are constant while it runs.
    `analyzer` has the ranges of the variables around it.
    """

    def __init__(self, described: Block, block: Block, scalars: Sequence[Var], analyzer: Analyzer) -> None:
        self.described, self.block = _settled(described), _settled(block)
        self.scalars = set(scalars)
        self.analyzer = analyzer
        self.desc = {a.var: a for a in self.described.axes}
        self.actual = {a.var: a for a in self.block.axes}
        self.state = _State({}, {}, {}, {}, {}, [])

    def match(self) -> Match:
        """Return the match; raise MismatchError with the first difference."""
        self._count_axes()
        if (self.described.init is None) != (self.block.init is None) and self.described.init is not None:
            raise MismatchError("the description initialises its result, the block does not")
        if self.described.init is not None and self.block.init is not None:
            self._stmt(self.described.init, self.block.init, "init")
        self._stmt(self.described.body, self.block.body, "body")
        self._rest_of_axes()
        self._check_aliases()
        return Match(self._windows(), dict(self.state.scalars))

    def _check_aliases(self) -> None:
        for store in stores_in(self.described.body):
            written = self.state.buffers[store.buffer]
            for desc, actual in self.state.buffers.items():
                if actual is written and desc is not store.buffer:
                    raise MismatchError(
                        f"{store.buffer.name} and {desc.name} are described as different buffers, "
                        f"both are {actual.name}"
                    )

    def _count_axes(self) -> None:
        desc, actual = self._axes_text(self.desc), self._axes_text(self.actual)
        if sorted(desc) != sorted(actual):
            raise MismatchError(f"axes: described ({', '.join(desc)}), there ({', '.join(actual)})")

    @staticmethod
    def _axes_text(axes: Mapping[Var, IterVar]) -> list[str]:
        return [f"{axis.kind} {axis.dom.extent}" for axis in axes.values()]

    # Statements.

    def _stmt(self, desc: Stmt, actual: Stmt, path: str) -> None:
        if type(desc) is not type(actual):
            raise MismatchError(
                f"{path}: described a {type(desc).__name__}, there is a {type(actual).__name__}"
            )
        if isinstance(desc, Store) and isinstance(actual, Store):
            self._access(desc.buffer, desc.indices, actual.buffer, actual.indices, f"{path}: the store")
            self._expr(desc.value, actual.value, path)
        elif isinstance(desc, Seq) and isinstance(actual, Seq):
            if len(desc.stmts) != len(actual.stmts):
                raise MismatchError(
                    f"{path}: described {len(desc.stmts)} statements, there are {len(actual.stmts)}"
                )
            for number, (a, b) in enumerate(zip(desc.stmts, actual.stmts, strict=True)):
                self._stmt(a, b, f"{path}[{number}]")
        elif isinstance(desc, Let) and isinstance(actual, Let):
            self._expr(desc.value, actual.value, f"{path}: {desc.var.name}")
            self.state.lets[desc.var] = actual.var
            self._stmt(desc.body, actual.body, path)
        elif isinstance(desc, If) and isinstance(actual, If):
            if (desc.orelse is None) != (actual.orelse is None):
                raise MismatchError(f"{path}: one has an else, the other none")
            self._expr(desc.cond, actual.cond, f"{path}: the condition")
            self._stmt(desc.then, actual.then, f"{path}.then")
            if desc.orelse is not None and actual.orelse is not None:
                self._stmt(desc.orelse, actual.orelse, f"{path}.orelse")
        else:
            raise MismatchError(f"{path}: a {type(desc).__name__} is not compared")

    # Expressions.

    def _expr(self, desc: Expr, actual: Expr, path: str) -> None:
        def differ() -> MismatchError:
            return MismatchError(f"{path}: described {desc}, there is {actual}")

        if desc.dtype is not actual.dtype:
            raise MismatchError(
                f"{path}: described {desc} of {desc.dtype}, there is {actual} of {actual.dtype}"
            )
        if isinstance(desc, Load):
            if not isinstance(actual, Load):
                raise differ()
            self._access(desc.buffer, desc.indices, actual.buffer, actual.indices, f"{path}: {actual}")
            return
        if isinstance(desc, Var) and desc in self.scalars:
            moving = {*self.actual}
            if loads_in(actual) or not moving.isdisjoint(free_vars(actual)):
                raise differ()
            if not self.analyzer.prove_equal(self.state.scalars.setdefault(desc, actual), actual):
                raise differ()
            return
        if desc.dtype is INDEX and not loads_in(desc):
            self._index(desc, actual, path)
            return
        if type(desc) is not type(actual):
            raise differ()
        if isinstance(desc, Var):
            if self.state.lets.get(desc) is not actual:
                raise differ()
        elif isinstance(desc, Const):
            if desc is not actual:
                raise differ()
        elif desc.data != actual.data or len(desc.children) != len(actual.children):
            raise differ()
        else:
            self._operands(desc, actual, path)

    def _operands(self, desc: Expr, actual: Expr, path: str) -> None:
        pairs = list(zip(desc.children, actual.children, strict=True))
        swapped = list(zip(desc.children, reversed(actual.children), strict=True))
        swaps = isinstance(desc, Binary) and desc.op in COMMUTES
        before = self.state.copy()
        try:
            for a, b in pairs:
                self._expr(a, b, path)
        except MismatchError:
            if not swaps:
                raise
            straight, self.state = self.state, before
            try:
                for a, b in swapped:
                    self._expr(a, b, path)
            except MismatchError:
                self.state = straight
            else:
                return
            raise

    def _index(self, desc: Expr, actual: Expr, path: str) -> None:
        """Compare index arithmetic in values: equal after the axes matched so far are substituted."""
        if isinstance(desc, Var) and isinstance(actual, Var) and desc in self.desc and actual in self.actual:
            self._bind(desc, actual, path)
            return
        known = substitute(desc, dict(self.state.axes))
        if not self.analyzer.prove_equal(known, actual):
            raise MismatchError(f"{path}: described {desc}, there is {actual}")

    # Accesses.

    def _access(
        self,
        desc: Buffer,
        desc_indices: Sequence[Expr],
        actual: Buffer,
        actual_indices: Sequence[Expr],
        path: str,
    ) -> None:
        if desc.dtype is not actual.dtype or desc.scope != actual.scope:
            raise MismatchError(
                f"{path}: described {desc.name} of {desc.dtype} in {desc.scope}, "
                f"there is {actual.name} of {actual.dtype} in {actual.scope}"
            )
        if self.state.buffers.setdefault(desc, actual) is not actual:
            raise MismatchError(
                f"{path}: described {desc.name}, which is {self.state.buffers[desc].name}; "
                f"there is {actual.name}"
            )
        # An index may contain an axis without depending on it: (16 * o + i) // 48 with i below 16.
        actual_indices = [i if isinstance(i, Var) else self.analyzer.simplify(i) for i in actual_indices]
        wanted = [(i, index) for i, index in enumerate(desc_indices) if self._moves(index, self.desc)]
        there = [(i, index) for i, index in enumerate(actual_indices) if self._moves(index, self.actual)]
        if len(wanted) != len(there) and not self._same_axes(wanted, there):
            raise self._differ_at(desc, desc_indices, actual, actual_indices, path)
        dims = tuple(i for i, _ in there)
        if self.state.dims.setdefault(desc, dims) != dims:
            raise MismatchError(f"{path}: other dims of {actual.name} move than before")
        for (_, a), (_, b) in zip(wanted, there, strict=False):
            if len(wanted) != len(there):
                break
            part = self.analyzer.simplify(b - self._first(b, self.actual))
            if isinstance(a, Var) and isinstance(part, Var) and a in self.desc and part in self.actual:
                self._bind(a, part, path)
        self.state.accesses.append((desc, tuple(desc_indices), tuple(actual_indices), path))

    @staticmethod
    def _differ_at(
        desc: Buffer, desc_indices: Sequence[Expr], actual: Buffer, actual_indices: Sequence[Expr], path: str
    ) -> MismatchError:
        return MismatchError(
            f"{path}: described {desc.name}[{', '.join(map(str, desc_indices))}], "
            f"there is {actual.name}[{', '.join(map(str, actual_indices))}]"
        )

    def _same_axes(self, wanted: Sequence[tuple[int, Expr]], there: Sequence[tuple[int, Expr]]) -> bool:
        """Whether both index lists depend on the same axes of those matched so far, and on at least one."""
        mine = {self.state.axes[v] for _, e in wanted for v in free_vars(e) if v in self.state.axes}
        other = {v for _, e in there for v in free_vars(e)} & set(self.state.axes.values())
        return bool(mine) and mine == other

    def _moves(self, index: Expr, axes: Mapping[Var, IterVar]) -> bool:
        return any(v in axes for v in free_vars(index))

    def _first(self, index: Expr, axes: Mapping[Var, IterVar]) -> Expr:
        return substitute(index, {v: axis.dom.begin for v, axis in axes.items()})

    def _bind(self, desc: Var, actual: Var, path: str) -> None:
        known = self.state.axes.get(desc)
        if known is None and actual in self.state.axes.values():
            other = next(a for a, b in self.state.axes.items() if b is actual)
            raise MismatchError(
                f"{path}: described {desc.name}, there is {actual.name}, which is {other.name}"
            )
        if known is not None and known is not actual:
            raise MismatchError(
                f"{path}: described {desc.name}, which is {known.name}; there is {actual.name}"
            )
        a, b = self.desc[desc], self.actual[actual]
        if a.kind != b.kind or const_value(a.dom.extent) != const_value(b.dom.extent):
            raise MismatchError(
                f"{path}: axis {desc.name} is described as {a.kind} of {a.dom.extent}, "
                f"{actual.name} is {b.kind} of {b.dom.extent}"
            )
        self.state.axes[desc] = actual

    def _rest_of_axes(self) -> None:
        """Match the remaining axes in order: no index is such an axis alone."""
        bound = set(self.state.axes.values())
        left = [actual for actual in self.actual if actual not in bound]
        for desc in self.desc:
            if desc not in self.state.axes:
                self._bind(desc, left.pop(0), "axes")

    def _windows(self) -> dict[Buffer, Location]:
        shifts: dict[Var, Expr] = {}
        for var, axis in self.desc.items():
            own = self.state.axes[var]
            shifts[var] = own - self.actual[own].dom.begin + axis.dom.begin
        found: dict[Buffer, Location] = {}
        for access in self.state.accesses:
            desc, desc_indices, actual_indices, path = access
            location = self._window(access, shifts) or self._scattered(access)
            if location is None:
                raise self._differ_at(desc, desc_indices, self.state.buffers[desc], actual_indices, path)
            self._check_same(found.setdefault(desc, location), location, path)
        return found

    def _check_same(self, before: Location, here: Location, path: str) -> None:
        """Check that all accesses to a described buffer agree on its position."""
        name = here.buffer.name
        if isinstance(before, Window) and isinstance(here, Window):
            if not all(map(self.analyzer.prove_equal, before.starts, here.starts)):
                raise MismatchError(f"{path}: another window of {name} than before")
            if before.dims != here.dims:
                raise MismatchError(f"{path}: other dims of {name} move than before")
        elif before != here:
            raise MismatchError(f"{path}: another part of {name} than before")

    def _window(self, access: Access, shifts: Mapping[Var, Expr]) -> Window | None:
        """The window of an access; None if a dim of the described buffer is no dim of the actual one."""
        desc, desc_indices, actual_indices, path = access
        if len(self.state.dims[desc]) != sum(self._moves(index, self.desc) for index in desc_indices):
            return None
        dims = iter(self.state.dims[desc])
        at: list[int | None] = []
        rest = list(actual_indices)
        for index in desc_indices:
            if self._moves(index, self.desc):
                dim = next(dims)
                at.append(dim)
                rest[dim] = self.analyzer.simplify(actual_indices[dim] - substitute(index, shifts))
            elif const_value(index) == 0:
                at.append(None)
            else:
                raise MismatchError(f"{path}: the index {index} of {desc.name} stays in place, and is not 0")
        if any(v in self.actual for e in rest for v in free_vars(e)):
            return None
        return Window(self.state.buffers[desc], tuple(rest), tuple(at))

    def _scattered(self, access: Access) -> Scattered | None:
        """The position of a described buffer with a dim that the program's buffer does not have.

        In each dim one axis must carry the index, and the other axes must not contribute; else None.
        """
        desc, desc_indices, actual_indices, _ = access
        origin = {v: a.dom.begin for v, a in self.desc.items()}
        carriers: list[Var | None] = []
        for index in desc_indices:
            own = [v for v in free_vars(index) if v in self.desc]
            alone = (v for v in own if self.analyzer.prove_equal(_but(index, v, origin), v))
            carrier = next(alone, None)
            if own and carrier is None:
                return None
            carriers.append(None if carrier is None else self.state.axes[carrier])
        mapped = {w: h for w, h in self.state.axes.items() if h in self.actual}
        values: dict[Var, Expr] = {v: axis.dom.begin for v, axis in self.actual.items()}
        for carrier, index in zip(carriers, desc_indices, strict=True):
            if carrier is not None:
                values[carrier] = substitute(index, mapped)
        kept = {v: a.dom.begin for v, a in self.actual.items() if v not in carriers}
        if not all(self.analyzer.prove_equal(e, substitute(e, values)) for e in actual_indices):
            return None
        indices = tuple(substitute(e, kept) for e in actual_indices)
        return Scattered(self.state.buffers[desc], indices, tuple(carriers))


def _but(index: Expr, var: Var, values: Mapping[Var, Expr]) -> Expr:
    """An index with values substituted for all variables but one."""
    return substitute(index, {v: e for v, e in values.items() if v is not var})


def _settled(block: Block) -> Block:
    """The block without its axes of extent 1."""
    single: dict[Var, Expr] = {a.var: a.dom.begin for a in block.axes if const_value(a.dom.extent) == 1}
    return replace(
        block,
        axes=tuple(a for a in block.axes if a.var not in single),
        values=tuple(v for a, v in zip(block.axes, block.values, strict=True) if a.var not in single),
        body=substitute_stmt(block.body, single),
        init=None if block.init is None else substitute_stmt(block.init, single),
    )


__all__ = ["Location", "Match", "Matcher", "MismatchError", "Scattered", "Window"]
