"""Conversion of expressions to instructions.

Pure expressions are placed in the prefix of the scope of their innermost variable (see `scope.py`).
Expressions that read memory or may trap are not moved. Their values are reused until the memory is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dlc_backend_llvm.emit.address import affine, sum_of
from dlc_backend_llvm.emit.dots import GROUP, emit_dot, emit_group
from dlc_backend_llvm.emit.operators import binary_instruction, cast_instructions, unary_instruction
from dlc_backend_llvm.emit.types import NARROW_FLOATS, memory_type, register_type, vector
from dlc_backend_llvm.emit.values import ValueEmitter
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType, dtype
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    const,
    const_value,
)
from dlc_core.tir.intrinsics import PURE_EXTERN
from dlc_core.tir.lanes import lane_of, ramp_form


class ExpressionEmitter(ValueEmitter):
    """Emits the expressions of one function. The subclass in `function.py` emits the statements."""

    def _instruction(self, expr: Expr) -> str:
        if isinstance(expr, Load):
            return self._load(expr)
        if isinstance(expr, Unary):
            return self._rounded(
                self.emit(unary_instruction(expr.op, expr.dtype, self.value(expr.a))), expr.dtype
            )
        if isinstance(expr, Binary):
            a, b = self.value(expr.a), self.value(expr.b)
            floors = expr.op in ("floordiv", "floormod") and self.nonnegative(expr.a)
            if expr.op == "truncmod" and expr.dtype.is_float:
                wide = dtype("float32").with_lanes(expr.dtype.lanes) if expr.dtype.bits < 32 else expr.dtype
                lines, result = self.unit.intrinsic("fmod", [a, b], wide, self.fresh)
            else:
                lines, result = binary_instruction(expr, a, b, self.fresh, floors)
            self.lines.extend(lines)
            return self._rounded(result, expr.dtype) if expr.op not in ("min", "max") else result
        if isinstance(expr, Cast):
            return self.cast(self.value(expr.a), expr.a.dtype, expr.dtype)
        if isinstance(expr, Select):
            return self.emit(f"select {self.typed(expr.cond)}, {self.typed(expr.a)}, {self.typed(expr.b)}")
        if isinstance(expr, Broadcast):
            return self._splat(expr.value, expr.lanes)
        if isinstance(expr, Ramp):
            return self._ramp(expr)
        assert isinstance(expr, Call)
        return self._call(expr)

    def nonnegative(self, expr: Expr) -> bool:
        """Whether an integer expression is known to be at least 0."""
        return False

    def _rounded(self, operand: str, type_: DType) -> str:
        """Round the float32 result of an operation on float16 or bfloat16 to a value of that dtype."""
        if type_.scalar.name not in NARROW_FLOATS:
            return operand
        return self.cast(operand, dtype("float32").with_lanes(type_.lanes), type_)

    def cast(self, operand: str, source: DType, to: DType) -> str:
        if self.flushes and source.scalar.name == "float32" and to.scalar.name == "bfloat16":
            return self._flushed(operand, to)
        lines, result = cast_instructions(source, to, operand, self.fresh, self._converted)
        self.lines.extend(lines)
        return result

    def _flushed(self, operand: str, to: DType) -> str:
        """Round float32 to bfloat16 by the instruction of the processor, which flushes denormals to zero."""
        short, bits, wide = (vector(kind, to.lanes) for kind in ("bfloat", "i16", "float"))
        rounded = self.emit(f"fptrunc {wide} {operand} to {short}")
        return self._from_memory(self.emit(f"bitcast {short} {rounded} to {bits}"), to)

    def _converted(self, operand: str, source: str, to: str, lanes: int) -> tuple[list[str], str]:
        lines, result = self.unit.vmath.convert(operand, source, to, lanes, self.fresh)
        return [f"  {line}" for line in lines], result

    # Vectors

    def _splat(self, value: Expr, lanes: int) -> str:
        scalar, type_ = register_type(value.dtype), register_type(value.dtype.with_lanes(lanes))
        if isinstance(value, Const):
            return f"splat ({scalar} {self.value(value)})"
        one = self.emit(f"insertelement {type_} poison, {self.typed(value)}, i32 0")
        return self.emit(f"shufflevector {type_} {one}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def _ramp(self, expr: Ramp) -> str:
        type_, scalar = register_type(expr.dtype), register_type(expr.base.dtype)
        lanes = expr.lanes
        steps = "<" + ", ".join(f"{scalar} {i}" for i in range(lanes)) + ">"
        stride = const_value(expr.stride)
        if stride is not None:
            scaled = "<" + ", ".join(f"{scalar} {i * stride}" for i in range(lanes)) + ">"
        else:
            scaled = self.emit(f"mul {type_} {self._splat(expr.stride, lanes)}, {steps}")
        if const_value(expr.base) == 0:
            return scaled
        return self.emit(f"add {type_} {self._splat(expr.base, lanes)}, {scaled}")

    # Memory

    def pointer(self, buffer: Buffer, offset: Expr) -> str:
        """The pointer to an element. The variable part is hoisted as far as possible, the constant part is
        added last.
        """
        base, base_depth = self.base(buffer)
        element = memory_type(buffer.dtype)
        terms, displacement = affine(offset)
        operand = base
        if terms:
            ordered = sorted(terms.items(), key=lambda item: self.info(item[0])[0])
            index = sum_of(ordered)
            depth, _, movable = self.info(index)
            scope = self.scopes[max(depth, base_depth)] if movable else self.scopes[-1]
            key = (element, base, index)
            found = scope.addresses.get(key) if movable else None
            if found is None:
                position = self.value(index)
                found = self.fresh("p")
                line = f"  {found} = getelementptr inbounds {element}, ptr {base}, i64 {position}"
                (scope.prefix if movable else self.lines).append(line)
                if movable:
                    scope.addresses[key] = found
            operand = found
        if displacement:
            operand = self.emit(f"getelementptr inbounds {element}, ptr {operand}, i64 {displacement}", "p")
        return operand

    def base(self, buffer: Buffer) -> tuple[str, int]:
        """The pointer of a buffer, and the depth of the scope that defines it."""
        if buffer not in self.pointers:
            raise CodegenError(f"buffer {buffer.name} is used outside of its allocation")
        return self.pointers[buffer]

    def offsets_of(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[Expr, int | None, list[Expr]]:
        """The element offsets of an access: (offset of lane 0, constant stride or None, offsets of all
        lanes).

        The list of offsets is empty if the stride is known.
        """
        lanes = max((i.dtype.lanes for i in indices), default=1)
        if lanes == 1:
            return buffer.linear_index(indices), 1, []
        forms = [ramp_form(i) for i in indices]
        if all(form is not None for form in forms):
            start = buffer.linear_index([form[0] for form in forms if form])
            step: Expr = const(0)
            for form, stride in zip(forms, buffer.element_strides(), strict=True):
                assert form is not None
                step = form[1].astype(INDEX) * stride + step
            if (value := const_value(step)) is not None:
                return start, value, []
        offsets = [buffer.linear_index([lane_of(i, k) for i in indices]) for k in range(lanes)]
        return offsets[0], None, offsets

    def _load(self, expr: Load) -> str:
        buffer, lanes = expr.buffer, expr.dtype.lanes
        start, stride, offsets = self.offsets_of(buffer, expr.indices)
        if buffer in self.registers:
            return self._read_register(expr, start, stride)
        if stride == 1:
            return self._load_contiguous(buffer, start, expr.dtype)
        if self.mask:
            offsets = offsets or [start + lane * (stride or 0) for lane in range(lanes)]
            return self._gather_masked(buffer, offsets, expr.dtype)
        result = "poison"
        for lane in range(lanes):
            offset = offsets[lane] if offsets else start + lane * (stride or 0)
            one = self._load_contiguous(buffer, offset, buffer.dtype)
            scalar = register_type(buffer.dtype)
            result = self.emit(
                f"insertelement {register_type(expr.dtype)} {result}, {scalar} {one}, i32 {lane}"
            )
        return result

    def _load_contiguous(self, buffer: Buffer, start: Expr, type_: DType) -> str:
        pointer, memory = self.pointer(buffer, start), memory_type(type_)
        align = self.alignment(buffer, start, type_.lanes)
        if self.mask and type_.lanes > 1:
            loaded = self._masked_call("load", memory, f"ptr align {align} {pointer}", self.mask, type_.lanes)
        elif self.mask:
            # One element for all lanes. Load it if any lane of the mask is set.
            some, lanes = self.mask, self.mask_lanes
            if lanes > 1:
                some = self.emit(f"call i1 @llvm.vector.reduce.or.v{lanes}i1({vector('i1', lanes)} {some})")
            flag = self.emit(f"insertelement <1 x i1> poison, i1 {some}, i32 0")
            one = self._masked_call("load", f"<1 x {memory}>", f"ptr align {align} {pointer}", flag, 1)
            loaded = self.emit(f"extractelement <1 x {memory}> {one}, i32 0")
        else:
            loaded = self.emit(f"load {memory}, ptr {pointer}, align {align}")
        return self._from_memory(loaded, type_)

    def alignment(self, buffer: Buffer, start: Expr, lanes: int) -> int:
        """The known alignment in bytes of an access of `lanes` elements at offset `start`."""
        return buffer.dtype.itemsize

    def _masked_call(self, how: str, memory: str, pointer: str, mask: str, lanes: int) -> str:
        """A masked load or gather. Lanes that are not in `mask` are zero."""
        name = f"llvm.masked.{how}.{self.unit.overload(memory)}"
        name += ".p0" if how == "load" else f".v{lanes}p0"
        return self.emit(f"call {memory} @{name}({pointer}, <{lanes} x i1> {mask}, {memory} zeroinitializer)")

    def _gather_masked(self, buffer: Buffer, offsets: Sequence[Expr], type_: DType) -> str:
        pointers = "poison"
        for lane, offset in enumerate(offsets):
            pointer = self._pointer_of_lane(buffer, offset, lane)
            pointers = self.emit(
                f"insertelement <{len(offsets)} x ptr> {pointers}, ptr {pointer}, i32 {lane}"
            )
        where = f"<{len(offsets)} x ptr> align {buffer.dtype.itemsize} {pointers}"
        loaded = self._masked_call("gather", memory_type(type_), where, self.mask, len(offsets))
        return self._from_memory(loaded, type_)

    def _pointer_of_lane(self, buffer: Buffer, offset: Expr, lane: int) -> str:
        """The pointer for one lane of a masked access. Loads in its offset are masked by this
        lane of `mask`.
        """
        if self.info(offset)[2]:
            return self.pointer(buffer, offset)
        own = self.emit(f"extractelement {vector('i1', self.mask_lanes)} {self.mask}, i32 {lane}")
        with self._loads_where(own, 1):
            return self.pointer(buffer, offset)

    def _from_memory(self, loaded: str, type_: DType) -> str:
        memory, register, name = memory_type(type_), register_type(type_), type_.scalar.name
        if name == "bool":
            zero = "zeroinitializer" if type_.lanes > 1 else "0"
            return self.emit(f"icmp ne {memory} {loaded}, {zero}")
        if name == "float16":
            lines, result = self._converted(loaded, name, "float32", type_.lanes)
            self.lines.extend(lines)
            return result
        if name == "bfloat16":
            wide = vector("i32", type_.lanes)
            bits = self.emit(f"zext {memory} {loaded} to {wide}")
            sixteen = "16" if type_.lanes == 1 else "splat (i32 16)"
            return self.emit(f"bitcast {wide} {self.emit(f'shl {wide} {bits}, {sixteen}')} to {register}")
        return loaded

    def to_memory(self, operand: str, type_: DType) -> str:
        """Convert a value from its register type to its memory type."""
        memory, register, name = memory_type(type_), register_type(type_), type_.scalar.name
        if name == "bool":
            return self.emit(f"zext {register} {operand} to {memory}")
        if name == "float16":
            lines, result = self._converted(operand, "float32", name, type_.lanes)
            self.lines.extend(lines)
            return result
        if name == "bfloat16":
            wide = vector("i32", type_.lanes)
            bits = self.emit(f"bitcast {register} {operand} to {wide}")
            sixteen = "16" if type_.lanes == 1 else "splat (i32 16)"
            return self.emit(f"trunc {wide} {self.emit(f'lshr {wide} {bits}, {sixteen}')} to {memory}")
        return operand

    def _read_register(self, expr: Load, start: Expr, stride: int | None) -> str:
        key = self.register_key(expr.buffer, start, stride, expr.dtype.lanes)
        values = self.registers[expr.buffer]
        if key in values:
            return values[key]
        lanes = expr.dtype.lanes
        for (first, width), operand in values.items():
            # Horizontal reductions read single lanes of a promoted vector, tails of stores neighbouring ones.
            begin = key[0] - first
            if begin >= 0 and begin + lanes <= width:
                type_ = register_type(expr.buffer.dtype.with_lanes(width))
                if lanes == 1:
                    return self.emit(f"extractelement {type_} {operand}, i32 {begin}")
                mask = ", ".join(f"i32 {lane}" for lane in range(begin, begin + lanes))
                return self.emit(f"shufflevector {type_} {operand}, {type_} poison, <{lanes} x i32> <{mask}>")
        return "poison"

    def register_key(self, buffer: Buffer, start: Expr, stride: int | None, lanes: int) -> tuple[int, int]:
        """The key (first element, lanes) of the register of a promoted buffer that an access uses."""
        first = const_value(start)
        if first is None or stride != 1:
            raise CodegenError(f"buffer {buffer.name} was promoted to registers but is accessed at {start}")
        return first, lanes

    # Calls

    def _call(self, expr: Call) -> str:
        if expr.name == "if_then_else":
            return self._lazy_select(expr)
        if expr.name == "address_of":
            target = expr.args[0]
            assert isinstance(target, Load)
            return self.pointer(target.buffer, target.buffer.linear_index(target.indices))
        if expr.name == "vector_dot":
            return emit_dot(self, expr)
        if expr.name == GROUP:
            return emit_group(self, expr)
        if expr.name == "reinterpret" and isinstance(expr.args[0], Load):
            bits = self._bits_in_memory(expr.args[0])
            if bits is not None:
                return self._reinterpret_bits(bits, expr.args[0].dtype, expr.dtype)
        if expr.name in ("vector_shuffle", "vector_concat"):
            return self._shuffled(expr)
        if expr.name.startswith(PURE_EXTERN):
            return self._call_pure(expr)
        args = [self.value(arg) for arg in expr.args]
        if expr.name == "reinterpret":
            return self._reinterpret(args[0], expr.args[0].dtype, expr.dtype)
        if expr.dtype.scalar.name in NARROW_FLOATS:
            return self._rounded(self._intrinsic(expr, args), expr.dtype)
        return self._intrinsic(expr, args)

    def _call_pure(self, expr: Call) -> str:
        """Call a foreign function for each lane."""
        callee = self.unit.call_foreign(expr.name.removeprefix(PURE_EXTERN), f"program {self.name}")
        if expr.dtype.lanes == 1:
            return self.emit(f"call {callee}({', '.join(self.typed(arg) for arg in expr.args)})")
        args = [
            (register_type(arg.dtype), register_type(arg.dtype.scalar), self.value(arg)) for arg in expr.args
        ]
        result, kind = "poison", register_type(expr.dtype)
        for lane in range(expr.dtype.lanes):
            ones = [
                f"{scalar} {self.emit(f'extractelement {wide} {value}, i32 {lane}')}"
                for wide, scalar, value in args
            ]
            one = self.emit(f"call {callee}({', '.join(ones)})")
            scalar = register_type(expr.dtype.scalar)
            result = self.emit(f"insertelement {kind} {result}, {scalar} {one}, i32 {lane}")
        return result

    def _shuffled(self, expr: Call) -> str:
        """Lanes of concatenated vectors. Up to two parts take one instruction; more are
        concatenated first.
        """
        if expr.name == "vector_concat":
            parts, lanes = list(expr.args), list(range(expr.dtype.lanes))
        else:
            inner = expr.args[0]
            pair = isinstance(inner, Call) and inner.name == "vector_concat" and len(inner.args) == 2
            parts = list(inner.args) if pair and isinstance(inner, Call) else [inner]
            lanes = [int(const_value(lane) or 0) for lane in expr.args[1:]]
        scalar = register_type(expr.dtype.scalar)
        values = [(self.value(part), part.dtype.lanes) for part in parts]
        while len(values) > 2:
            (a, first), (b, second) = values[:2]
            wide = self._two(scalar, a, first, b, second, list(range(first + second)))
            values[:2] = [(wide, first + second)]
        (a, first), (b, second) = values if len(values) == 2 else (values[0], ("poison", values[0][1]))
        return self._two(scalar, a, first, b, second, lanes)

    def _two(self, scalar: str, a: str, first: int, b: str, second: int, lanes: Sequence[int]) -> str:
        """Lanes of two vectors. The shorter one is padded, because LLVM requires operands of one type."""
        count = max(first, second)
        a, b = (self._filled(scalar, value, have, count) for value, have in ((a, first), (b, second)))
        indices = [lane if lane < first else lane - first + count for lane in lanes]
        kind, mask = vector(scalar, count), ", ".join(f"i32 {index}" for index in indices)
        kind = f"<1 x {scalar}>" if count == 1 else kind
        made = self.emit(f"shufflevector {kind} {a}, {kind} {b}, <{len(indices)} x i32> <{mask}>")
        if len(indices) > 1:
            return made
        return self.emit(f"extractelement <1 x {scalar}> {made}, i32 0")

    def _filled(self, scalar: str, value: str, have: int, count: int) -> str:
        if value == "poison" or (have == count and have > 1):
            return value
        if have == 1:
            return self.emit(f"insertelement <{count} x {scalar}> poison, {scalar} {value}, i32 0")
        mask = ", ".join(f"i32 {lane}" if lane < have else "i32 poison" for lane in range(count))
        kind = vector(scalar, have)
        return self.emit(f"shufflevector {kind} {value}, {kind} poison, <{count} x i32> <{mask}>")

    def _reinterpret(self, operand: str, source: DType, to: DType) -> str:
        """Reinterpret the bits of a value. Narrow floats are first converted to their memory type."""
        if source.scalar.name in NARROW_FLOATS:
            operand = self.to_memory(operand, source)
        return self._reinterpret_bits(operand, source, to)

    def _bits_in_memory(self, expr: Load) -> str | None:
        """Load narrow floats without converting them; None if they are not contiguous in memory."""
        if expr.dtype.scalar.name not in NARROW_FLOATS or expr.buffer in self.registers or self.mask:
            return None
        start, stride, _ = self.offsets_of(expr.buffer, expr.indices)
        if stride != 1:
            return None
        pointer = self.pointer(expr.buffer, start)
        return self.emit(f"load {memory_type(expr.dtype)}, ptr {pointer}, align {expr.buffer.dtype.itemsize}")

    def _reinterpret_bits(self, operand: str, source: DType, to: DType) -> str:
        """Reinterpret the bits of a value that is in its memory type."""
        made = self.emit(f"bitcast {memory_type(source)} {operand} to {memory_type(to)}")
        return self._from_memory(made, to) if to.scalar.name in NARROW_FLOATS else made

    def _intrinsic(self, expr: Call, args: list[str]) -> str:
        given = expr.args[0].dtype
        operand = dtype("float32") if given.scalar.name in NARROW_FLOATS else given.scalar
        lines, result = self.unit.intrinsic(expr.name, args, operand.with_lanes(given.lanes), self.fresh)
        self.lines.extend(lines)
        return result

    def _lazy_select(self, expr: Call) -> str:
        """A selection in which only the chosen side accesses memory: by branches for scalars, by masked loads
        for vectors.
        """
        cond, a, b = expr.args
        if isinstance(cond, Broadcast):
            cond = cond.value
        if cond.dtype.lanes == 1:
            return self.branch_value(cond, a, b)
        mask = self.value(cond)
        inverse = self.emit(f"xor {vector('i1', expr.dtype.lanes)} {mask}, splat (i1 true)")
        register = register_type(expr.dtype)
        return self.emit(
            f"select {vector('i1', expr.dtype.lanes)} {mask}, {register} {self._masked(a, mask)}, "
            f"{register} {self._masked(b, inverse)}"
        )

    def _masked(self, expr: Expr, mask: str) -> str:
        """The value of a vector expression whose loads are masked by `mask`."""
        if self.info(expr)[2]:
            return self.value(expr)
        if self.mask:
            mask = self.emit(f"and {vector('i1', expr.dtype.lanes)} {self.mask}, {mask}")
        with self._loads_where(mask, expr.dtype.lanes):
            return self.value(expr)

    @contextmanager
    def _loads_where(self, mask: str, lanes: int) -> Iterator[None]:
        """Within this context loads are masked by `mask`. Their values are not reused outside."""
        saved, saved_lanes = self.mask, self.mask_lanes
        self.mask, self.mask_lanes = mask, lanes
        hidden = [s.volatile for s in self.scopes]
        for s in self.scopes:
            s.volatile = {}
        try:
            yield
        finally:
            for s, volatile in zip(self.scopes, hidden, strict=True):
                s.volatile = volatile
            self.mask, self.mask_lanes = saved, saved_lanes

    def branch_value(self, cond: Expr, a: Expr, b: Expr) -> str:
        """`a` or `b`, selected by a branch. The subclass that emits basic blocks implements it."""
        raise NotImplementedError
