"""Integer polynomials over atoms, the canonical form of index expressions.

A monomial is a tuple of atoms in canonical order, () for the constant term. A `Poly` maps monomials to
nonzero coefficients. Polys are immutable by convention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from dlc_core.arith.order import OrderKey, order_key
from dlc_core.ir.expr import Binary, Const, Expr, Unary, binary, const, unary

Mono = tuple[Expr, ...]
Poly = dict[Mono, int]

ONE: Mono = ()


literal = lru_cache(4096)(const)
"""Makes index literals. The cache keeps common ones alive."""


def constant(value: int) -> Poly:
    return {ONE: value} if value else {}


def atom_poly(atom: Expr) -> Poly:
    return {(atom,): 1}


def constant_of(p: Poly) -> int | None:
    """The value of a poly without atoms; None for others."""
    if not p:
        return 0
    return p[ONE] if len(p) == 1 and ONE in p else None


def add_scaled(p: Poly, q: Poly, k: int = 1) -> Poly:
    """p + k*q"""
    out = dict(p)
    _add_to(out, q, k)
    return out


def _add_to(out: Poly, q: Poly, k: int = 1) -> None:
    """Add k*q to a poly in place. Nothing else may refer to the poly."""
    for m, c in q.items():
        total = out.get(m, 0) + c * k
        if total:
            out[m] = total
        elif m in out:
            del out[m]


def sub(p: Poly, q: Poly) -> Poly:
    return add_scaled(p, q, -1)


def times(p: Poly, k: int) -> Poly:
    return {m: c * k for m, c in p.items()} if k else {}


def shifted(p: Poly, k: int) -> Poly:
    """p + k"""
    if not k:
        return p
    out = dict(p)
    total = out.get(ONE, 0) + k
    if total:
        out[ONE] = total
    else:
        del out[ONE]
    return out


def exact_div(p: Poly, k: int) -> Poly:
    return {m: c // k for m, c in p.items()}


def content(p: Poly) -> int:
    """The greatest common divisor of all coefficients, including the constant; 0 for the zero poly."""
    return math.gcd(*p.values()) if p else 0


def poly_key(p: Poly) -> frozenset[tuple[Mono, int]]:
    """A hashable identity of a poly."""
    return frozenset(p.items())


def degree(p: Poly) -> int:
    return max(map(len, p), default=0)


def mentions(p: Poly, atom: Expr) -> bool:
    return any(atom in m for m in p)


def split_by(p: Poly, atom: Expr) -> tuple[Poly, Poly] | None:
    """(C, R) with p == C*atom + R, where neither C nor R has atom as a factor. None if it occurs squared."""
    factor: Poly = {}
    rest: Poly = {}
    for m, c in p.items():
        if atom in m:
            i = m.index(atom)
            others = m[:i] + m[i + 1 :]
            if atom in others:
                return None
            factor[others] = c
        else:
            rest[m] = c
    return factor, rest


class Algebra:
    """Polynomial arithmetic that requires the order of atoms: products, and conversion to and from
    expressions."""

    def __init__(self) -> None:
        self._hashes: dict[Expr, int] = {}
        self._atom_keys: dict[Expr, OrderKey] = {}
        self._mono_keys: dict[Mono, tuple[OrderKey, ...]] = {ONE: ()}
        self._parsed: dict[Expr, Poly] = {}

    def atom_key(self, atom: Expr) -> OrderKey:
        key = self._atom_keys.get(atom)
        if key is None:
            key = self._atom_keys[atom] = order_key(atom, self._hashes)
        return key

    def mono_key(self, m: Mono) -> tuple[OrderKey, ...]:
        key = self._mono_keys.get(m)
        if key is None:
            key = self._mono_keys[m] = tuple(self.atom_key(atom) for atom in m)
        return key

    def mono(self, atoms: Iterable[Expr]) -> Mono:
        return tuple(sorted(atoms, key=self.atom_key))

    def mul(self, p: Poly, q: Poly) -> Poly:
        out: Poly = {}
        for m, c in p.items():
            for n, d in q.items():
                product = n if not m else m if not n else self.mono(m + n)
                total = out.get(product, 0) + c * d
                if total:
                    out[product] = total
                else:
                    del out[product]
        return out

    def replace(self, p: Poly, atom: Expr, value: Poly) -> Poly:
        """p with the atom replaced as a factor of monomials, but not inside other atoms."""
        out = {m: c for m, c in p.items() if atom not in m}
        for m, c in p.items():
            if atom in m:
                product: Poly = {tuple(a for a in m if a is not atom): c}
                for _ in range(m.count(atom)):
                    product = self.mul(product, value)
                _add_to(out, product)
        return out

    def divide_mono(self, m: Mono, by: Mono) -> Mono | None:
        """m / by; None if `by` does not divide m."""
        left = list(m)
        for atom in by:
            if atom not in left:
                return None
            left.remove(atom)
        return tuple(left)

    def sorted_terms(self, p: Poly) -> list[tuple[Mono, int]]:
        """Terms in canonical order: high degree first, then large coefficients (outer loops), the constant
        last.
        """
        if len(p) < 2:
            return list(p.items())
        ranks = {(-len(m), -abs(c)): (m, c) for m, c in p.items()}
        if len(ranks) == len(p):
            return [ranks[rank] for rank in sorted(ranks)]
        return sorted(p.items(), key=lambda t: (-len(t[0]), -abs(t[1]), self.mono_key(t[0])))

    def sort_key(self, p: Poly) -> tuple[tuple[int, int, tuple[OrderKey, ...]], ...]:
        """A sort key for polys. Constants are last."""
        value = constant_of(p)
        if value is not None:
            return ((1, value, ()),)
        return tuple((-len(m), -c, self.mono_key(m)) for m, c in self.sorted_terms(p))

    def parse(self, e: Expr) -> Poly:
        """The poly of an index expression without simplification: the inverse of `emit`."""
        found = self._parsed.get(e)
        if found is not None:
            return found
        out: Poly = {}
        stack = [(e, 1)]
        while stack:
            x, k = stack.pop()
            op = x.op if isinstance(x, Binary | Unary) else ""
            if op == "add" or op == "sub":
                a, b = x.children
                stack += ((b, k if op == "add" else -k), (a, k))
            elif op == "neg":
                stack.append((x.children[0], -k))
            else:
                m, c = self._parse_term(x)
                total = out.get(m, 0) + c * k
                if total:
                    out[m] = total
                else:
                    out.pop(m, None)
        self._parsed[e] = out
        return out

    def _parse_term(self, e: Expr) -> tuple[Mono, int]:
        """A product as a monomial and its coefficient (0 for the literal 0). A sum among the factors is an
        atom.
        """
        factors: list[Expr] = []
        scale = 1
        stack = [e]
        while stack:
            x = stack.pop()
            if isinstance(x, Const):
                scale *= int(x.value)
            elif isinstance(x, Binary) and x.op == "mul":
                stack += (x.b, x.a)
            else:
                factors.append(x)
        return (self.mono(factors) if len(factors) > 1 else tuple(factors)), scale

    def emit(self, p: Poly) -> Expr:
        """The canonical expression of a poly: positive terms first, then negative terms, subtracted."""
        if not p:
            return literal(0)
        terms = self.sorted_terms(p)
        total: Expr | None = None
        for m, c in terms:
            if c > 0:
                term = _term(m, c)
                total = term if total is None else binary("add", total, term)
        for m, c in terms:
            if c < 0:
                if total is None:
                    total = unary("neg", _term(m, 1)) if c == -1 and m else _term(m, c)
                else:
                    total = binary("sub", total, _term(m, -c))
        assert total is not None
        return total


_LARGE = 1 << 62


def _term(m: Mono, c: int) -> Expr:
    if not m:
        return literal(c)
    product = m[0]
    for atom in m[1:]:
        product = binary("mul", product, atom)
    return _scaled(product, c)


def _scaled(product: Expr, c: int) -> Expr:
    """The product times a number. One that is no int64 is written by several, because literals wrap: sizes
    that are computed without overflow, as those of memory are, keep their value.
    """
    if c == 1:
        return product
    if -_LARGE <= c < _LARGE:
        return binary("mul", product, literal(c))
    most, rest = divmod(c, _LARGE)
    large = _scaled(binary("mul", product, literal(_LARGE)), most)
    return binary("add", large, _scaled(product, rest)) if rest else large


def atoms_of(p: Poly) -> dict[Expr, None]:
    """Distinct atoms in order of appearance."""
    return {atom: None for m in p for atom in m}
