"""`Code` emits straight-line LLVM IR for one element type and number of lanes. So each formula is written
once for all types.

A value is an LLVM operand (`%m.3`, `splat (float 0x3FF0000000000000)`). Methods with plain names work on
floating-point vectors, those whose names begin with `i` on integer vectors of the same width, and those that
begin with `b` on masks. `wide()` of a float32 `Code` returns one for float64.

Temporaries are named `%@.N`. `@` is replaced by a unique prefix when a formula is instantiated, so that
formulas are cached as templates.

A fused multiply-add is one instruction if the target has it. Otherwise it is a product and a sum, because
`llvm.fma` would call libm for each lane. Formulas that need the exact product use `two_product`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dlc_core.target.vmath.code import Code as Formula


@dataclass(frozen=True)
class Machine:
    """The properties of a target that formulas depend on. `vector_bits` 0 means scalar code."""

    vector_bits: int = 128
    fma: bool = False
    rounding: bool = True
    """Whether rounding to integral values is an instruction."""
    float16: bool = False
    """Whether conversions between float16 and float32 are instructions."""


def hex_float(value: float) -> str:
    """An exact constant in LLVM's syntax, for float and double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def hex_float32(value: float) -> str:
    """A constant that is first rounded to float32."""
    return hex_float(struct.unpack("<f", struct.pack("<f", value))[0])


class Code(Formula):
    """Emits lines over vectors of `lanes` floats of `bits` bits, 32 or 64 (see the module)."""

    def __init__(self, bits: int, lanes: int, machine: Machine, lines: list[str] | None = None) -> None:
        super().__init__(bits, fused=machine.fma)
        self.lanes = lanes
        self.machine = machine
        self.lines: list[str] = [] if lines is None else lines
        self.scalar_type = "float" if bits == 32 else "double"
        self.type = self._vector(self.scalar_type)
        self.itype = self._vector(f"i{bits}")
        self.btype = self._vector("i1")
        self.mangled = f"f{bits}" if lanes == 1 else f"v{lanes}f{bits}"

    def _vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def put(self, text: str) -> str:
        """Append an instruction, and return the name of its result."""
        name = f"%@.{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def const(self, value: float) -> str:
        """A floating-point constant in all lanes, rounded to the element type."""
        text = hex_float32(value) if self.bits == 32 else hex_float(value)
        return text if self.lanes == 1 else f"splat ({self.scalar_type} {text})"

    def iconst(self, value: int) -> str:
        """An integer constant in all lanes."""
        return str(value) if self.lanes == 1 else f"splat (i{self.bits} {value})"

    def wide(self) -> Code:
        """A `Code` for float64 with the same lanes, which appends to the same list."""
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
        """A call of an intrinsic whose only overload is the vector type."""
        listed = ", ".join(f"{self.type} {self._of(arg)}" for arg in args)
        return self.put(f"call {self.type} @llvm.{intrinsic}.{self.mangled}({listed})")

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        """a * b + c, fused if the target has FMA."""
        if self.machine.fma:
            return self.call("fma", a, b, c)
        return self.add(self.mul(a, b), c)

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
        """Select floats by lane."""
        return self.put(
            f"select {self.btype} {mask}, {self.type} {self._of(yes)}, {self.type} {self._of(no)}"
        )

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
        """Select integers by lane."""
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


__all__ = ["Code", "Machine", "hex_float", "hex_float32"]
