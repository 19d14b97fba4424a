"""floordiv and floormod of polys. Terms that the divisor divides are extracted, and terms that are too small
to matter are dropped."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlc_core.arith.poly import (
    ONE,
    Mono,
    Poly,
    add_scaled,
    atom_poly,
    constant,
    constant_of,
    exact_div,
    poly_key,
    shifted,
    sub,
    times,
)
from dlc_core.arith.prove import Prover
from dlc_core.ir.expr import Binary, Const, Expr, Select, binary

_RECOMBINED = frozenset({"floordiv", "floormod", "min", "max"})


class Division(Prover):
    """Quotients and remainders, and their recombination in sums."""

    def _poly(self, e: Expr) -> Poly:
        raise NotImplementedError

    def _cancel_into_atom(self, p: Poly, m: Mono, atom: Expr) -> Poly | None:
        raise NotImplementedError

    def _rewrite(self, e: Expr) -> Expr | None:
        raise NotImplementedError

    def _quotient(self, op: str, p: Poly, d: Poly) -> Poly:
        """Simplify p // d or p % d; an atom if no rule and no fact applies."""
        e = binary(op, self.emit(p), self.emit(d))
        found = self._memo.polys.get(e)
        if found is not None:
            return found
        if not isinstance(e, Binary) or e.op != op:
            return self._poly(e)
        result = self._known.values.get(e)
        if result is None:
            better = self._rewrite(e)
            result = atom_poly(e) if better is None else self._poly(better)
        self._memo.polys[e] = result
        return result

    def _floordiv(self, p: Poly, d: Poly) -> Poly:
        c = constant_of(d)
        if c is None:
            return self._floordiv_symbolic(p, d)
        if c == 0 or not p:
            return self._quotient("floordiv", p, d) if c == 0 else p
        return self._floordiv_literal(p, c) if c > 0 else self._floordiv_literal(times(p, -1), -c)

    def _floormod(self, p: Poly, d: Poly) -> Poly:
        c = constant_of(d)
        if c is None:
            return self._floormod_symbolic(p, d)
        if c == 0 or not p:
            return self._quotient("floormod", p, d) if c == 0 else p
        # The remainder has the sign of the divisor.
        return self._floormod_literal(p, c) if c > 0 else times(self._floormod_literal(times(p, -1), -c), -1)

    def _floordiv_literal(self, p: Poly, c: int) -> Poly:
        if c == 1:
            return p
        offset, start = divmod(p.get(ONE, 0), c)
        whole = {m: k // c for m, k in p.items() if m and k % c == 0}
        rest = {m: k for m, k in p.items() if m and k % c}
        if not rest:
            return shifted(whole, offset)
        g = math.gcd(c, *rest.values())
        if g > 1:
            part = self._floordiv_literal(shifted(exact_div(rest, g), start // g), c // g)
            return add_scaled(shifted(whole, offset), part)
        for quotient, remainder in _reductions(rest, c):
            low, high = self._poly_bounds(remainder)
            if (low + start) // c == (high + start) // c:
                return add_scaled(shifted(whole, offset + int((low + start) // c)), quotient)
        if self._known.residues:
            modulus, residue = self._poly_residue(shifted(rest, start))
            if modulus % c == 0:
                carry, start = divmod(start - residue % c, c)
                exact = self._quotient("floordiv", shifted(rest, start), constant(c))
                return add_scaled(shifted(whole, offset + carry), exact)
        for g in self._common_divisors(rest, c):
            small = self._split_small_part(rest, start, g)
            if small is not None:
                high_part, _, carry = small
                part = self._floordiv_literal(shifted(exact_div(high_part, g), carry), c // g)
                return add_scaled(shifted(whole, offset), part)
        nested = self._nested(rest)
        if nested is not None:
            inner, g = nested
            part = self._floordiv_literal(shifted(inner, start * g), c * g)
        elif self._leads_negative(rest):
            # floor(-x) is -ceil(x).
            part = times(self._floordiv_literal(shifted(times(rest, -1), c - 1 - start), c), -1)
        else:
            part = self._quotient("floordiv", shifted(rest, start), constant(c))
        return add_scaled(shifted(whole, offset), part)

    def _nested(self, p: Poly) -> tuple[Poly, int] | None:
        """(q, g) with p == q // g for a literal g. A sum with a quotient becomes the quotient of a sum."""
        for m, k in p.items():
            if k == 1 and len(m) == 1 and type(e := m[0]) is Binary and e.op == "floordiv":
                g = constant_of(self._poly(e.b))
                if g is not None and g > 0:
                    return add_scaled(times(sub(p, {m: 1}), g), self._poly(e.a)), g
        return None

    def _floormod_literal(self, p: Poly, c: int) -> Poly:
        if c == 1:
            return {}
        rest: Poly = {}
        start = p.get(ONE, 0) % c
        unwrapped: Poly = {}
        for m, k in p.items():
            if not m:
                continue
            inner = m[0] if len(m) == 1 else None
            if type(inner) is Binary and inner.op == "floormod" and isinstance(inner.b, Const):
                d = int(inner.b.value)
                if d and k * d % c == 0:
                    # k*(x % d) and k*x differ by a multiple of k*d, and therefore of c.
                    unwrapped = add_scaled(unwrapped, self._poly(inner.a), k)
                    continue
            if k % c:
                rest[m] = k
        if unwrapped:
            return self._floormod_literal(self._recombined(add_scaled(shifted(rest, start), unwrapped)), c)
        if not rest:
            return constant(start)
        g = math.gcd(c, *rest.values())
        if g > 1:
            inner_mod = self._floormod_literal(shifted(exact_div(rest, g), start // g), c // g)
            return shifted(times(inner_mod, g), start % g)
        for _, remainder in _reductions(rest, c):
            low, high = self._poly_bounds(remainder)
            if (low + start) // c == (high + start) // c:
                return shifted(remainder, start - c * int((low + start) // c))
        if self._known.residues:
            modulus, residue = self._poly_residue(shifted(rest, start))
            if modulus % c == 0:
                return constant(residue % c)
        for g in self._common_divisors(rest, c):
            small = self._split_small_part(rest, start, g)
            if small is not None:
                high_part, low_part, carry = small
                inner_mod = self._floormod_literal(shifted(exact_div(high_part, g), carry), c // g)
                return add_scaled(low_part, inner_mod, g)
        if self._leads_negative(rest):
            flipped = self._floormod_literal(shifted(times(rest, -1), c - 1 - start), c)
            return shifted(times(flipped, -1), c - 1)
        if self._known.symbolic and self._is_remainder(shifted(rest, start), c):
            return shifted(rest, start)
        return self._quotient("floormod", shifted(rest, start), constant(c))

    def _is_remainder(self, p: Poly, c: int) -> bool:
        """Whether 0 <= p < c follows from symbolic bounds."""
        return self._poly_bounds(p)[0] >= 0 and self._nonneg(shifted(times(p, -1), c - 1))

    def _leads_negative(self, p: Poly) -> bool:
        return self.sorted_terms(p)[0][1] < 0

    @staticmethod
    def _common_divisors(p: Poly, c: int) -> list[int]:
        """Divisors of c that divide some, but not all, coefficients; largest first."""
        if len(p) < 2:
            return []
        return sorted({g for k in p.values() if (g := math.gcd(k, c)) > 1}, reverse=True)

    def _split_small_part(self, p: Poly, start: int, g: int) -> tuple[Poly, Poly, int] | None:
        """(H, L, t) with p + start == H + L + g*t, where g divides the coefficients of H and 0 <= L < g; None
        if there are none.
        """
        high_part = {m: k for m, k in p.items() if k % g == 0}
        low_part = {m: k for m, k in p.items() if k % g}
        if not high_part or not low_part:
            return None
        low, high = self._poly_bounds(low_part)
        t = (low + start) // g
        if t != (high + start) // g or abs(t) == math.inf:
            return None
        return high_part, shifted(low_part, start - g * int(t)), int(t)

    # Symbolic divisors.

    def _divide(self, p: Poly, d: Poly) -> tuple[Poly, Poly]:
        """Polynomial division: (A, B) with p == d*A + B, by the leading monomial of d."""
        lead, k = self.sorted_terms(d)[0]
        whole: Poly = {}
        for _ in range(len(p) + 4):
            for m, c in self.sorted_terms(p):
                quotient = self.divide_mono(m, lead) if c % k == 0 else None
                if quotient is not None:
                    step = {quotient: c // k}
                    whole = add_scaled(whole, step)
                    p = sub(p, self.mul(d, step))
                    break
            else:
                break
        return whole, p

    def _common_factor(self, p: Poly, d: Poly) -> tuple[Poly, Poly, Poly]:
        """(g, p/g, d/g) for the greatest monomial g, with coefficient, that divides both."""
        k = math.gcd(*p.values(), *d.values())
        shared = None
        for m in (*p, *d):
            if shared is None:
                shared = list(m)
                continue
            left = list(m)
            kept = []
            for atom in shared:
                if atom in left:
                    left.remove(atom)
                    kept.append(atom)
            shared = kept
            if not shared:
                break
        common = tuple(shared or ())
        if not common and k == 1:
            return {ONE: 1}, p, d

        def reduced(q: Poly) -> Poly:
            return {m_: c // k for m, c in q.items() if (m_ := self.divide_mono(m, common)) is not None}

        return {common: k}, reduced(p), reduced(d)

    def _floordiv_symbolic(self, p: Poly, d: Poly) -> Poly:
        whole, rest = self._divide(p, d)
        if not rest:
            return whole
        found = self._quotient_by_proof(rest, d)
        if found is not None:
            return shifted(whole, found)
        common, top, bottom = self._common_factor(rest, d)
        if common != {ONE: 1}:
            return add_scaled(whole, self._floordiv(top, bottom))
        return add_scaled(whole, self._quotient("floordiv", rest, d))

    def _floormod_symbolic(self, p: Poly, d: Poly) -> Poly:
        _, rest = self._divide(p, d)
        if not rest:
            return {}
        found = self._quotient_by_proof(rest, d)
        if found is not None:
            return add_scaled(rest, d, -found)
        common, top, bottom = self._common_factor(rest, d)
        if common != {ONE: 1}:
            # (g*x) % (g*d) == g * (x % d) for g of either sign.
            return self.mul(common, self._floormod(top, bottom))
        return self._quotient("floormod", rest, d)

    def _quotient_by_proof(self, p: Poly, d: Poly) -> int | None:
        """The quotient k in -1, 0, 1 for which k*d <= p < (k+1)*d and d > 0 are proved; None if there is
        none."""
        if not self._nonneg(shifted(d, -1)):
            # 0 <= remainder < d implies d > 0.
            return 0 if self._nonneg(p) and self._nonneg(shifted(sub(d, p), -1)) else None
        for k in (0, -1, 1):
            base = add_scaled(p, d, -k)
            if self._nonneg(base) and self._nonneg(shifted(sub(d, base), -1)):
                return k
        return None

    # Recombination in sums.

    def _recombined(self, p: Poly) -> Poly:
        """A sum after quotients and remainders are recombined."""
        if len(p) > 1 or (self._known.residues and p):
            for m in p:
                for atom in m:
                    if type(atom) is Select or (type(atom) is Binary and atom.op in _RECOMBINED):
                        return self._recombine_all(p)
        return p

    def _recombine_all(self, p: Poly) -> Poly:
        """Recombine until nothing applies: d*(x//d) + x%d -> x, x - d*(x//d) -> x%d and x - x%d -> d*(x//d),
        also scaled by other factors.

        Terms that cancel against the operands of a min, max or select move into it.
        """
        seen = {poly_key(p)}
        while True:
            better = self._recombine_once(p)
            if better is None:
                return p
            p = better
            key = poly_key(p)
            if key in seen:
                return p
            seen.add(key)

    def _recombine_once(self, p: Poly) -> Poly | None:
        for m, k in p.items():
            for i, atom in enumerate(m):
                if type(atom) is Select or (type(atom) is Binary and atom.op in ("min", "max")):
                    better = self._sum_of_min_and_max(p, m, atom)
                    if better is None and len(m) == 1:
                        better = self._cancel_into_atom(p, m, atom)
                    if better is not None:
                        return better
                    continue
                if type(atom) is not Binary or atom.op not in ("floordiv", "floormod"):
                    continue
                others: Poly = {m[:i] + m[i + 1 :]: k}
                x, d = self._poly(atom.a), self._poly(atom.b)
                if atom.op == "floormod":
                    q = self._floordiv(x, d)
                    quotient = self.mul(others, self.mul(d, q))
                    if quotient and all(p.get(n) == c for n, c in quotient.items()):
                        return add_scaled(sub(p, {m: k}), sub(self.mul(others, x), quotient))
                    scaled = self.mul(others, x)
                    if _cancels(p, scaled) and not _occurs_elsewhere(p, m, atom):
                        # The atom's own term is removed with x. A multiple of the quotient remains.
                        return sub(add_scaled(sub(p, {m: k}), scaled), quotient)
                    better = self._joined_digits(p, m, others, x, d, q)
                    if better is not None:
                        return better
                else:
                    better = self._recombine_quotient(p, m, k, x, d)
                    if better is not None:
                        return better
        return None

    def _joined_digits(self, p: Poly, m: Mono, others: Poly, x: Poly, d: Poly, q: Poly) -> Poly | None:
        """Join digits: x//d % c * d + x%d -> x % (d*c) for literals d and c, also scaled by other factors."""
        size = constant_of(d)
        if size is None or size < 1:
            return None
        for n, k in p.items():
            for i, atom in enumerate(n):
                if type(atom) is not Binary or atom.op != "floormod" or n is m:
                    continue
                c = constant_of(self._poly(atom.b))
                rest = n[:i] + n[i + 1 :]
                if c is None or c < 1 or others.get(rest, 0) * size != k or self._poly(atom.a) != q:
                    continue
                left = {t: v for t, v in p.items() if t != m and t != n}
                return add_scaled(left, self.mul(others, self._floormod(x, constant(size * c))))
        return None

    def _sum_of_min_and_max(self, p: Poly, m: Mono, atom: Expr) -> Poly | None:
        """min(x, y) + max(x, y) -> x + y, also scaled."""
        if type(atom) is not Binary or atom.op != "min":
            return None
        other = binary("max", atom.a, atom.b)
        at = m.index(atom)
        rest = m[:at] + m[at + 1 :]
        partner = self.mono((*rest, other))
        k = p[m]
        if p.get(partner) != k:
            return None
        left = {t: v for t, v in p.items() if t != m and t != partner}
        return add_scaled(left, self.mul({rest: k}, add_scaled(self._poly(atom.a), self._poly(atom.b))))

    def _recombine_quotient(self, p: Poly, m: tuple[Expr, ...], k: int, x: Poly, d: Poly) -> Poly | None:
        """Recombine -s*d*(x//d) + s*x + r -> s*(x%d) + r, and s*d*(x//d) -> s*(x - x%d) if the remainder is
        known.
        """
        if len(d) != 1:
            return None
        ((lead, c),) = d.items()
        if k % c:
            return None
        atom = next(a for a in m if type(a) is Binary and self._poly(a.a) == x and self._poly(a.b) == d)
        scale = self.divide_mono(m, (*lead, atom))
        if scale is None:
            return None
        s: Poly = {self.mono(scale): k // c}
        if self._known.residues and not lead:
            modulus, residue = self._poly_residue(x)
            if modulus % c == 0:
                return add_scaled(sub(p, {m: k}), self.mul(s, shifted(x, -(residue % c))))
        scaled = self.mul(s, x)
        if _cancels(p, scaled) and not _occurs_elsewhere(p, m, atom):
            rest = add_scaled(sub(p, {m: k}), scaled)
            return sub(rest, self.mul(s, self._floormod(x, d)))
        return None


def _cancels(p: Poly, q: Poly) -> bool:
    """Whether p has all terms of -q except the constant."""
    return all(p.get(n) == -c for n, c in q.items() if n) and any(n for n in q)


def _occurs_elsewhere(p: Poly, m: Mono, atom: Expr) -> bool:
    """Whether an atom occurs in another term too. Replacing it in one term would then only add an atom."""
    return any(atom in n for n in p if n != m)


def _reductions(p: Poly, c: int) -> Iterator[tuple[Poly, Poly]]:
    """Decompositions (Q, R) with p == c*Q + R: first Q = 0, then, if a coefficient exceeds c, the one with
    all multiples of c in Q.
    """
    yield {}, p
    if any(abs(k) > c for k in p.values()):
        whole = {m: q for m, k in p.items() if (q := k // c if k >= 0 else -(-k // c))}
        yield whole, add_scaled(p, whole, -c)
