"""Index bindings as splits and fusions of loops, and whether they visit every point exactly once.

A binding such as `(i*4 + j) // 2` is read as a sum of splits `(source // lower) % extent * scale`, where a
source is a loop variable or a fused sum of splits. Bindings are *independent* if no part of a loop is used
twice. They are *bijective* if also every loop is used completely: each combination of binding values then
comes from exactly one iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.poly import Mono, Poly, sub
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    ExprLike,
    Var,
    as_expr,
    ceildiv,
    const,
    free_vars,
    maximum,
    minimum,
    substitute,
)
from dlc_core.support.record import record


@record(frozen=True)
class IterMark:
    """The source of splits: a loop variable minus `begin`, or a fused sum. Its values are 0 … extent-1, each
    once.
    """

    source: Var | IterSum
    extent: Expr
    begin: Expr = field(default_factory=lambda: const(0))

    def to_expr(self) -> Expr:
        return self.source - self.begin if isinstance(self.source, Var) else self.source.to_expr()


@record(frozen=True)
class IterSplit:
    """(mark // lower) % extent * scale"""

    mark: IterMark
    lower: Expr
    extent: Expr
    scale: Expr
    topmost: bool
    """Whether the split takes all digits above `lower`, so that the remainder has no effect."""

    def to_expr(self) -> Expr:
        digit = self.mark.to_expr() // self.lower
        return (digit if self.topmost else digit % self.extent) * self.scale


@record(frozen=True)
class IterSum:
    """base + the sum of the splits, by decreasing scale."""

    splits: tuple[IterSplit, ...]
    base: Expr

    def to_expr(self) -> Expr:
        total: Expr = const(0)
        for split in self.splits:
            total = total + split.to_expr()
        return total + self.base


@record(frozen=True)
class IterMap:
    """Normalised bindings; `sums[k].to_expr()` equals the k-th binding on all iterations."""

    sums: tuple[IterSum, ...]
    injective: bool
    """Different iterations that satisfy the predicate have different combinations of values."""
    extents: tuple[Expr | None, ...]
    """For each binding, the extent if its values are exactly base … base+extent-1; else None."""

    @property
    def bijective(self) -> bool:
        """Whether each combination of values within the extents comes from exactly one iteration."""
        return self.injective and all(extent is not None for extent in self.extents)


def detect_iter_map(
    values: Sequence[ExprLike], ranges: Mapping[Var, ExprLike], predicate: ExprLike = True
) -> IterMap | None:
    """Express `values` as splits and fusions of the loops `ranges` (variable to extent, from zero).

    `predicate` is the condition under which the bindings are used: a conjunction of bounds of loops and of
    upper bounds of fused loops. It shrinks the extents. Other variables are symbolic dims, at least 1. None
    if a value is not a sum of splits, if a part of a loop is used twice, or if a bound in `predicate` is not
    supported.
    """
    extents = {var: as_expr(extent) for var, extent in ranges.items()}
    cond, exprs = as_expr(predicate), [as_expr(v) for v in values]
    begins = _lower_bounds(extents, cond)
    if begins:
        # A loop with a nonzero begin is replaced by a loop from zero.
        shifted_loops = {var: Var(var.name) for var in begins}
        up = {var: inner + begins[var] for var, inner in shifted_loops.items()}
        cond, exprs = substitute(cond, up), [substitute(e, up) for e in exprs]
        origins = {inner: (var, begins[var]) for var, inner in shifted_loops.items()}
        extents = {
            shifted_loops.get(var, var): extent - begins[var] if var in begins else extent
            for var, extent in extents.items()
        }
        return _Detector(extents, cond, origins).detect(exprs)
    return _Detector(extents, cond, {}).detect(exprs)


def _lower_bounds(extents: Mapping[Var, Expr], predicate: Expr) -> dict[Var, Expr]:
    """Loops for which the predicate gives a begin greater than zero, with that begin."""
    if isinstance(predicate, Const) or not isinstance(predicate, Binary):
        return {}
    analyzer = Analyzer()
    for dim in free_vars(*extents.values(), predicate):
        if dim not in extents and dim.dtype is not BOOL:
            analyzer.declare_dim(dim)
    for var, extent in extents.items():
        analyzer.bind(var, 0, extent)
    begins: dict[Var, Expr] = {}
    stack = [analyzer.simplify(predicate)]
    while stack:
        e = stack.pop()
        if isinstance(e, Binary) and e.op == "and":
            stack += (e.b, e.a)
            continue
        if not isinstance(e, Binary) or e.op != "lt" or not isinstance(e.b, Var) or e.b not in extents:
            continue
        if not any(v in extents for v in free_vars(e.a)) and analyzer.prove(e.a + 1 < extents[e.b]):
            begins[e.b] = analyzer.simplify(maximum(begins.get(e.b, const(0)), e.a + 1))
    return begins


class _NotAffineError(Exception):
    """The expression is no sum of splits."""


class _Detector:
    def __init__(
        self, extents: dict[Var, Expr], predicate: Expr, origins: Mapping[Var, tuple[Var, Expr]]
    ) -> None:
        self.az = Analyzer()
        self.origins = origins
        self.loops = extents
        for extent in (*extents.values(), predicate):
            for dim in free_vars(extent):
                if dim not in extents and dim.dtype is not BOOL:
                    self.az.declare_dim(dim)
        for var, extent in extents.items():
            self.az.bind(var, 0, extent)
        self.extents = dict(extents)
        self.bounded: list[tuple[Poly, Expr]] = []
        self.applied: set[int] = set()
        self.supported = self._read_predicate(self.az.simplify(predicate))
        self.marks: dict[Expr, IterMark] = {}
        bounds = {var: [v for v in free_vars(e) if v in extents] for var, e in extents.items()}
        # If a loop's range depends on another loop, their domain is not rectangular.
        self.ragged = {v for var, others in bounds.items() if others for v in (var, *others)}

    def _read_predicate(self, cond: Expr) -> bool:
        if isinstance(cond, Const):
            return bool(cond.value)
        if isinstance(cond, Binary) and cond.op == "and":
            return self._read_predicate(cond.a) and self._read_predicate(cond.b)
        if not isinstance(cond, Binary) or cond.op != "lt":
            return False
        left, right = cond.a, cond.b
        if self._is_fixed(left) or not self._is_fixed(right):
            return False
        if isinstance(left, Var):
            self.extents[left] = self.az.simplify(minimum(self.extents[left], right))
            self.az.bind(left, 0, self.extents[left])
        else:
            self.bounded.append((self.az._poly(left), right))
        return True

    def _is_fixed(self, e: Expr) -> bool:
        return not any(v in self.loops for v in free_vars(e))

    def detect(self, values: list[Expr]) -> IterMap | None:
        if not self.supported:
            return None
        try:
            sums = [self._sum(self.az._poly(v)) for v in values]
        except _NotAffineError:
            return None
        complete = self._uses_all_loops(sums)
        if complete is None:
            return None
        injective = complete and all(self._injective(total) for total in sums)
        # A bound that belongs to no fused sum restricts the values in an unsupported way.
        bounds_apply = len(self.applied) == len(self.bounded)
        return IterMap(
            tuple(sums),
            injective,
            tuple(self._compact_extent(total) if bounds_apply else None for total in sums),
        )

    # Decomposition of sums.

    def _sum(self, p: Poly) -> IterSum:
        base: Poly = {}
        parts: dict[Expr, Poly] = {}
        for m, c in p.items():
            varying = [atom for atom in m if not self._is_fixed(atom)]
            if not varying:
                base[m] = c
            elif len(varying) == 1:
                rest: Mono = tuple(atom for atom in m if atom is not varying[0])
                parts.setdefault(varying[0], {})[rest] = c
            else:
                raise _NotAffineError
        splits = [self._split(atom, self.az.emit(scale)) for atom, scale in parts.items()]
        total = IterSum(tuple(self._ordered(splits)), self.az.emit(base))
        varying_part = sub(p, base)
        for i, (bounded, limit) in enumerate(self.bounded):
            if bounded == varying_part:
                self.applied.add(i)
                mark = self._fused(IterSum(total.splits, const(0)), limit)
                return IterSum((IterSplit(mark, const(1), mark.extent, const(1), True),), total.base)
        return total

    def _split(self, atom: Expr, scale: Expr) -> IterSplit:
        if isinstance(atom, Var):
            source, begin = self.origins.get(atom, (atom, const(0)))
            mark = IterMark(source, self.extents[atom], begin)
            return IterSplit(mark, const(1), mark.extent, scale, True)
        if (
            not isinstance(atom, Binary)
            or atom.op not in ("floordiv", "floormod")
            or not self._is_fixed(atom.b)
        ):
            raise _NotAffineError
        if not self.az.prove(atom.b > 0):
            raise _NotAffineError
        inner = self._single(self._sum(self.az._poly(atom.a)))
        divisor = atom.b
        if self.az.prove(inner.extent <= divisor):
            if atom.op == "floormod":
                return IterSplit(inner.mark, inner.lower, inner.extent, scale, inner.topmost)
            raise _NotAffineError
        # The last group of a mark's top digit may be partial, because no digit is above it.
        ragged_top = inner.topmost and atom.op == "floordiv"
        if not ragged_top and not self.az.prove_equal(inner.extent % divisor, 0):
            raise _NotAffineError
        if atom.op == "floormod":
            return IterSplit(inner.mark, inner.lower, divisor, scale, False)
        lower = self.az.simplify(inner.lower * divisor)
        extent = self.az.simplify(ceildiv(inner.extent, divisor))
        return IterSplit(inner.mark, lower, extent, scale, inner.topmost)

    def _single(self, total: IterSum) -> IterSplit:
        """A sum as one split of scale 1. Several splits are fused."""
        if total.base is not const(0):
            raise _NotAffineError
        if len(total.splits) == 1 and total.splits[0].scale is const(1):
            return total.splits[0]
        extent = self._compact_extent(total)
        if extent is None:
            raise _NotAffineError
        mark = self._fused(total, extent)
        return IterSplit(mark, const(1), mark.extent, const(1), True)

    def _fused(self, total: IterSum, extent: Expr) -> IterMark:
        key = total.to_expr()
        found = self.marks.get(key)
        if found is None:
            full = self._compact_extent(total)
            if full is None:
                raise _NotAffineError
            found = self.marks[key] = IterMark(total, self.az.simplify(minimum(extent, full)))
        return found

    def _ordered(self, splits: list[IterSplit]) -> list[IterSplit]:
        """Sort by decreasing scale, as far as scales can be compared."""
        out: list[IterSplit] = []
        for split in splits:
            at = next(
                (i for i, other in enumerate(out) if self.az.prove(other.scale < split.scale)), len(out)
            )
            out.insert(at, split)
        return out

    def _compact_extent(self, total: IterSum) -> Expr | None:
        """n if the sum takes exactly the values base … base+n-1, each for one combination of its splits."""
        if self.ragged and not self.ragged.isdisjoint(free_vars(total.to_expr())):
            return None
        step: Expr = const(1)
        left = list(total.splits)
        while left:
            following = next((s for s in reversed(left) if self.az.prove_equal(s.scale, step)), None)
            if following is None:
                return None
            left.remove(following)
            step = self.az.simplify(step * following.extent)
        return step

    def _injective(self, total: IterSum) -> bool:
        """Whether each split's scale is at least the total range of all smaller splits."""
        reach: Expr = const(1)
        for split in reversed(total.splits):
            if not self.az.prove(split.scale >= reach):
                return False
            reach = self.az.simplify(reach + split.scale * (split.extent - 1))
        return True

    def _uses_all_loops(self, sums: list[IterSum]) -> bool | None:
        """Whether the splits use every loop completely; None if two of them overlap."""
        used: dict[IterMark, list[IterSplit]] = {}
        pending = [split for total in sums for split in total.splits]
        while pending:
            split = pending.pop()
            if split.mark not in used and isinstance(split.mark.source, IterSum):
                pending += split.mark.source.splits
            used.setdefault(split.mark, []).append(split)
        tiled = [self._is_tiled(mark, splits) for mark, splits in used.items()]
        if None in tiled:
            return None
        reached = {mark.source for mark in used}
        unused = (e for var, e in self.extents.items() if self.origins.get(var, (var,))[0] not in reached)
        return all(tiled) and all(self.az.prove(extent <= 1) for extent in unused)

    def _is_tiled(self, mark: IterMark, splits: list[IterSplit]) -> bool | None:
        """Whether the splits divide the source into digits without gaps; None if they overlap."""
        step: Expr = const(1)
        left = [s for s in splits if not self.az.prove(s.extent <= 1)]
        gaps = False
        while left:
            following = next((s for s in left if self.az.prove_equal(s.lower, step)), None)
            if following is None:
                gaps = True
                following = next((s for s in left if self._above(s, step, left)), None)
                if following is None:
                    return None
            left.remove(following)
            step = self.az.simplify(following.lower * following.extent)
        return not gaps and self.az.prove(step >= mark.extent)

    def _above(self, split: IterSplit, step: Expr, others: list[IterSplit]) -> bool:
        lowest = all(other is split or self.az.prove(split.lower <= other.lower) for other in others)
        return lowest and self.az.prove_equal(split.lower % step, 0)


__all__ = ["IterMap", "IterMark", "IterSplit", "IterSum", "detect_iter_map"]
