"""The operations of vector-math formulas: straight-line code on the values of a language.

A value is a text of the language; the kind of each operation is in the method's name: plain names work on
floating-point values, those that begin with `i` on integers of the same width, `mask` on masks.  Each
formula is written once, over one element type (`bits` wide) and any number of lanes.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod


class Code(ABC):
    """A growing piece of code over floats of 32 or 64 bits; operands are values or numbers."""

    def __init__(self, bits: int, *, fused: bool) -> None:
        self.bits = bits
        self.fused = fused
        """Whether `fma` rounds once."""
        self.mantissa = 23 if bits == 32 else 52
        self.bias = 127 if bits == 32 else 1023

    # Operations that each language implements.

    @abstractmethod
    def const(self, value: float) -> str:
        """A floating-point constant in every lane, rounded to the element type."""

    @abstractmethod
    def add(self, a: str | float, b: str | float) -> str:
        """a + b"""

    @abstractmethod
    def sub(self, a: str | float, b: str | float) -> str:
        """a - b"""

    @abstractmethod
    def mul(self, a: str | float, b: str | float) -> str:
        """a * b"""

    @abstractmethod
    def div(self, a: str | float, b: str | float) -> str:
        """a / b"""

    @abstractmethod
    def neg(self, a: str) -> str:
        """-a"""

    @abstractmethod
    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        """a * b + c, rounded once if the target has FMA."""

    @abstractmethod
    def abs(self, a: str) -> str:
        """|a|"""

    @abstractmethod
    def sqrt(self, a: str) -> str:
        """Square root, correctly rounded."""

    @abstractmethod
    def copysign(self, magnitude: str | float, sign: str) -> str:
        """`magnitude` with the sign of `sign`."""

    @abstractmethod
    def compare(self, relation: str, a: str | float, b: str | float) -> str:
        """Compare floats: olt, ole, ogt, oge, oeq, one (false if either is nan), uno (true then)."""

    @abstractmethod
    def select(self, mask: str, yes: str | float, no: str | float) -> str:
        """Choose between floats per lane."""

    @abstractmethod
    def integer(self, op: str, a: str | int, b: str | int) -> str:
        """An operation on integers: add, sub, and, or, xor, shl, lshr, ashr, mul."""

    @abstractmethod
    def icompare(self, relation: str, a: str | int, b: str | int) -> str:
        """Compare integers: eq, ne, slt, sgt, …"""

    @abstractmethod
    def iselect(self, mask: str, yes: str | int, no: str | int) -> str:
        """Choose between integers per lane."""

    @abstractmethod
    def mask(self, op: str, a: str, b: str) -> str:
        """and, or, xor of masks."""

    @abstractmethod
    def to_bits(self, a: str) -> str:
        """The bit pattern of a float."""

    @abstractmethod
    def from_bits(self, a: str) -> str:
        """The float with a bit pattern."""

    @abstractmethod
    def to_float(self, a: str) -> str:
        """Signed integer to float."""

    # Operations derived from these.

    def fnma(self, a: str | float, b: str, c: str | float) -> str:
        """c - a * b, fused if the target has FMA. `a` is preferably a constant."""
        if isinstance(a, float):
            return self.fma(-a, b, c)
        if self.fused:
            return self.fma(self.neg(a), b, c)
        return self.sub(c, self.mul(a, b))

    def at_most(self, a: str, limit: float) -> str:
        """min(a, limit); nan stays nan."""
        return self.select(self.compare("olt", limit, a), limit, a)

    def at_least(self, a: str, limit: float) -> str:
        """max(a, limit); nan stays nan."""
        return self.select(self.compare("ogt", limit, a), limit, a)

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
        result: str | float = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result if isinstance(result, str) else self.const(result)

    def estrin(self, x: str, coefficients: tuple[float, ...]) -> str:
        """The polynomial by Estrin's scheme. Its dependence chain is shorter for high degrees."""
        terms: list[str | float] = list(coefficients)
        power = x
        while len(terms) > 1:
            last = terms[-1:] if len(terms) % 2 else []
            pairs = zip(terms[0::2], terms[1::2], strict=False)
            terms = [*(self.fma(power, high, low) for low, high in pairs), *last]
            if len(terms) > 1:
                power = self.mul(power, power)
        return terms[0] if isinstance(terms[0], str) else self.const(terms[0])

    def nearest_product(self, a: str, factor: float, bias: int = 0) -> tuple[str, str]:
        """(n = round(a * factor) as float, an integer whose low bits are n + bias), for |n| below 2^21
        (2^50).

        Adds and subtracts 1.5 * 2^p + bias, so it needs neither a rounding instruction nor a conversion. The
        bits of the integer above the exponent field's width have no meaning. With a zero bias the others are
        n modulo 2^9 (2^12).
        """
        magic = 1.5 * 2.0**self.mantissa + bias
        shifted = self.add(a, magic) if factor == 1.0 else self.fma(a, factor, magic)
        return self.sub(shifted, magic), self.to_bits(shifted)

    def to_bits_of(self, value: float) -> int:
        """The bit pattern of a constant."""
        code, size = ("<f", "<I") if self.bits == 32 else ("<d", "<Q")
        return int(struct.unpack(size, struct.pack(code, value))[0])

    def power_of_two(self, shifted: str) -> str:
        """2^n from the integer that `nearest_product` returns with `bias` = self.bias, if 2^n is a normal
        number.
        """
        return self.from_bits(self.integer("shl", shifted, self.mantissa))

    def scale(self, a: str, shifted: str) -> str:
        """a * 2^n from the integer that `nearest_product` returns with `bias` = 2 * self.bias.

        Multiplies twice by about 2^(n/2), which is right for overflow and gradual underflow if |n| < 2 *
        self.bias.
        """
        half = self.integer("lshr", shifted, 1)
        rest = self.integer("sub", shifted, half)
        return self.mul(self.mul(a, self.power_of_two(half)), self.power_of_two(rest))

    def two_sum(self, a: str, b: str) -> tuple[str, str]:
        """(s, e): s = fl(a + b) and s + e = a + b exactly."""
        s = self.add(a, b)
        back = self.sub(s, a)
        e = self.add(self.sub(a, self.sub(s, back)), self.sub(b, back))
        return s, e

    def fast_two_sum(self, a: str | float, b: str) -> tuple[str, str]:
        """`two_sum` for |a| >= |b|."""
        s = self.add(a, b)
        return s, self.sub(b, self.sub(s, a))

    def two_product(self, a: str, b: str) -> tuple[str, str]:
        """(p, e): p = fl(a * b) and p + e = a * b exactly, without underflow."""
        p = self.mul(a, b)
        if self.fused:
            return p, self.fma(a, b, self.neg(p))
        a1, a2 = self._halves(a)
        b1, b2 = self._halves(b)
        e = self.sub(self.mul(a1, b1), p)
        e = self.add(self.add(e, self.mul(a1, b2)), self.mul(a2, b1))
        return p, self.add(e, self.mul(a2, b2))

    def _halves(self, a: str) -> tuple[str, str]:
        keep = self.integer("and", self.to_bits(a), -(1 << ((self.mantissa + 2) // 2)))
        high = self.from_bits(keep)
        return high, self.sub(a, high)


__all__ = ["Code"]
