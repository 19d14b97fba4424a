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

    def place(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
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

    def place(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The buffer's indices of an element of the described buffer."""
        values = {v: i for v, i in zip(self.carriers, indices, strict=True) if v is not None}
        return tuple(substitute(index, values) for index in self.indices)


Place = Window | Scattered


@record(frozen=True)
class Match:
    """The positions of the described buffers, and the values of the described scalars."""

    windows: Mapping[Buffer, Place]
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
        self.want = {a.var: a for a in self.described.axes}
        self.have = {a.var: a for a in self.block.axes}
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
            for want, have in self.state.buffers.items():
                if have is written and want is not store.buffer:
                    raise MismatchError(
                        f"{store.buffer.name} and {want.name} are described as different buffers, "
                        f"both are {have.name}"
                    )

    def _count_axes(self) -> None:
        want, have = self._axes_text(self.want), self._axes_text(self.have)
        if sorted(want) != sorted(have):
            raise MismatchError(f"axes: described ({', '.join(want)}), there ({', '.join(have)})")

    @staticmethod
    def _axes_text(axes: Mapping[Var, IterVar]) -> list[str]:
        return [f"{axis.kind} {axis.dom.extent}" for axis in axes.values()]

    # Statements.

    def _stmt(self, want: Stmt, have: Stmt, path: str) -> None:
        if type(want) is not type(have):
            raise MismatchError(
                f"{path}: described a {type(want).__name__}, there is a {type(have).__name__}"
            )
        if isinstance(want, Store) and isinstance(have, Store):
            self._access(want.buffer, want.indices, have.buffer, have.indices, f"{path}: the store")
            self._expr(want.value, have.value, path)
        elif isinstance(want, Seq) and isinstance(have, Seq):
            if len(want.stmts) != len(have.stmts):
                raise MismatchError(
                    f"{path}: described {len(want.stmts)} statements, there are {len(have.stmts)}"
                )
            for number, (a, b) in enumerate(zip(want.stmts, have.stmts, strict=True)):
                self._stmt(a, b, f"{path}[{number}]")
        elif isinstance(want, Let) and isinstance(have, Let):
            self._expr(want.value, have.value, f"{path}: {want.var.name}")
            self.state.lets[want.var] = have.var
            self._stmt(want.body, have.body, path)
        elif isinstance(want, If) and isinstance(have, If):
            if (want.orelse is None) != (have.orelse is None):
                raise MismatchError(f"{path}: one has an else, the other none")
            self._expr(want.cond, have.cond, f"{path}: the condition")
            self._stmt(want.then, have.then, f"{path}.then")
            if want.orelse is not None and have.orelse is not None:
                self._stmt(want.orelse, have.orelse, f"{path}.orelse")
        else:
            raise MismatchError(f"{path}: a {type(want).__name__} is not compared")

    # Expressions.

    def _expr(self, want: Expr, have: Expr, path: str) -> None:
        def differ() -> MismatchError:
            return MismatchError(f"{path}: described {want}, there is {have}")

        if want.dtype is not have.dtype:
            raise MismatchError(f"{path}: described {want} of {want.dtype}, there is {have} of {have.dtype}")
        if isinstance(want, Load):
            if not isinstance(have, Load):
                raise differ()
            self._access(want.buffer, want.indices, have.buffer, have.indices, f"{path}: {have}")
            return
        if isinstance(want, Var) and want in self.scalars:
            moving = {*self.have}
            if loads_in(have) or not moving.isdisjoint(free_vars(have)):
                raise differ()
            if not self.analyzer.prove_equal(self.state.scalars.setdefault(want, have), have):
                raise differ()
            return
        if want.dtype is INDEX and not loads_in(want):
            self._index(want, have, path)
            return
        if type(want) is not type(have):
            raise differ()
        if isinstance(want, Var):
            if self.state.lets.get(want) is not have:
                raise differ()
        elif isinstance(want, Const):
            if want is not have:
                raise differ()
        elif want.data != have.data or len(want.children) != len(have.children):
            raise differ()
        else:
            self._operands(want, have, path)

    def _operands(self, want: Expr, have: Expr, path: str) -> None:
        pairs = list(zip(want.children, have.children, strict=True))
        swapped = list(zip(want.children, reversed(have.children), strict=True))
        swaps = isinstance(want, Binary) and want.op in COMMUTES
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

    def _index(self, want: Expr, have: Expr, path: str) -> None:
        """Compare index arithmetic in values: equal after the axes matched so far are substituted."""
        if isinstance(want, Var) and isinstance(have, Var) and want in self.want and have in self.have:
            self._bind(want, have, path)
            return
        known = substitute(want, dict(self.state.axes))
        if not self.analyzer.prove_equal(known, have):
            raise MismatchError(f"{path}: described {want}, there is {have}")

    # Accesses.

    def _access(
        self, want: Buffer, asked: Sequence[Expr], have: Buffer, given: Sequence[Expr], path: str
    ) -> None:
        if want.dtype is not have.dtype or want.scope != have.scope:
            raise MismatchError(
                f"{path}: described {want.name} of {want.dtype} in {want.scope}, "
                f"there is {have.name} of {have.dtype} in {have.scope}"
            )
        if self.state.buffers.setdefault(want, have) is not have:
            raise MismatchError(
                f"{path}: described {want.name}, which is {self.state.buffers[want].name}; "
                f"there is {have.name}"
            )
        # An index may contain an axis without depending on it: (16 * o + i) // 48 with i below 16.
        given = [i if isinstance(i, Var) else self.analyzer.simplify(i) for i in given]
        wanted = [(i, index) for i, index in enumerate(asked) if self._moves(index, self.want)]
        there = [(i, index) for i, index in enumerate(given) if self._moves(index, self.have)]
        if len(wanted) != len(there) and not self._same_axes(wanted, there):
            raise self._elsewhere(want, asked, have, given, path)
        dims = tuple(i for i, _ in there)
        if self.state.dims.setdefault(want, dims) != dims:
            raise MismatchError(f"{path}: other dims of {have.name} move than before")
        for (_, a), (_, b) in zip(wanted, there, strict=False):
            if len(wanted) != len(there):
                break
            part = self.analyzer.simplify(b - self._first(b, self.have))
            if isinstance(a, Var) and isinstance(part, Var) and a in self.want and part in self.have:
                self._bind(a, part, path)
        self.state.accesses.append((want, tuple(asked), tuple(given), path))

    @staticmethod
    def _elsewhere(
        want: Buffer, asked: Sequence[Expr], have: Buffer, given: Sequence[Expr], path: str
    ) -> MismatchError:
        return MismatchError(
            f"{path}: described {want.name}[{', '.join(map(str, asked))}], "
            f"there is {have.name}[{', '.join(map(str, given))}]"
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

    def _bind(self, want: Var, have: Var, path: str) -> None:
        known = self.state.axes.get(want)
        if known is None and have in self.state.axes.values():
            other = next(a for a, b in self.state.axes.items() if b is have)
            raise MismatchError(f"{path}: described {want.name}, there is {have.name}, which is {other.name}")
        if known is not None and known is not have:
            raise MismatchError(f"{path}: described {want.name}, which is {known.name}; there is {have.name}")
        a, b = self.want[want], self.have[have]
        if a.kind != b.kind or const_value(a.dom.extent) != const_value(b.dom.extent):
            raise MismatchError(
                f"{path}: axis {want.name} is described as {a.kind} of {a.dom.extent}, "
                f"{have.name} is {b.kind} of {b.dom.extent}"
            )
        self.state.axes[want] = have

    def _rest_of_axes(self) -> None:
        """Match the remaining axes in order: no index is such an axis alone."""
        bound = set(self.state.axes.values())
        left = [have for have in self.have if have not in bound]
        for want in self.want:
            if want not in self.state.axes:
                self._bind(want, left.pop(0), "axes")

    def _windows(self) -> dict[Buffer, Place]:
        shifts: dict[Var, Expr] = {}
        for var, axis in self.want.items():
            own = self.state.axes[var]
            shifts[var] = own - self.have[own].dom.begin + axis.dom.begin
        found: dict[Buffer, Place] = {}
        for access in self.state.accesses:
            want, asked, given, path = access
            place = self._window(access, shifts) or self._scattered(access)
            if place is None:
                raise self._elsewhere(want, asked, self.state.buffers[want], given, path)
            self._check_same(found.setdefault(want, place), place, path)
        return found

    def _check_same(self, before: Place, here: Place, path: str) -> None:
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
        want, asked, given, path = access
        if len(self.state.dims[want]) != sum(self._moves(index, self.want) for index in asked):
            return None
        dims = iter(self.state.dims[want])
        at: list[int | None] = []
        rest = list(given)
        for index in asked:
            if self._moves(index, self.want):
                dim = next(dims)
                at.append(dim)
                rest[dim] = self.analyzer.simplify(given[dim] - substitute(index, shifts))
            elif const_value(index) == 0:
                at.append(None)
            else:
                raise MismatchError(f"{path}: the index {index} of {want.name} stays in place, and is not 0")
        if any(v in self.have for e in rest for v in free_vars(e)):
            return None
        return Window(self.state.buffers[want], tuple(rest), tuple(at))

    def _scattered(self, access: Access) -> Scattered | None:
        """The position of a described buffer with a dim that the program's buffer does not have.

        In each dim one axis must carry the index, and the other axes must not contribute; else None.
        """
        want, asked, given, _ = access
        origin = {v: a.dom.begin for v, a in self.want.items()}
        carriers: list[Var | None] = []
        for index in asked:
            own = [v for v in free_vars(index) if v in self.want]
            alone = (v for v in own if self.analyzer.prove_equal(_but(index, v, origin), v))
            carrier = next(alone, None)
            if own and carrier is None:
                return None
            carriers.append(None if carrier is None else self.state.axes[carrier])
        mapped = {w: h for w, h in self.state.axes.items() if h in self.have}
        values: dict[Var, Expr] = {v: axis.dom.begin for v, axis in self.have.items()}
        for carrier, index in zip(carriers, asked, strict=True):
            if carrier is not None:
                values[carrier] = substitute(index, mapped)
        kept = {v: a.dom.begin for v, a in self.have.items() if v not in carriers}
        if not all(self.analyzer.prove_equal(e, substitute(e, values)) for e in given):
            return None
        return Scattered(self.state.buffers[want], tuple(substitute(e, kept) for e in given), tuple(carriers))


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


__all__ = ["Match", "Matcher", "MismatchError", "Place", "Scattered", "Window"]
