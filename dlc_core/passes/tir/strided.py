"""Replace groups of strided vector accesses that together cover whole rows by contiguous accesses and
register shuffles.

The contiguous rows are loaded before the stores that use them, so their loads are not guarded by the
condition of an `if_then_else`. A guarded load is therefore not changed, unless its condition is a scalar.
Then the stores are written once for each outcome, under an `If`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Broadcast,
    Call,
    Expr,
    Load,
    Ramp,
    Var,
    const_value,
    load,
    loads_in,
    ramp,
    transform,
)
from dlc_core.passes.base import PassContext
from dlc_core.passes.heuristics import SHUFFLES
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.safety import is_safe
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, transform_each
from dlc_core.tir.intrinsics import vector_concat, vector_shuffle
from dlc_core.tir.stmt import If, Let, PrimFunc, Seq, Stmt, Store, seq


def group_strided(func: PrimFunc) -> PrimFunc:
    """Replace neighbouring strided loads and stores by contiguous ones."""
    body = transform_each(func.body, Seq, _StoreRun.rebuilt)
    return func if body is func.body else replace(func, body=body)


def _guarded_loads(value: Expr) -> tuple[set[Load], list[Expr]]:
    """Return the loads under an `if_then_else`, and the scalar conditions of these, outer ones first."""
    free: set[Expr] = set()
    scalars: dict[Expr, None] = {}
    work = [value]
    while work:
        e = work.pop()
        if e in free:
            continue
        free.add(e)
        if isinstance(e, Call) and e.name == "if_then_else":
            cond = _scalar_of(e.args[0])
            if cond is not None and loads_in(*e.args[1:]):
                scalars[cond] = None
            work.append(e.args[0])
        else:
            work += e.children
    return {e for e in loads_in(value) if e not in free}, list(scalars)


def _scalar_of(cond: Expr) -> Expr | None:
    """Return a lane-invariant condition as a scalar, if it can be evaluated unconditionally."""
    scalar = cond.value if isinstance(cond, Broadcast) else cond
    fixed = scalar.dtype.lanes == 1 and not loads_in(scalar)
    return scalar if fixed and is_safe(scalar, Analyzer()) else None


def _resolved(value: Expr, cond: Expr, holds: bool) -> Expr:
    """Simplify a value for one outcome of a scalar condition."""

    def visit(e: Expr) -> Expr | None:
        if isinstance(e, Call) and e.name == "if_then_else" and _scalar_of(e.args[0]) is cond:
            return e.args[1 if holds else 2]
        return None

    return transform(value, visit)


def _is_strided(index: Expr) -> bool:
    if not isinstance(index, Ramp):
        return False
    step, lanes = const_value(index.stride), index.lanes
    return isinstance(step, int) and step > 1 and lanes >= SHUFFLES.min_lanes and _is_power_of_two(lanes)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


@dataclass
class _Group:
    """Accesses to one buffer at constant distances; `members` are by distance from the first, in elements."""

    buffer: Buffer
    first: Ramp
    members: dict[int, int | Load]

    @property
    def step(self) -> int:
        step = const_value(self.first.stride)
        assert isinstance(step, int)
        return step

    def starts(self) -> list[tuple[int, int]]:
        """Return (begin, length) of each run of consecutive distances."""
        found = []
        numbers = enumerate(sorted(self.members))
        for _, run in groupby(numbers, key=lambda pair: pair[1] - pair[0]):
            distances = [distance for _, distance in run]
            found.append((distances[0], len(distances)))
        return found


class _StoreRun:
    """Consecutive stores that read no buffer which they write."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = list(stores)
        self.analyzer = Analyzer()
        self.lets: list[tuple[Var, Expr]] = []

    @staticmethod
    def rebuilt(block: Seq) -> Stmt | None:
        parts: list[Stmt] = []
        changed = False
        for plain, group in groupby(block.stmts, key=lambda s: isinstance(s, Store)):
            members = list(group)
            if plain and len(members) > 1:
                made = _StoreRun([s for s in members if isinstance(s, Store)]).by_cases(SHUFFLES.max_cases)
                changed = changed or made is not None
                parts += [made] if made is not None else members
            else:
                parts += members
        return seq(*parts) if changed else None

    def by_cases(self, most: int) -> Stmt | None:
        """Group the accesses separately for each outcome of the scalar conditions that guard strided loads.

        At most `most` outcomes are distinguished. None if nothing is grouped.
        """
        cond = self._condition() if most > 1 else None
        if cond is None:
            return self.grouped()
        sides = [
            _StoreRun([replace(s, value=_resolved(s.value, cond, holds)) for s in self.stores])
            for holds in (True, False)
        ]
        then, orelse = (side.by_cases(most // 2) for side in sides)
        if then is None and orelse is None:
            return self.grouped()
        return If(cond, then or seq(*sides[0].stores), orelse or seq(*sides[1].stores))

    def _condition(self) -> Expr | None:
        """Return a scalar condition that guards strided loads, an outermost one; None if there is none."""
        for store in self.stores:
            if not any(_is_strided(e.indices[-1]) for e in loads_in(store.value)):
                continue
            guarded, conditions = _guarded_loads(store.value)
            if any(_is_strided(e.indices[-1]) for e in guarded):
                return next(iter(conditions), None)
        return None

    def grouped(self) -> Stmt | None:
        """Return the stores with grouped accesses; None if there are no groups."""
        strided = [s for s in self.stores if _is_strided(s.indices[0])]
        loads = self._strided_loads()
        if not strided and not loads:
            return None
        written = {s.buffer for s in self.stores}
        if any(e.buffer in written for s in self.stores for e in loads_in(*exprs_of(s))):
            return None
        self._group_loads(loads)
        self._group_stores()
        if not self.lets:
            return None
        body: Stmt = seq(*self.stores)
        for var, value in reversed(self.lets):
            body = Let(var, value, body)
        return body

    def _name(self, value: Expr) -> Expr:
        """Bind a value that is used more than once to a name."""
        if isinstance(value, Var):
            return value
        var = Var("lanes", value.dtype)
        self.lets.append((var, value))
        return var

    def _groups(self, accesses: Iterable[tuple[Buffer, Ramp, int | Load]]) -> list[_Group]:
        groups: list[_Group] = []
        for buffer, index, key in accesses:
            for group in groups:
                first = group.first
                if group.buffer is not buffer or (first.lanes, first.stride) != (index.lanes, index.stride):
                    continue
                distance = const_value(self.analyzer.simplify(index.base - first.base))
                if isinstance(distance, int):
                    group.members.setdefault(distance, key)
                    break
            else:
                groups.append(_Group(buffer, index, {0: key}))
        return groups

    # Loads

    def _strided_loads(self) -> list[tuple[Buffer, Ramp, int | Load]]:
        found: dict[Load, None] = {}
        numbers: set[Load] = set()
        for store in self.stores:
            numbers.update(loads_in(*store.indices))
            strided: list[Load] = []
            for one in loads_in(store.value):
                numbers.update(loads_in(*one.indices))
                if len(one.indices) == 1 and _is_strided(one.indices[0]):
                    strided.append(one)
            if strided:
                guarded, _ = _guarded_loads(store.value)
                found.update((one, None) for one in strided if one not in guarded)
        # Loads in indices of other accesses are computed lane by lane.
        for one in numbers:
            found.pop(one, None)
        return [(e.buffer, e.indices[0], e) for e in found if isinstance(e.indices[0], Ramp)]

    def _group_loads(self, loads: list[tuple[Buffer, Ramp, int | Load]]) -> None:
        known: dict[Expr, Expr] = {}
        for group in self._groups(loads):
            for begin, length in group.starts():
                columns = self._deinterleaved(group, begin, length) or self._transposed(group, begin, length)
                for distance, value in columns.items():
                    key = group.members[distance]
                    assert isinstance(key, Load)
                    known[key] = value
        if known:
            self.stores = [replace(s, value=transform(s.value, known.get)) for s in self.stores]

    def _deinterleaved(self, group: _Group, begin: int, length: int) -> dict[int, Expr]:
        """Load contiguous rows, and deinterleave them by shuffles into `step` vectors of every `step`-th
        element.
        """
        step, lanes = group.step, group.first.lanes
        if length < step or step > SHUFFLES.max_stride:
            return {}
        found: dict[int, Expr] = {}
        for start in range(begin, begin + length - step + 1, step):
            base = group.first.base + start
            rows = [self._row(group.buffer, base + k * lanes, lanes) for k in range(step)]
            for k, value in enumerate(self._deinterleave(rows)):
                found[start + k] = value
        return found

    def _transposed(self, group: _Group, begin: int, length: int) -> dict[int, Expr]:
        """Load contiguous rows of a matrix, and transpose them to get its columns."""
        lanes, step = group.first.lanes, group.step
        found: dict[int, Expr] = {}
        end = begin + length
        while end - begin >= SHUFFLES.min_lanes:
            width = min(lanes, 1 << ((end - begin).bit_length() - 1))
            base = group.first.base + begin
            rows = [self._row(group.buffer, base + k * step, width) for k in range(lanes)]
            pieces = self._interleave(rows)
            per = lanes // width
            for k in range(width):
                parts = pieces[k * per : (k + 1) * per]
                found[begin + k] = parts[0] if per == 1 else self._name(vector_concat(*parts))
            begin += width
        return found

    def _row(self, buffer: Buffer, base: Expr, lanes: int) -> Expr:
        return self._name(load(buffer, (ramp(self.analyzer.simplify(base), 1, lanes),)))

    # Stores

    def _group_stores(self) -> None:
        accesses = [
            (s.buffer, s.indices[0], number)
            for number, s in enumerate(self.stores)
            if len(s.indices) == 1 and isinstance(s.indices[0], Ramp) and _is_strided(s.indices[0])
        ]
        replaced: dict[int, list[Stmt]] = {}
        for group in self._groups(accesses):
            step, lanes = group.step, group.first.lanes
            stores = [s for s in self.stores if s.buffer is group.buffer]
            if len(stores) != len(group.members) or step > SHUFFLES.max_stride:
                continue
            for begin, length in group.starts():
                for start in range(begin, begin + length - step + 1, step):
                    members = [group.members[start + k] for k in range(step)]
                    numbers = [n for n in members if isinstance(n, int)]
                    rows = self._interleave([self._name(self.stores[n].value) for n in numbers])
                    base = group.first.base + start
                    made: list[Stmt] = [
                        Store(group.buffer, (ramp(self.analyzer.simplify(base + k * lanes), 1, lanes),), row)
                        for k, row in enumerate(rows)
                    ]
                    replaced.update({n: [] for n in numbers})
                    replaced[max(numbers)] = made
        if replaced:
            parts = [replaced.get(n, [s]) for n, s in enumerate(self.stores)]
            self.stores = [s for part in parts for s in part if isinstance(s, Store)]

    # Lanes

    def _interleave(self, rows: list[Expr]) -> list[Expr]:
        """Interleave the lanes of rows: the first lane of each row, then the second, …, in equal vectors."""
        if len(rows) == 1:
            return rows
        lanes = rows[0].dtype.lanes
        if len(rows) % 2:
            places = [(n % len(rows), n // len(rows)) for n in range(len(rows) * lanes)]
            return [self._gathered(rows, places[k : k + lanes]) for k in range(0, len(places), lanes)]
        low = [place for k in range(lanes // 2) for place in (k, k + lanes)]
        high = [place + lanes // 2 for place in low]
        made: list[Expr] = []
        for a, b in zip(self._interleave(rows[::2]), self._interleave(rows[1::2]), strict=True):
            both = vector_concat(a, b)
            made += [self._name(vector_shuffle(both, part)) for part in (low, high)]
        return made

    def _deinterleave(self, rows: list[Expr]) -> list[Expr]:
        """Deinterleave lanes; the inverse of `_interleave`."""
        if len(rows) == 1:
            return rows
        lanes = rows[0].dtype.lanes
        if len(rows) % 2:
            places = [divmod(n, lanes) for n in range(len(rows) * lanes)]
            return [self._gathered(rows, places[k :: len(rows)]) for k in range(len(rows))]
        halves = []
        for first in (0, 1):
            pairs = zip(rows[::2], rows[1::2], strict=True)
            chosen = range(first, 2 * lanes, 2)
            halves.append([self._name(vector_shuffle(vector_concat(a, b), chosen)) for a, b in pairs])
        even, odd = (self._deinterleave(half) for half in halves)
        return [value for pair in zip(even, odd, strict=True) for value in pair]

    def _gathered(self, rows: Sequence[Expr], places: Sequence[tuple[int, int]]) -> Expr:
        """Return a vector of lanes of rows, by one shuffle for each row after the first that it takes from.

        `places` are the row and the lane of each lane of the result.
        """
        first, *others = sorted({row for row, _ in places})
        found, at = rows[first], [lane for _, lane in places]
        for number in others:
            own = [(row == number, row < number) for row, _ in places]
            chosen = [
                len(places) + lane if here else at[k] if before else k
                for k, ((here, before), (_, lane)) in enumerate(zip(own, places, strict=True))
            ]
            found = self._name(vector_shuffle(vector_concat(found, rows[number]), chosen))
            at = list(range(len(places)))
        return found


@record(frozen=True)
class GroupStrided(PrimFuncPass):
    """Replace neighbouring strided vector loads and stores that together cover whole rows by contiguous ones
    and shuffles, for targets whose `intrinsics` include `vector_shuffle`.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            B[T.ramp(0, 1, 4)] = A[T.ramp(0, 2, 4)]
            B[T.ramp(4, 1, 4)] = A[T.ramp(1, 2, 4)]

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            lanes = A[T.ramp(0, 1, 4)]
            lanes_1 = A[T.ramp(4, 1, 4)]
            lanes_2 = T.vector_shuffle(T.vector_concat(lanes, lanes_1), 0, 2, 4, 6)
            lanes_3 = T.vector_shuffle(T.vector_concat(lanes, lanes_1), 1, 3, 5, 7)
            B[T.ramp(0, 1, 4)] = lanes_2
            B[T.ramp(4, 1, 4)] = lanes_3
    """

    name: ClassVar[str] = "group_strided"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        target = context.target
        if target is not None and "vector_shuffle" not in target.describe().intrinsics:
            return func
        return group_strided(func)


__all__ = ["GroupStrided", "group_strided"]
