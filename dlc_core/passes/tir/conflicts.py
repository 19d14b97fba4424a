"""Dependence analysis between threads: which accesses of different threads may conflict.

Two accesses do not conflict for a set of thread axes if it is proved that equal elements imply equal threads.
The proof reads the indices of some dims as sums of axes with constant factors; for quotients and remainders
it compares the dividends. Accesses without a proof count as a conflict.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Call,
    Expr,
    Var,
    conjuncts,
    const_value,
    free_vars,
    loads_in,
    post_order,
    substitute,
)
from dlc_core.schedule.dependence import TRUE
from dlc_core.schedule.regions import iter_map
from dlc_core.support.record import record
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.stmt import Alloc, Block, For, If, Let, Stmt, Store, View, While

NO_BINDINGS: Mapping[Var, Expr] = MappingProxyType({})
NO_VIEWS: Mapping[Buffer, Buffer] = MappingProxyType({})


@record(frozen=True, eq=False)
class ThreadAccess:
    """One access. Indices and conditions are over loop variables; `loops` are those in the visited part."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    loops: tuple[For, ...]
    conds: tuple[Expr, ...]
    stmt: Stmt


def accesses_of(
    root: Stmt,
    loops: tuple[For, ...] = (),
    conds: tuple[Expr, ...] = (),
    env: Mapping[Var, Expr] = NO_BINDINGS,
    bases: Mapping[Buffer, Buffer] = NO_VIEWS,
) -> Iterator[ThreadAccess]:
    """Yield every access inside a statement. An access through a view counts as an access to the whole
    viewed buffer."""
    memo: dict[Expr, Expr] = {}

    def resolved(expr: Expr) -> Expr:
        return substitute(expr, env, memo=memo)

    if isinstance(root, Block):
        env = {**env, **{a.var: resolved(v) for a, v in zip(root.axes, root.values, strict=True)}}
        memo = {}
        conds = (*conds, *map(resolved, conjuncts(root.predicate)))
    elif isinstance(root, Let):
        inner = {**env, root.var: resolved(root.value)}
    elif isinstance(root, View):
        bases = {**bases, root.buffer: bases.get(root.base, root.base)}

    def access(buffer: Buffer, indices: Sequence[Expr], writes: bool) -> ThreadAccess:
        base = bases.get(buffer)
        if base is not None:
            return ThreadAccess(base, tuple(Var("anywhere") for _ in base.shape), writes, loops, conds, root)
        return ThreadAccess(buffer, tuple(map(resolved, indices)), writes, loops, conds, root)

    if not isinstance(root, (Alloc, View)):
        addresses = {a for e in post_order(*exprs_of(root)) if _is_address(e) for a in e.children}
        for load in loads_in(*exprs_of(root)):
            if load in addresses:
                yield access(load.buffer, [Var("anywhere") for _ in load.indices], True)
            else:
                yield access(load.buffer, load.indices, False)
    if isinstance(root, Store):
        yield access(root.buffer, root.indices, True)
    if isinstance(root, Let):
        env = inner
    if isinstance(root, If):
        cond = resolved(root.cond)
        yield from accesses_of(root.then, loops, (*conds, *conjuncts(cond)), env, bases)
        if root.orelse is not None:
            yield from accesses_of(root.orelse, loops, (*conds, ~cond), env, bases)
        return
    if isinstance(root, For):
        loops = (*loops, root)
    for child in child_stmts(root):
        yield from accesses_of(child, loops, conds, env, bases)


def dependents(root: Stmt, start: Iterable[Var | Buffer], buffers: Container[Buffer]) -> set[Var | Buffer]:
    """Return the variables, and those of the given buffers, that depend on any of `start`."""
    found: set[Var | Buffer] = set(start)

    def depends(*exprs: Expr) -> bool:
        return any(v in found for v in free_vars(*exprs)) or any(e.buffer in found for e in loads_in(*exprs))

    def visit(stmt: Stmt, conditional: bool) -> None:
        own = depends(*exprs_of(stmt))
        match stmt:
            case For() | Let() if own:
                found.add(stmt.var)
            case Block():
                found.update(a.var for a, v in zip(stmt.axes, stmt.values, strict=True) if depends(v))
                conditional = conditional or depends(stmt.predicate)
            case Store() if stmt.buffer in buffers and (conditional or own):
                found.add(stmt.buffer)
            case View() if not found.isdisjoint((stmt.base, stmt.buffer)):
                found.update((stmt.base, stmt.buffer))
        conditional = conditional or (isinstance(stmt, (For, If, While)) and own)
        for child in child_stmts(stmt):
            visit(child, conditional)

    before = -1
    while before != len(found):
        before = len(found)
        visit(root, False)
    return found


def _is_address(e: Expr) -> bool:
    return isinstance(e, Call) and e.name == "address_of"


