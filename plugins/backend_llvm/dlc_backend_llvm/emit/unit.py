"""An LLVM module under construction: declarations, helper functions, and instructions for intrinsics."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emit.clock import CLOCK, clock_ir
from dlc_backend_llvm.emit.power import integer_power
from dlc_backend_llvm.emit.types import literal, register_type, suffix, vector
from dlc_backend_llvm.foreign import chosen_for, declaration
from dlc_backend_llvm.pool_text import has_stops
from dlc_backend_llvm.vmath import VMath, machine_of
from dlc_core.diag import CodegenError
from dlc_core.ir.dtype import DType

Fresh = Callable[[], str]

_LLVM = {
    "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc",
    "fma": "fma", "copysign": "copysign",
}  # fmt: skip
_ROUNDING = ("floor", "ceil", "round", "trunc")
_REDUCE = {"vector_reduce_add": "fadd", "vector_reduce_max": "max", "vector_reduce_min": "min"}


class Part(NamedTuple):
    """The text of one function, the declarations and helpers that it refers to, and the foreign functions
    that it calls.
    """

    functions: Sequence[str]
    declared: dict[str, str]
    helpers: dict[str, str]
    math: dict[str, str]
    foreign: dict[str, str]


class Unit:
    """An LLVM module under construction. `text()` returns the functions with all declarations and helpers."""

    def __init__(self, cpu: HostCpu) -> None:
        self.cpu = cpu
        self.vmath = VMath(machine_of(cpu))
        self._declared: dict[str, str] = {}
        self.functions: list[str] = []
        self.helpers: dict[str, str] = {}
        self.foreign: dict[str, str] = {}
        """The symbols of foreign functions, by name."""
        self.stops = has_stops(cpu.triple)
        """Whether code looks whether its call is cancelled."""

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function, unless it is already declared. `signature` is `type @name(types)`."""
        self._declared.setdefault(name, f"declare {signature}")

    def part(self) -> Part:
        """The contents of this unit."""
        return Part(tuple(self.functions), self._declared, self.helpers, self.vmath.needed, self.foreign)

    def add(self, part: Part) -> None:
        """Add the contents of another unit for the same machine."""
        self.functions += part.functions
        for own, more in (
            (self._declared, part.declared), (self.helpers, part.helpers), (self.vmath.needed, part.math),
            (self.foreign, part.foreign),
        ):  # fmt: skip
            own.update((name, text) for name, text in more.items() if name not in own)

    def call_foreign(self, name: str, where: str) -> str:
        """Declare a foreign function. Returns the type of its result and its symbol, as in a call."""
        chosen = chosen_for(name, where, self.cpu)
        signature = declaration(chosen.function.prototype, chosen.symbol)
        self.declare(chosen.symbol, signature)
        self.foreign[name] = chosen.symbol
        return signature.partition("(")[0]

    def use_clock(self) -> None:
        """Define the function that reads the monotonic clock, unless it is already defined."""
        if CLOCK not in self.helpers:
            self.helpers[CLOCK] = clock_ir(self.cpu.triple)

    def text(self) -> str:
        """The whole module."""
        parts = [
            *self._declared.values(),
            "",
            *self.functions,
            *self.helpers.values(),
            self.vmath.functions(),
        ]
        return "\n".join(parts) + "\n"

    @staticmethod
    def overload(type_text: str) -> str:
        """The overload suffix of a type: `<8 x float>` is `v8f32`."""
        match = re.fullmatch(r"<(\d+) x (\w+)>", type_text)
        lanes, scalar = (f"v{match.group(1)}", match.group(2)) if match else ("", type_text)
        return lanes + {"float": "f32", "double": "f64", "half": "f16"}.get(scalar, scalar)

    def intrinsic(
        self, name: str, args: Sequence[str], operand: DType, fresh: Fresh
    ) -> tuple[list[str], str]:
        """The lines and the result of an intrinsic on operands of dtype `operand`, which includes
        the lanes.
        """
        lines: list[str] = []

        def emit(instruction: str) -> str:
            target = fresh()
            lines.append(f"  {target} = {instruction}")
            return target

        kind = register_type(operand)
        if name in _REDUCE:
            return lines, self._reduce(name, args[0], operand, emit)
        if not operand.is_float:
            return lines, self._integer(name, args, operand, emit)
        if name in _LLVM and (self.vmath.machine.rounding or name not in _ROUNDING):
            return lines, self._call_llvm(_LLVM[name], args, operand, emit)
        if name == "rounded_mul":
            return lines, emit(f"fmul {kind} {args[0]}, {args[1]}")
        if name == "isnan":
            return lines, emit(f"fcmp uno {kind} {args[0]}, {args[0]}")
        if name == "isinf":
            magnitude = self._call_llvm("fabs", args, operand, emit)
            return lines, emit(f"fcmp oeq {kind} {magnitude}, {self._splat(float('inf'), operand)}")
        if name == "sign":
            return lines, self._sign(args[0], operand, emit)
        if name == "rsqrt":
            root = self._call_llvm("sqrt", args, operand, emit)
            return lines, emit(f"fdiv {kind} {self._splat(1.0, operand)}, {root}")
        return lines, self._vector_math(name, args, operand, fresh, lines)

    def _vector_math(
        self, name: str, args: Sequence[str], type_: DType, fresh: Fresh, lines: list[str]
    ) -> str:
        """An operation of the vector math. It needs a power of two of lanes; other vectors are padded."""
        lanes, kind = type_.lanes, register_type(type_)
        full = 1 << (lanes - 1).bit_length()

        def shuffled(value: str, old: str, indices: Sequence[int]) -> str:
            mask = ", ".join(f"i32 {index}" for index in indices)
            result = fresh()
            lines.append(
                f"  {result} = shufflevector {old} {value}, {old} poison, <{len(indices)} x i32> <{mask}>"
            )
            return result

        if full != lanes:
            args = [shuffled(arg, kind, [min(i, lanes - 1) for i in range(full)]) for arg in args]
        more, value = self.vmath.emit(name, list(args), type_.scalar.name, full, fresh)
        lines += [f"  {line}" for line in more]
        if full == lanes:
            return value
        return shuffled(value, register_type(type_.scalar.with_lanes(full)), range(lanes))

    def _splat(self, value: float, type_: DType) -> str:
        scalar = literal(value, type_.scalar)
        return scalar if type_.lanes == 1 else f"splat ({register_type(type_.scalar)} {scalar})"

    def _call_llvm(self, name: str, args: Sequence[str], type_: DType, emit: Callable[[str], str]) -> str:
        if name == "fma" and self.cpu.arch == "wasm32":
            name = "fmuladd"  # relaxed: the runtime rounds once or twice
        full, kind = f"llvm.{name}.{suffix(type_)}", register_type(type_)
        self.declare(full, f"{kind} @{full}({', '.join([kind] * len(args))})")
        return emit(f"call {kind} @{full}({', '.join(f'{kind} {a}' for a in args)})")

    def _sign(self, a: str, type_: DType, emit: Callable[[str], str]) -> str:
        """-1, 0 or 1. Signed zeros and NaN are unchanged."""
        kind, flags = register_type(type_), vector("i1", type_.lanes)
        zero = "zeroinitializer" if type_.lanes > 1 else literal(0.0, type_)
        one = self._call_llvm("copysign", [self._splat(1.0, type_), a], type_, emit)
        moved = emit(f"fcmp one {kind} {a}, {zero}")
        return emit(f"select {flags} {moved}, {kind} {one}, {kind} {a}")

    def _integer(self, name: str, args: Sequence[str], type_: DType, emit: Callable[[str], str]) -> str:
        kind, flags = register_type(type_), vector("i1", type_.lanes)
        zero = "zeroinitializer" if type_.lanes > 1 else "0"
        if name == "abs":
            if type_.kind == "uint":
                return args[0]
            negative = emit(f"icmp slt {kind} {args[0]}, {zero}")
            opposite = emit(f"sub {kind} {zero}, {args[0]}")
            return emit(f"select {flags} {negative}, {kind} {opposite}, {kind} {args[0]}")
        if name == "sign":
            above = emit(f"zext {flags} {emit(f'icmp ne {kind} {args[0]}, {zero}')} to {kind}")
            if type_.kind == "uint":
                return above
            below = emit(f"icmp slt {kind} {args[0]}, {zero}")
            minus = "-1" if type_.lanes == 1 else f"splat ({register_type(type_.scalar)} -1)"
            return emit(f"select {flags} {below}, {kind} {minus}, {kind} {above}")
        if name == "popcount":
            return self._call_llvm("ctpop", args, type_, emit)
        if name == "pow":
            helper, text = integer_power(type_)
            self.helpers.setdefault(helper, text)
            return emit(f"call {kind} @{helper}({kind} {args[0]}, {kind} {args[1]})")
        if name in ("floor", "ceil", "round", "trunc"):
            return args[0]
        raise CodegenError(
            f"intrinsic {name} is not defined on {type_}", hint="cast the argument to a float dtype"
        )

    def _reduce(self, name: str, a: str, type_: DType, emit: Callable[[str], str]) -> str:
        """A horizontal reduction. Halves are combined while the number of lanes is even, then lanes one by
        one.
        """
        lanes, kind = type_.lanes, register_type(type_)
        scalar = register_type(type_.scalar)
        while lanes % 2 == 0:
            half = lanes // 2
            low = ", ".join(f"i32 {i}" for i in range(half))
            high = ", ".join(f"i32 {i + half}" for i in range(half))
            left = emit(f"shufflevector {kind} {a}, {kind} poison, <{half} x i32> <{low}>")
            right = emit(f"shufflevector {kind} {a}, {kind} poison, <{half} x i32> <{high}>")
            kind, lanes = f"<{half} x {scalar}>", half
            a = self._combine(name, left, right, kind, type_, half, emit)
        if type_.lanes == 1:
            return a
        single = f"<1 x {scalar}>"
        if lanes == 1:
            return emit(f"extractelement {single} {a}, i32 0")
        parts = [emit(f"shufflevector {kind} {a}, {kind} poison, <1 x i32> <i32 {i}>") for i in range(lanes)]
        total = parts[0]
        for part in parts[1:]:
            total = self._combine(name, total, part, single, type_, 1, emit)
        return emit(f"extractelement {single} {total}, i32 0")

    def _combine(
        self, name: str, a: str, b: str, kind: str, type_: DType, lanes: int, emit: Callable[[str], str]
    ) -> str:
        if name == "vector_reduce_add":
            return emit(f"{'fadd' if type_.is_float else 'add'} {kind} {a}, {b}")
        flags = f"<{lanes} x i1>"
        order = "gt" if name == "vector_reduce_max" else "lt"
        if not type_.is_float:
            sign = "s" if type_.kind == "int" else "u"
            first = emit(f"icmp {sign}{order} {kind} {a}, {b}")
            return emit(f"select {flags} {first}, {kind} {a}, {kind} {b}")
        best = emit(f"select {flags} {emit(f'fcmp o{order} {kind} {a}, {b}')}, {kind} {a}, {kind} {b}")
        return emit(f"select {flags} {emit(f'fcmp uno {kind} {a}, {a}')}, {kind} {a}, {kind} {best}")
