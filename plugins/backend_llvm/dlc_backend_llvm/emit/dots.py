"""Code for `vector_dot`: dot products of narrow elements by the instructions of a processor."""

from __future__ import annotations

from dlc_backend_llvm.dots import Instruction, instruction, pairs_of_words
from dlc_backend_llvm.emit.types import NARROW_FLOATS, memory_type, register_type, vector
from dlc_backend_llvm.emit.values import ValueEmitter
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import Call, Expr, call

GROUP = "vector_group"
"""The internal function for an operand of `vector_dot` in the form that instructions take: one word of 32
bits, which holds a group, for each lane.
"""


def emit_dot(emitter: ValueEmitter, expr: Call) -> str:
    """Emit a `vector_dot` and return its value."""
    return _Emit(emitter, expr).run()


def emit_group(emitter: ValueEmitter, expr: Call) -> str:
    """Emit a `GROUP`. An operand of one group is broadcast to all lanes."""
    (bits,) = expr.args
    lanes, size = expr.dtype.lanes, bits.dtype.lanes * bits.dtype.bits
    one = emitter.value(bits)
    if size == 32 * lanes:
        return emitter.emit(f"bitcast {memory_type(bits.dtype)} {one} to {vector('i32', lanes)}")
    word = emitter.emit(f"bitcast {memory_type(bits.dtype)} {one} to i32")
    first = emitter.emit(f"insertelement <{lanes} x i32> poison, i32 {word}, i32 0")
    return emitter.emit(
        f"shufflevector <{lanes} x i32> {first}, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer"
    )


def bits_of(expr: Expr) -> Expr:
    """An expression for the bits of a value in memory. Narrow floats are wider in registers."""
    if expr.dtype.scalar.name not in NARROW_FLOATS:
        return expr
    return call("reinterpret", (expr,), dtype(f"uint{expr.dtype.bits}").with_lanes(expr.dtype.lanes))