class Threads:
    """The thread axes of one launch. `dims` are symbolic dims."""

    def __init__(self, axes: Sequence[For], dims: Iterable[Var] = ()) -> None:
        self.axes = tuple(axes)
        self.dims = tuple(dims)
        self._memo: dict[object, bool] = {}

    def disjoint(
        self,
        a: ThreadAccess,
        b: ThreadAccess,
        *,
        carried: For | None = None,
        next_iteration: bool = False,
        axes: Iterable[Var] | None = None,
    ) -> bool:
        """Whether two accesses never touch the same element in threads that differ in one of `axes`.

        `axes=None` means all axes. Both accesses are in the same iteration of the loops around them. With
        `carried`, one of these loops, `b` is in a later iteration of it, and loops inside it are in any
        iteration. With `next_iteration`, the later iteration is the next one.
        """
        differing = [s.var for s in self.axes] if axes is None else list(axes)
        known = [(const_value(x), const_value(y)) for x, y in zip(a.indices, b.indices, strict=True)]
        if any(x is not None and y is not None and x != y for x, y in known):
            return True
        same = tuple(x for x, y in zip(a.indices, b.indices, strict=True) if x is y)
        if self._is_injective(same, differing):
            return True
        # Many accesses differ only in constants. A proof by the other indices is cached for all of these.
        symbolic = [i for i, pair in enumerate(known) if pair == (None, None)]
        if 0 < len(symbolic) < len(known):
            one, other = (replace(each, indices=tuple(each.indices[i] for i in symbolic)) for each in (a, b))
            if self._disjoint(one, other, carried, next_iteration, differing):
                return True
        return self._disjoint(a, b, carried, next_iteration, differing)

    def _is_injective(self, indices: Sequence[Expr], differing: Sequence[Var]) -> bool:
        """Whether the indices over thread axes alone are an injective function of the wanted axes."""
        own = {s.var for s in self.axes}
        used = tuple(
            i for i in indices if i.dtype is INDEX and not loads_in(i) and own.issuperset(free_vars(i))
        )
        key = (used, tuple(differing))
        found = self._memo.get(key)
        if found is None:
            chosen = [s for s in self.axes if s.var in free_vars(*used)]
            known = iter_map(used, chosen, TRUE, Analyzer()) if chosen else None
            is_injective = known is not None and known[0].injective
            found = self._memo[key] = is_injective and set(differing) <= {s.var for s in chosen}
        return found

    def _disjoint(
        self,
        a: ThreadAccess,
        b: ThreadAccess,
        carried: For | None,
        next_iteration: bool,
        differing: Sequence[Var],
    ) -> bool:
        key = (
            a.indices,
            b.indices,
            a.conds,
            b.conds,
            a.loops,
            b.loops,
            carried,
            next_iteration,
            tuple(differing),
        )
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = _AccessPair(self, a, b, carried, next_iteration).disjoint(differing)
        return found


