"""`Code`: writes straight-line LLVM IR for one element type and lane count, so that each formula is written
once.

A value is its operand text (`%m.3`, `splat (float 0x3FF0000000000000)`); the kind of each operation is in the
method's name: plain names work on floating-point vectors, names beginning with `i` on integer vectors of the
same width, `b` on masks.  `f64` is also reachable from a float32 `Code` through `wide()`.

Temporaries are named `%@.N`; `@` is replaced by a unique prefix when a formula is instantiated, so that
formulas can be cached as templates.

A fused multiply-add is one instruction where the target has it and a product and a sum elsewhere (`llvm.fma`
would call libm per lane there); formulas that need the exact product use `two_product`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What formulas need to know of a target; `vector_bits` 0 means scalar only."""

    vector_bits: int = 128
    fma: bool = False
    rounding: bool = True
    """Whether rounding to integral values is an instruction."""
    float16: bool = False
    """Whether float16 <-> float32 conversion is an instruction."""


def hex_float(value: float) -> str:
    """A constant as LLVM reads it exactly, for float and double alike."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def hex_float32(value: float) -> str:
    """A float32 constant: the value is rounded to float32 first."""
    return hex_float(struct.unpack("<f", struct.pack("<f", value))[0])


class Code:
    """A growing list of lines over vectors of `lanes` elements of `bits`-bit floats (32 or 64); see the
    module.
    """

    def __init__(self, bits: int, lanes: int, machine: Machine, lines: list[str] | None = None) -> None:
        self.bits = bits
        self.lanes = lanes
        self.machine = machine
        self.lines: list[str] = [] if lines is None else lines
        self.scalar_type = "float" if bits == 32 else "double"
        self.type = self._vector(self.scalar_type)
        self.itype = self._vector(f"i{bits}")
        self.btype = self._vector("i1")
        self.mangled = f"f{bits}" if lanes == 1 else f"v{lanes}f{bits}"
        self.mantissa = 23 if bits == 32 else 52
        self.bias = 127 if bits == 32 else 1023

    def _vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def put(self, text: str) -> str:
        """Append an instruction; returns the name of its result."""
        name = f"%@.{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def const(self, value: float) -> str:
        """A floating-point constant in every lane (rounded to the element type)."""
        text = hex_float32(value) if self.bits == 32 else hex_float(value)
        return text if self.lanes == 1 else f"splat ({self.scalar_type} {text})"

    def iconst(self, value: int) -> str:
        """An integer constant in every lane."""
        return str(value) if self.lanes == 1 else f"splat (i{self.bits} {value})"

    def wide(self) -> Code:
        """The same lanes in float64, writing into the same list."""
        return Code(64, self.lanes, self.machine, self.lines)

    # Floating-point operations.  Operands are values or numbers.

    def _of(self, value: str | float) -> str:
        return value if isinstance(value, str) else self.const(value)

    def _two(self, op: str, a: str | float, b: str | float) -> str:
        return self.put(f"{op} {self.type} {self._of(a)}, {self._of(b)}")

    def add(self, a: str | float, b: str | float) -> str:
        """a + b"""
        return self._two("fadd", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        """a - b"""
        return self._two("fsub", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        """a * b"""
        return self._two("fmul", a, b)

    def div(self, a: str | float, b: str | float) -> str:
        """a / b"""
        return self._two("fdiv", a, b)

    def neg(self, a: str) -> str:
        """-a"""
        return self.put(f"fneg {self.type} {a}")

    def call(self, intrinsic: str, *args: str | float) -> str:
        """An intrinsic overloaded on the vector type only."""
        listed = ", ".join(f"{self.type} {self._of(arg)}" for arg in args)
        return self.put(f"call {self.type} @llvm.{intrinsic}.{self.mangled}({listed})")

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        """a * b + c, fused where the target fuses."""
        if self.machine.fma:
            return self.call("fma", a, b, c)
        return self.add(self.mul(a, b), c)

    def fnma(self, a: str | float, b: str, c: str | float) -> str:
        """c - a * b, fused where the target fuses; `a` is best a constant."""
        if isinstance(a, float):
            return self.fma(-a, b, c)
        if self.machine.fma:
            return self.fma(self.neg(a), b, c)
        return self.sub(c, self.mul(a, b))

    def abs(self, a: str) -> str:
        """|a|"""
        return self.call("fabs", a)

    def sqrt(self, a: str) -> str:
        """Square root, correctly rounded."""
        return self.call("sqrt", a)

    def copysign(self, magnitude: str | float, sign: str) -> str:
        """`magnitude` with the sign of `sign`."""
        return self.call("copysign", magnitude, sign)

    def compare(self, relation: str, a: str | float, b: str | float) -> str:
        """`fcmp relation`: olt, oeq, uno, ... as a mask."""
        return self.put(f"fcmp {relation} {self.type} {self._of(a)}, {self._of(b)}")

    def select(self, mask: str, yes: str | float, no: str | float) -> str:
        """Lane by lane choice between floats."""
        return self.put(
            f"select {self.btype} {mask}, {self.type} {self._of(yes)}, {self.type} {self._of(no)}"
        )

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
        return self._of(result)

    def estrin(self, x: str, coefficients: tuple[float, ...]) -> str:
        """The same polynomial by pairs: a shorter chain of dependences for high degrees."""
        terms: list[str | float] = list(coefficients)
        power = x
        while len(terms) > 1:
            last = terms[-1:] if len(terms) % 2 else []
            pairs = zip(terms[0::2], terms[1::2], strict=False)
            terms = [*(self.fma(power, high, low) for low, high in pairs), *last]
            if len(terms) > 1:
                power = self.mul(power, power)
        return self._of(terms[0])

    # Integers and masks.

    def _int(self, value: str | int) -> str:
        return value if isinstance(value, str) else self.iconst(value)

    def integer(self, op: str, a: str | int, b: str | int) -> str:
        """An integer instruction: add, sub, and, or, xor, shl, lshr, ashr, mul."""
        return self.put(f"{op} {self.itype} {self._int(a)}, {self._int(b)}")

    def icompare(self, relation: str, a: str | int, b: str | int) -> str:
        """`icmp relation` as a mask."""
        return self.put(f"icmp {relation} {self.itype} {self._int(a)}, {self._int(b)}")

    def iselect(self, mask: str, yes: str | int, no: str | int) -> str:
        """Lane by lane choice between integers."""
        return self.put(
            f"select {self.btype} {mask}, {self.itype} {self._int(yes)}, {self.itype} {self._int(no)}"
        )

    def mask(self, op: str, a: str, b: str) -> str:
        """and, or, xor of masks."""
        return self.put(f"{op} {self.btype} {a}, {b}")

    def to_bits(self, a: str) -> str:
        """The bit pattern of a float."""
        return self.put(f"bitcast {self.type} {a} to {self.itype}")

    def from_bits(self, a: str) -> str:
        """The float of a bit pattern."""
        return self.put(f"bitcast {self.itype} {a} to {self.type}")

    def to_float(self, a: str) -> str:
        """Signed integer to float."""
        return self.put(f"sitofp {self.itype} {a} to {self.type}")

    def nearest_product(self, a: str, factor: float, bias: int = 0) -> tuple[str, str]:
        """(n = round(a * factor) as float, an integer whose low bits are n + bias), for |n| below 2^21
        (2^50).

        Adds and takes away 1.5 * 2^p + bias, which needs neither a rounding instruction nor a conversion.
        The bits of the integer above the exponent field's width are of no meaning; those of `bias` zero make
        it n modulo 2^9 (2^12).
        """
        magic = 1.5 * 2.0**self.mantissa + bias
        shifted = self.add(a, magic) if factor == 1.0 else self.fma(a, factor, magic)
        return self.sub(shifted, magic), self.to_bits(shifted)

    def to_bits_of(self, value: float) -> int:
        """The bit pattern of a constant."""
        code, size = ("<f", "<I") if self.bits == 32 else ("<d", "<Q")
        return int(struct.unpack(size, struct.pack(code, value))[0])

    def power_of_two(self, shifted: str) -> str:
        """2^n from the integer `nearest_product` gave with `bias` = self.bias, for n of normal powers."""
        return self.from_bits(self.integer("shl", shifted, self.mantissa))

    def scale(self, a: str, shifted: str) -> str:
        """a * 2^n from the integer `nearest_product` gave with `bias` = 2 * self.bias.

        Multiplies twice, by about 2^(n/2): right for overflow and gradual underflow while |n| < 2 *
        self.bias.
        """
        half = self.integer("lshr", shifted, 1)
        rest = self.integer("sub", shifted, half)
        return self.mul(self.mul(a, self.power_of_two(half)), self.power_of_two(rest))

    # Pairs of floats whose sum carries twice the precision.

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
        """(p, e): p = fl(a * b) and p + e = a * b exactly (barring underflow)."""
        p = self.mul(a, b)
        if self.machine.fma:
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


__all__ = ["Code", "Machine", "hex_float", "hex_float32"]
