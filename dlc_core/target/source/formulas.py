"""Vector math as functions of the C family: the shared formulas, over vectors of the language."""

from __future__ import annotations

from collections.abc import Callable

from dlc_core.ir.dtype import DType, dtype
from dlc_core.target.source.tokens import literal
from dlc_core.target.vmath import FORMULAS, Code

_INT = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "shl": "<<", "lshr": ">>", "mul": "*"}
_ORDER = {"olt": "<", "ole": "<=", "ogt": ">", "oge": ">=", "oeq": "==", "une": "!="}
_SIGNED = {"slt": "<", "sgt": ">", "sle": "<=", "sge": ">=", "eq": "==", "ne": "!="}


class SourceCode(Code):
    """Code that names each value; integers are unsigned, bools are masks."""

    def __init__(
        self, type_: DType, helper: Callable[[str, DType], str], name: Callable[[DType], str]
    ) -> None:
        # Compilers may or may not fuse a product and a sum, so no formula may depend on it.
        super().__init__(type_.bits, fused=False)
        lanes = type_.lanes
        self.element = type_.scalar
        self.type = type_
        self.unsigned = dtype(f"uint{type_.bits}").with_lanes(lanes)
        self.signed = dtype(f"int{type_.bits}").with_lanes(lanes)
        self.lines: list[str] = []
        self._helper = helper
        self._name = name

    def put(self, type_: DType, text: str) -> str:
        """Assign a text to a new name."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"    const {self._name(type_)} {name} = {text};")
        return name

    def const(self, value: float) -> str:
        return f"{self._helper('splat', self.type)}({literal(value, self.element)})"

    def _of(self, value: str | float) -> str:
        """An operand of a vector operation. A number stays a scalar, because the language widens it."""
        return value if isinstance(value, str) else literal(value, self.element)

    def _splat(self, value: str | float) -> str:
        return value if isinstance(value, str) else self.const(value)

    def _two(self, sign: str, a: str | float, b: str | float) -> str:
        left = self._splat(a) if not isinstance(b, str) else self._of(a)
        return self.put(self.type, f"{left} {sign} {self._of(b)}")

    def add(self, a: str | float, b: str | float) -> str:
        return self._two("+", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        return self._two("-", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        return self._two("*", a, b)

    def div(self, a: str | float, b: str | float) -> str:
        return self._two("/", a, b)

    def neg(self, a: str) -> str:
        return self.put(self.type, f"-{a}")

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        left = self._splat(a) if not isinstance(b, str) else self._of(a)
        return self.put(self.type, f"{left} * {self._of(b)} + {self._of(c)}")

    def abs(self, a: str) -> str:
        return self.from_bits(self.integer("and", self.to_bits(a), (1 << (self.bits - 1)) - 1))

    def sqrt(self, a: str) -> str:
        return self.put(self.type, f"{self._helper('sqrt', self.type)}({a})")

    def copysign(self, magnitude: str | float, sign: str) -> str:
        bit = 1 << (self.bits - 1)
        size = self.integer("and", self.to_bits(self._splat(magnitude)), bit - 1)
        return self.from_bits(self.integer("or", size, self.integer("and", self.to_bits(sign), bit)))

    def compare(self, relation: str, a: str | float, b: str | float) -> str:
        if relation == "uno":
            return self.put(self.signed, f"({a} != {a}) | ({b} != {b})")
        left = self._splat(a)
        if relation == "one":
            return self.put(self.signed, f"({left} < {self._of(b)}) | ({left} > {self._of(b)})")
        return self.put(self.signed, f"{left} {_ORDER[relation]} {self._of(b)}")

    def select(self, mask: str, yes: str | float, no: str | float) -> str:
        name = self._helper("select", self.type)
        return self.put(self.type, f"{name}({mask}, {self._splat(yes)}, {self._splat(no)})")

    def _int(self, value: str | int, *, splat: bool = False) -> str:
        if isinstance(value, str):
            return value
        text = literal(value % (1 << self.bits), self.unsigned.scalar)
        return f"{self._helper('splat', self.unsigned)}({text})" if splat else text

    def integer(self, op: str, a: str | int, b: str | int) -> str:
        if op == "ashr":
            signed = self._name(self.signed)
            return self.put(self.unsigned, f"({self._name(self.unsigned)})(({signed}){a} >> {b})")
        left = self._int(a, splat=not isinstance(b, str))
        return self.put(self.unsigned, f"{left} {_INT[op]} {self._int(b)}")

    def icompare(self, relation: str, a: str | int, b: str | int) -> str:
        signed = self._name(self.signed)
        left, right = (f"({signed}){self._int(v, splat=True)}" for v in (a, b))
        return self.put(self.signed, f"{left} {_SIGNED[relation]} {right}")

    def iselect(self, mask: str, yes: str | int, no: str | int) -> str:
        name = self._helper("select", self.unsigned)
        return self.put(
            self.unsigned, f"{name}({mask}, {self._int(yes, splat=True)}, {self._int(no, splat=True)})"
        )

    def mask(self, op: str, a: str, b: str) -> str:
        return self.put(self.signed, f"{a} {_INT[op]} {b}")

    def to_bits(self, a: str) -> str:
        return self.put(self.unsigned, f"({self._name(self.unsigned)}){a}")

    def from_bits(self, a: str) -> str:
        return self.put(self.type, f"({self._name(self.type)}){a}")

    def to_float(self, a: str) -> str:
        signed = self._name(self.signed)
        return self.put(self.type, f"__builtin_convertvector(({signed}){a}, {self._name(self.type)})")


def formula_text(
    op: str, type_: DType, inline: str, helper: Callable[[str, DType], str], name: Callable[[DType], str]
) -> str:
    """The function `dlc_<op>_<vector type>` of one operand."""
    code = SourceCode(type_, helper, name)
    result = FORMULAS[op](code, "x")
    kind = name(type_)
    head = f"{inline} {kind} dlc_{op}_{kind}({kind} x)"
    return "\n".join([head, "{", *code.lines, f"    return {result};", "}", ""])


__all__ = ["FORMULAS", "SourceCode", "formula_text"]