class _AccessPair:
    """Two accesses of two threads, with separate variables."""

    def __init__(
        self, threads: Threads, a: ThreadAccess, b: ThreadAccess, carried: For | None, next_iteration: bool
    ) -> None:
        self.a, self.b = a, b
        self.analyzer = Analyzer()
        for dim in threads.dims:
            self.analyzer.declare_dim(dim, 0)
        self.other: dict[Var, Expr] = {}
        self.axes = threads.axes
        self.conds: list[Expr] = []
        shared: list[For] = []
        for x, y in zip(a.loops, b.loops):
            if x is not y or x is carried:
                break
            shared.append(x)
        for axis in threads.axes:
            self._bind(axis, {})
            self.other[axis.var] = self._copy(axis)
        for loop in (*shared, *a.loops[len(shared) :]):
            self._bind(loop, {})
        for loop in b.loops[len(shared) :]:
            if loop is carried and next_iteration:
                self.other[loop.var] = loop.var + 1
                self.conds.append(loop.var + 1 < loop.begin + loop.extent)
            else:
                self.other[loop.var] = self._copy(loop)
        self.conds += [*a.conds, *(substitute(c, self.other) for c in b.conds)]
        if carried is not None and not next_iteration:
            self.conds.append(self.other[carried.var] > carried.var)
        self.left = a.indices
        self.right = tuple(substitute(i, self.other) for i in b.indices)

    def _bind(self, loop: For, names: Mapping[Var, Expr]) -> None:
        self.analyzer.bind(loop.var, substitute(loop.begin, names), substitute(loop.extent, names))

    def _copy(self, loop: For) -> Var:
        fresh = Var(f"{loop.var.name}_other", loop.var.dtype)
        self.analyzer.bind(fresh, substitute(loop.begin, self.other), substitute(loop.extent, self.other))
        return fresh

    def disjoint(self, differing: Sequence[Var]) -> bool:
        usable = [c for c in self.conds if c.dtype.lanes == 1 and not loads_in(c)]
        with self.analyzer.assume(*usable):
            known = self._fixed_axes()
            equal = dict.fromkeys(zip(self.left, self.right, strict=True))
            while not all(v in known for v in differing):
                before = len(known), len(equal)
                for left, right in list(equal):
                    if self._never_equal(left, right, known):
                        return True
                    equal.update(dict.fromkeys(self._determine(left, right, known)))
                equal.update(dict.fromkeys(_divided(equal, self.analyzer)))
                if (len(known), len(equal)) == before:
                    return self._injective(differing)
            return True

    def _fixed_axes(self) -> dict[Var, Expr]:
        """Return the axes that conditions fix to the same value for both threads, each with the axis of the
        other thread."""
        known: dict[Var, Expr] = {}
        for axis in self.axes:
            other = self.other[axis.var]
            ends = [self.analyzer.const_bounds(v) for v in (axis.var, other)]
            if ends[0] == ends[1] and ends[0][0] == ends[0][1]:
                known[axis.var] = axis.var
        return known

    def _with_equal_axes(self, expr: Expr, known: Mapping[Var, Expr]) -> Expr:
        same = {self.other[v]: e for v, e in known.items()}
        return substitute(expr, {v: e for v, e in same.items() if isinstance(v, Var)})

    def _never_equal(self, left: Expr, right: Expr, known: Mapping[Var, Expr]) -> bool:
        right = self._with_equal_axes(right, known)
        if any(e.dtype is not INDEX or loads_in(e) for e in (left, right)):
            return False
        if isinstance(left, Binary) and isinstance(right, Binary) and left.op == right.op == "floormod":
            size = const_value(left.b)
            shift = const_value(self.analyzer.simplify(left.a - right.a))
            if size and left.b is right.b and shift is not None:
                return shift % size != 0
        low, high = self.analyzer.const_bounds(left - right)
        if low > 0 or high < 0:
            return True
        return self.analyzer.prove(left > right) or self.analyzer.prove(left < right)

    def _determine(self, left: Expr, right: Expr, known: dict[Var, Expr]) -> list[tuple[Expr, Expr]]:
        """Find the terms that must be equal if two indices are: add axes to `known`, return other pairs.

        If the sum of all other terms of the difference is smaller than its greatest factor, the terms with
        that factor must cancel. The argument is then repeated for the next factor.
        """
        right = self._with_equal_axes(right, known)
        if any(e.dtype is not INDEX or loads_in(e) for e in (left, right)):
            return []
        terms: list[tuple[Expr, Expr]] = []
        rest = self.analyzer.simplify(left - right)
        factors, _ = self.analyzer.linear(rest)
        pairs = {self.other[s.var]: s.var for s in self.axes if s.var not in known}
        for size in sorted({abs(f) for f in factors.values()}, reverse=True):
            group = {term: factor for term, factor in factors.items() if abs(factor) == size}
            for term, factor in group.items():
                rest = rest - term * factor
            rest = self.analyzer.simplify(rest)
            low, high = self.analyzer.const_bounds(rest)
            if not -size < low <= high < size:
                break
            found = [axis for other, axis in pairs.items() if group.keys() == {axis, other}]
            known.update((axis, axis) for axis in found if sum(group.values()) == 0)
            if not found and len(group) == 2 and sum(group.values()) == 0:
                a, b = sorted(group, key=lambda term: -group[term])
                terms.append((a, b))
        return terms

    def _injective(self, differing: Sequence[Var]) -> bool:
        """Whether the same access touches different elements in different threads, in any loop iterations."""
        a, b = self.a, self.b
        if a.indices != b.indices or any(i.dtype is not INDEX or loads_in(i) for i in a.indices):
            return False
        variables = [s for s in (*self.axes, *a.loops) if s in (*self.axes, *b.loops)]
        used = set(free_vars(*a.indices))
        chosen = [s for s in variables if s.var in used]
        if not set(differing) <= {s.var for s in chosen}:
            return False
        analyzer = Analyzer()
        for var in used - {s.var for s in chosen}:
            analyzer.declare_dim(var, 0)
        found = iter_map(a.indices, chosen, TRUE, analyzer)
        return found is not None and found[0].injective


def _divided(equal: Iterable[tuple[Expr, Expr]], analyzer: Analyzer) -> Iterator[tuple[Expr, Expr]]:
    """Yield the dividends that are equal because their quotients and remainders by one divisor are."""
    known = {pair for a, b in equal for pair in ((a, b), (b, a))}
    pairs = [(a, b) for a, b in known if isinstance(a, Binary) and isinstance(b, Binary)]
    for a, b in pairs:
        assert isinstance(a, Binary)
        assert isinstance(b, Binary)
        if a.op != b.op or a.b is not b.b:
            continue
        if a.op == "floormod":
            parts = analyzer.simplify(a.a // a.b), analyzer.simplify(b.a // b.b)
        elif a.op == "floordiv":
            parts = analyzer.simplify(a.a % a.b), analyzer.simplify(b.a % b.b)
        else:
            continue
        if parts in known:
            yield a.a, b.a


__all__ = ["ThreadAccess", "Threads", "accesses_of", "conjuncts", "dependents"]