class _Emit:
    def __init__(self, emitter: ValueEmitter, expr: Call) -> None:
        self.e = emitter
        self.acc, self.a, self.b = expr.args
        self.lanes = self.acc.dtype.lanes
        self.group = self.b.dtype.lanes // self.lanes

    def run(self) -> str:
        cpu, a, b = self.e.unit.cpu, self.a.dtype.scalar, self.b.dtype.scalar
        sum32 = self.acc.dtype.scalar.name in ("float32", "int32")
        if not sum32 or self.lanes > cpu.lanes(32) or self.group * a.bits != 32 or a.bits != b.bits:
            return self.expanded()
        found = instruction(cpu, a.name, b.name)
        if found is not None:
            acc = self.e.value(self.acc)
            return self.narrowed(found, *self.fit(found.names), acc, self.word(self.a), self.word(self.b))
        if a.bits == b.bits == 8:
            for signs in (("uint8", "int8"), ("int8", "int8")):
                other = instruction(cpu, *signs)
                made = None if other is None else self.corrected(signs, other)
                if made is not None:
                    return made
            pairs = pairs_of_words(cpu)
            if pairs:
                return self.by_pairs(pairs)
        return self.expanded()

    # Lanes of instructions

    def fit(self, names: dict[int, str]) -> tuple[str, int]:
        """The narrowest instruction with at least as many lanes: its name and its lanes."""
        wide = min(n for n in names if n >= self.lanes)
        return names[wide], wide

    def word(self, operand: Expr) -> str:
        """An operand as one word for each lane."""
        words = call(GROUP, (bits_of(operand),), dtype("int32").with_lanes(self.lanes))
        return self.e.value(words)

    def widened(self, value: str, scalar: str, lanes: int) -> str:
        """The vector, padded with poison to `lanes` lanes."""
        if lanes == self.lanes:
            return value
        if self.lanes == 1:
            return self.e.emit(f"insertelement <{lanes} x {scalar}> poison, {scalar} {value}, i32 0")
        indices = ", ".join(f"i32 {i}" if i < self.lanes else "i32 poison" for i in range(lanes))
        old = f"<{self.lanes} x {scalar}>"
        return self.e.emit(f"shufflevector {old} {value}, {old} poison, <{lanes} x i32> <{indices}>")

    def first(self, value: str, scalar: str, lanes: int) -> str:
        """The first `self.lanes` lanes of a padded vector."""
        if lanes == self.lanes:
            return value
        if self.lanes == 1:
            return self.e.emit(f"extractelement <{lanes} x {scalar}> {value}, i32 0")
        indices = ", ".join(f"i32 {i}" for i in range(self.lanes))
        old = f"<{lanes} x {scalar}>"
        return self.e.emit(f"shufflevector {old} {value}, {old} poison, <{self.lanes} x i32> <{indices}>")

    def narrowed(self, how: Instruction, name: str, lanes: int, acc: str, a: str, b: str) -> str:
        """Emit the instruction on operands that are padded to its lanes."""
        scalar = register_type(self.acc.dtype.scalar)
        operands = [self.widened(acc, scalar, lanes)]
        size = 16 if how.element == "bfloat" else 8
        kind = f"<{lanes * 32 // size} x {how.element}>"
        for word in (a, b):
            wide = self.widened(word, "i32", lanes)
            operands.append(self.e.emit(f"bitcast <{lanes} x i32> {wide} to {kind}"))
        type_ = f"<{lanes} x {scalar}>"
        self.e.unit.declare(name, f"{type_} @{name}({type_}, {kind}, {kind})")
        values = f"{type_} {operands[0]}, {kind} {operands[1]}, {kind} {operands[2]}"
        return self.first(self.e.emit(f"call {type_} @{name}({values})"), scalar, lanes)

    # Integers by other instructions

    def _int(self, op: str, a: str, b: str) -> str:
        return self.e.emit(f"{op} {vector('i32', self.lanes)} {a}, {b}")

    def _splat(self, value: int) -> str:
        return str(value) if self.lanes == 1 else f"splat (i32 {value})"

    def corrected(self, has: tuple[str, str], how: Instruction) -> str | None:
        """Use an instruction for bytes of the dtypes `has`, although one operand has the other signedness.

        128 is added to or subtracted from that operand by flipping the sign bits, and the effect on the sum
        is subtracted. None if both operands have other dtypes.
        """
        fit = self.fit(how.names)
        operands = [self.a, self.b]
        if (self.b.dtype.scalar.name, self.a.dtype.scalar.name) == has:
            operands.reverse()
        wrong = [k for k in (0, 1) if operands[k].dtype.scalar.name != has[k]]
        if len(wrong) > 1:
            return None
        acc, words = self.e.value(self.acc), [self.word(operand) for operand in operands]
        if not wrong:
            return self.narrowed(how, *fit, acc, *words)
        moved, flip = list(words), self._splat(-0x7F7F7F80)
        moved[wrong[0]] = self._int("xor", words[wrong[0]], flip)
        total = self.narrowed(how, *fit, acc, *moved)
        moved[wrong[0]] = flip
        zero = "0" if self.lanes == 1 else "zeroinitializer"
        return self._int("sub", total, self.narrowed(how, *fit, zero, *moved))

    def by_pairs(self, pairs: dict[int, str]) -> str:
        """Use instructions that sum two products of int16: first for the even bytes of each group, then for
        the odd ones.
        """
        name, lanes = self.fit(pairs)
        acc = self.e.value(self.acc)
        for odd in (False, True):
            halves = []
            for operand in (self.a, self.b):
                half = self.halves(operand, odd)
                wide = self.widened(half, "i32", lanes)
                halves.append(self.e.emit(f"bitcast <{lanes} x i32> {wide} to <{2 * lanes} x i16>"))
            kind, type_ = f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
            self.e.unit.declare(name, f"{type_} @{name}({kind}, {kind})")
            part = self.e.emit(f"call {type_} @{name}({kind} {halves[0]}, {kind} {halves[1]})")
            acc = self._int("add", acc, self.first(part, "i32", lanes))
        return acc

    def halves(self, operand: Expr, odd: bool) -> str:
        """The even or odd bytes of each word as int16."""
        word, kind = self.word(operand), f"<{2 * self.lanes} x i16>"
        words = self.e.emit(f"bitcast {vector('i32', self.lanes)} {word} to {kind}")
        shift = "ashr" if operand.dtype.kind == "int" else "lshr"
        if not odd:
            words = self.e.emit(f"shl {kind} {words}, splat (i16 8)")
        half = self.e.emit(f"{shift} {kind} {words}, splat (i16 8)")
        return self.e.emit(f"bitcast {kind} {half} to {vector('i32', self.lanes)}")

    # No instruction

    def expanded(self) -> str:
        """Multiply and add the elements of the groups one by one, in the dtype of the sum."""
        total = self.e.value(self.acc)
        type_ = self.acc.dtype
        kind = register_type(type_)
        multiply, add = ("fmul contract", "fadd contract") if type_.is_float else ("mul", "add")
        for index in range(self.group):
            a, b = (self.element(x, index, type_) for x in (self.a, self.b))
            product = self.e.emit(f"{multiply} {kind} {a}, {b}")
            total = self.e.emit(f"{add} {kind} {total}, {product}")
        return total

    def element(self, operand: Expr, index: int, type_: DType) -> str:
        """Element `index` of the group of each lane, converted to `type_`."""
        value, have = self.e.value(operand), operand.dtype.lanes
        shared = have == self.group and self.lanes > 1
        indices = [index + (0 if shared else lane * self.group) for lane in range(self.lanes)]
        old, scalar = register_type(operand.dtype), operand.dtype.scalar
        if have > 1 and self.lanes == 1:
            value = self.e.emit(f"extractelement {old} {value}, i32 {index}")
        elif have > 1:
            text = ", ".join(f"i32 {i}" for i in indices)
            value = self.e.emit(f"shufflevector {old} {value}, {old} poison, <{self.lanes} x i32> <{text}>")
        elif self.lanes > 1:
            one = self.e.emit(f"insertelement {vector(old, self.lanes)} poison, {old} {value}, i32 0")
            value = self.e.emit(
                f"shufflevector {vector(old, self.lanes)} {one}, {vector(old, self.lanes)} poison, "
                f"<{self.lanes} x i32> zeroinitializer"
            )
        return self.e.cast(value, scalar.with_lanes(self.lanes), type_)


__all__ = ["GROUP", "emit_dot", "emit_group"]
