"""The `Analyzer`: the interface of integer analysis for the rest of the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from dlc_core.arith.interval import EVERYTHING, INF, Interval, Num, intersect
from dlc_core.arith.intset import symbolic_bounds
from dlc_core.arith.poly import (
    ONE,
    Poly,
    add_scaled,
    atoms_of,
    constant_of,
    mentions,
    shifted,
    split_by,
    sub,
    times,
)
from dlc_core.arith.prove import DEPTH_PROVE, QUERY_STEPS
from dlc_core.arith.simplify import Simplifier
from dlc_core.diag import UsageError
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Const, Expr, ExprLike, Unary, Var, as_expr, free_vars, post_order


class Analyzer(Simplifier):
    """Simplifies expressions and proves conditions under facts about variables.

    It must not be shared between threads. Only scalar index expressions and conditions are analysed. Other
    nodes are kept, with simplified operands.
    """

    def bind(self, var: Var, begin: ExprLike, extent: ExprLike) -> None:
        """Bind `var` to the range begin <= var < begin + extent. A later binding replaces an earlier one.

        Both ends may be symbolic, but must not mention `var`. They are simplified with the current facts, so
        declare dims before variables that range over them. For ends of narrower types, only constant bounds
        are used.
        """
        if type(begin) is Const and type(extent) is Const and begin.dtype is extent.dtype is INDEX:
            low = int(begin.value)
            self._set_range(var, (low, low + int(extent.value) - 1))
            return
        if as_expr(extent).dtype is not INDEX and as_expr(extent).dtype.is_int:
            first_values, count = self.const_bounds(begin), self.const_bounds(extent)[1]
            known = first_values[0], first_values[1] + count - 1
            self._set_range(var, intersect(known, var.dtype.int_range()))
            return
        first = self._poly(_index(begin))
        # One expression, so that the quotient and remainder of a number can recombine.
        self._bind_inclusive(var, first, shifted(self._poly(_index(begin) + _index(extent)), -1))

    def bind_extents(self, extents: dict[Var, ExprLike]) -> None:
        """Bind several variables to 0 <= var < extent."""
        for var, extent in extents.items():
            self.bind(var, 0, extent)

    def _bind_inclusive(self, var: Var, first: Poly, last: Poly) -> None:
        if mentions(first, var) or mentions(last, var):
            raise UsageError(f"the range of {var.name} mentions {var.name} itself")
        interval = self._poly_bounds(first)[0], self._poly_bounds(last)[1]
        low = first if constant_of(first) is None else None
        high = last if constant_of(last) is None else None
        if low is not None or high is not None:
            # Elimination needs both ends if one is symbolic.
            low, high = first, last
        self._set_range(var, interval, low, high)

    def declare_dim(self, var: Var, low: int = 1, high: int | None = None) -> None:
        """Declare `var` as a symbolic dim with low <= var and, if given, var <= high, within its bounds."""
        own_low, own_high = self._own_range(var)
        self._set_range(var, (max(low, own_low), min(INF if high is None else high, own_high)))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Bindings, declarations and assumptions made inside are dropped at the end."""
        known, memo, looked_up = self._known, self._memo, self._looked_up
        self._known = known.copy()
        self._memo, self._looked_up = type(memo)(), set()
        try:
            yield
        finally:
            self._known, self._memo, self._looked_up = known, memo, looked_up

    @contextmanager
    def assume(self, *conds: ExprLike) -> Iterator[None]:
        """Assume the conditions inside the `with`."""
        with self.scope():
            self.add_assumptions(*conds)
            yield

    def add_assumptions(self, *conds: ExprLike) -> None:
        """Assume the conditions from now on."""
        for cond in conds:
            self._learn(self._expr(as_expr(cond)))

    def simplify(self, expr: ExprLike) -> Expr:
        """The canonical form, which has the same value for all values in the declared ranges. Idempotent and
        deterministic.
        """
        return self._expr(as_expr(expr))

    def const_bounds(self, expr: ExprLike) -> Interval:
        """Lower and upper bound as ints; -inf or inf if unbounded."""
        e = self._expr(as_expr(expr))
        if e.dtype is not INDEX:
            return self._bounds_of(e)
        p = self._poly(e)
        low, high = self._poly_bounds(p)
        if self._known.symbolic and len(p) > 1:
            low = max(low, self._lower_bound(p))
            high = min(high, -self._lower_bound(times(p, -1)))
        return low, high

    def quick_bounds(self, expr: ExprLike) -> Interval:
        """Bounds by interval arithmetic alone. They take time linear in the expression, but may be loose."""
        return self._bounds_of(as_expr(expr))

    def _lower_bound(self, p: Poly) -> Num:
        best: Num = -INF
        for _ in range(2 * len(self._known.ranges)):
            smaller = self._eliminate_variable(p)
            if smaller is None or smaller == p:
                break
            p = smaller
            best = max(best, self._poly_bounds(p)[0])
        return best

    def modular(self, expr: ExprLike) -> tuple[int, int]:
        """(coeff, base) with expr ≡ base modulo coeff; coeff is 0 if expr is the constant base."""
        return self._poly_residue(self._poly(_index(expr)))

    def prove(self, cond: ExprLike) -> bool:
        """Whether the condition is proved to hold for all values. False may also mean "not known"."""
        self._query_left = QUERY_STEPS
        return self._prove(self._expr(as_expr(cond)))

    def _prove(self, e: Expr) -> bool:
        if isinstance(e, Const):
            return bool(e.value)
        if isinstance(e, Binary):
            if e.op == "and":
                return self._prove(e.a) and self._prove(e.b)
            if e.op == "or":
                return self._prove(e.a) or self._prove(e.b)
            if e.a.dtype is INDEX:
                p = sub(self._poly(e.b), self._poly(e.a))
                if e.op == "lt":
                    return self._nonneg(shifted(p, -1), DEPTH_PROVE)
                if e.op == "eq":
                    return self._zero(p, DEPTH_PROVE)
                if e.op == "ne":
                    return any(self._nonneg(shifted(q, -1), DEPTH_PROVE) for q in (p, times(p, -1)))
        return False

    def prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether a and b are proved to be equal for all values."""
        self._query_left = QUERY_STEPS
        left, right = as_expr(a), as_expr(b)
        if left is right:
            return True
        if left.dtype is not right.dtype:
            return False
        if left.dtype is not INDEX:
            return self._expr(left) is self._expr(right)
        return self._zero(self._poly(left - right), DEPTH_PROVE)

    def bounds(
        self, expr: ExprLike, variables: Iterable[Var] | Mapping[Var, tuple[ExprLike, ExprLike]]
    ) -> tuple[Expr, Expr] | None:
        """(min, max): bounds of an index expression over all values of `variables`.

        The ranges are the bound ones, or (begin, extent) from a mapping. The results mention none of the
        variables. They may be loose if variables occur together in non-affine terms. None if there is no
        finite bound.
        """
        self._query_left = QUERY_STEPS
        if not isinstance(variables, Mapping):
            return symbolic_bounds(self, self._poly(_index(expr)), variables)
        with self.scope():
            for var, (begin, extent) in variables.items():
                self.bind(var, begin, extent)
            return symbolic_bounds(self, self._poly(_index(expr)), variables)

    def poly_of(self, expr: ExprLike) -> Poly:
        """The canonical polynomial of an index expression."""
        return self._poly(_index(expr))

    def linear(self, expr: ExprLike) -> tuple[dict[Expr, int], int]:
        """(coefficients, constant) with expr == sum(k * atom) + constant. The terms are in canonical order.

        An atom is a variable, a product of atoms, or any expression that is not affine.
        """
        p = self._poly(_index(expr))
        return {self.emit({m: 1}): c for m, c in self.sorted_terms(p) if m}, p.get(ONE, 0)

    def coefficient_of(self, expr: ExprLike, var: Var) -> Expr | None:
        """The coefficient of `var` in an expression that is affine in it. It may be symbolic but does not
        mention `var`. None if the expression is not affine in `var`.

        For i*N + j the coefficient of i is N. If `var` does not occur, the coefficient is 0.
        """
        parts = split_by(self._poly(_index(expr)), var)
        if parts is None or any(_inside(var, atom) for part in parts for atom in atoms_of(part)):
            return None
        return self.emit(parts[0])

    def solve(self, expr: ExprLike, value: ExprLike, var: Var) -> Expr | None:
        """Solve expr == value for `var`. None if expr is not affine in `var`.

        If the coefficient of `var` does not divide, the result is rounded down. Substitute it to check.
        """
        factor = self.coefficient_of(expr, var)
        if factor is None or not self._poly(factor) or any(v is var for v in free_vars(_index(value))):
            return None
        rest = sub(
            self._poly(_index(value)),
            add_scaled(self._poly(_index(expr)), self.mul({(var,): 1}, self._poly(factor)), -1),
        )
        return self.emit(self._floordiv(rest, self._poly(factor)))

    def _learn(self, cond: Expr) -> None:
        """Record a simplified condition as a fact."""
        if isinstance(cond, Const):
            return
        if isinstance(cond, Binary) and cond.op == "and":
            self._learn(cond.a)
            self._learn(self._expr(cond.b))
            return
        self._known.truths[cond] = True
        negated = self._not(cond)
        if not isinstance(negated, Const):
            self._known.truths[negated] = False
        if isinstance(cond, Unary) and cond.op == "not":
            self._known.truths[cond.a] = False
        if isinstance(cond, Binary) and cond.a.dtype is INDEX:
            p = sub(self._poly(cond.b), self._poly(cond.a))
            if cond.op == "lt":
                self._learn_nonneg(shifted(p, -1))
                self._learn_choice(cond)
            elif cond.op == "eq":
                self._learn_zero(cond, p)
        self._clear_memo()

    def _learn_choice(self, cond: Binary) -> None:
        """Learn a < c from a < max(b, c) where b <= a; likewise for a minimum on the left."""
        for side, op in ((cond.b, "max"), (cond.a, "min")):
            if isinstance(side, Binary) and side.op == op:
                for one, other in ((side.a, side.b), (side.b, side.a)):
                    without, rest = (
                        (one <= cond.a, cond.a < other) if op == "max" else (cond.b <= one, other < cond.b)
                    )
                    if self.prove(without):
                        self._learn(self._expr(rest))
                        return

    def _learn_nonneg(self, p: Poly) -> None:
        """p >= 0"""
        variables = [m for m in p if m]
        if len(variables) == 1 and len(variables[0]) == 1:
            atom, c, start = variables[0][0], p[variables[0]], p.get(ONE, 0)
            limit: Interval = (-(start // c), INF) if c > 0 else (-INF, start // -c)
            if isinstance(atom, Var):
                self._tighten(atom, self._range_of(atom).interval, limit)
            elif isinstance(atom, Binary) and atom.op == "floordiv":
                self._learn_of_quotient(atom, limit)
        self._known.facts.append(p)

    def _learn_of_quotient(self, quotient: Binary, limit: Interval) -> None:
        """Learn x >= m * d from x // d >= m, and x < (m + 1) * d from x // d <= m, for a divisor d > 0."""
        x, divisor = self._poly(quotient.a), self._poly(quotient.b)
        if self._poly_bounds(divisor)[0] < 1:
            return
        low, high = limit
        if low != -INF:
            self._learn_nonneg(add_scaled(x, divisor, -int(low)))
        if high != INF:
            self._learn_nonneg(shifted(add_scaled(times(divisor, int(high) + 1), x, -1), -1))

    def _tighten(self, var: Var, old: Interval, limit: Interval) -> None:
        known = self._range_of(var)
        order = self._order
        low, high = intersect(old, limit)
        if var in self._known.residues and low <= high:
            modulus, residue = self._known.residues[var]
            low = low if low == -INF else low + (residue - low) % modulus
            high = high if high == INF else high - (high - residue) % modulus
        self._set_range(var, (low, high), known.low, known.high)
        self._known.ranges[var] = type(known)(
            self._known.ranges[var].interval, known.low, known.high, known.order
        )
        self._order = order

    def _learn_zero(self, cond: Binary, p: Poly) -> None:
        """Learn from p == 0: substitute an atom by its value, and record residues."""
        self._known.facts += (p, times(p, -1))
        for atom in sorted(atoms_of(p), key=self.atom_key, reverse=True):
            parts = split_by(p, atom)
            if parts is None or constant_of(parts[0]) not in (1, -1):
                continue
            sign = constant_of(parts[0]) or 1
            value = times(parts[1], -sign)
            if any(_inside(atom, other) for other in atoms_of(value)):
                continue
            known = constant_of(value)
            if isinstance(atom, Binary) and atom.op == "floormod" and known is not None:
                modulus = atom.b
                if isinstance(atom.a, Var) and isinstance(modulus, Const) and int(modulus.value) > 0:
                    self._known.residues[atom.a] = int(modulus.value), known
                    self._tighten(atom.a, self._range_of(atom.a).interval, EVERYTHING)
            if isinstance(atom, Var) and known is not None:
                self._tighten(atom, self._range_of(atom).interval, (known, known))
            if isinstance(atom, Var) or known is not None:
                self._known.values[atom] = value
                break


def _inside(atom: Expr, e: Expr) -> bool:
    if isinstance(atom, Var):
        return atom in free_vars(e)
    return any(x is atom for x in post_order(e))


def _index(value: ExprLike) -> Expr:
    e = as_expr(value)
    if e.dtype is not INDEX:
        raise UsageError(f"{e} of type {e.dtype} is not an index expression")
    return e
