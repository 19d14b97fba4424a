"""The rewriting of programs to supported dtypes, statement by statement. See `legalize`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from dlc_core.diag import UnsupportedError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    broadcast,
    call,
    cast_to,
    const,
    load,
    post_order,
    select,
)
from dlc_core.op.lower_dtype import lowered_decode, lowered_encode, refused
from dlc_core.op.narrow_floats import decoded, encoded, rounded
from dlc_core.passes.tir.native_dtypes import MOVES
from dlc_core.passes.tir.walk import Walker
from dlc_core.tir.matrix import operands
from dlc_core.tir.stmt import Let, PrimFunc, Stmt, Store

_F32, _I8, _U8 = dtype("float32"), dtype("int8"), dtype("uint8")
_EXACT = frozenset({"abs", "sign", "floor", "ceil", "round", "trunc", "copysign", "if_then_else"})


class LegalDtypes(Walker):
    """Rewrites a program without the dtypes of `unsupported`."""

    def __init__(self, func: PrimFunc, unsupported: set[DType], target: str) -> None:
        super().__init__(func)
        self.unsupported = unsupported
        self.target = target
        self.buffers: dict[Buffer, Buffer] = {}
        self.vars: dict[Var, Expr] = {}
        self.fragments = set(operands(func.body))
        """The operands of matrix units, which are passed as bits."""

    def parameter(self, param: Buffer | Var) -> Buffer | Var:
        if isinstance(param, Buffer):
            return self.buffer(param)
        if param.dtype in self.unsupported:
            raise UnsupportedError(
                f"{self.func.name} takes {param.name} of {param.dtype} by value",
                hint="pass it in a buffer of one element",
            )
        return param

    def compute_dtype(self, type_: DType) -> DType:
        """Return the dtype in which values of a dtype are computed."""
        scalar = type_.scalar
        if scalar not in self.unsupported:
            return type_
        if scalar.decl is not None:
            return dtype(scalar.decl.computed).with_lanes(type_.lanes)
        to = _F32 if scalar.is_float else _I8 if scalar.kind == "int" else _U8
        return to.with_lanes(type_.lanes)

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer.dtype not in self.unsupported:
            return buffer
        found = self.buffers.get(buffer)
        if found is None:
            found = Buffer(
                buffer.name,
                buffer.shape,
                f"uint{8 * buffer.dtype.itemsize}",
                strides=buffer.strides,
                scope=buffer.scope,
                offset=buffer.offset,
                align=buffer.align,
            )
            self.buffers[buffer] = found
        return found

    def store(self, s: Store) -> Stmt:
        kept = s.buffer.dtype in self.unsupported and (s.buffer.dtype.is_float or s.buffer.dtype.decl)
        raw_bits = self.raw_bits(s.value) if kept else None
        if raw_bits is not None:
            return Store(self.buffer(s.buffer), self.index(s.buffer, s.indices), raw_bits)
        value = self.expr(s.value)
        if s.buffer.dtype in self.unsupported:
            value = self.stored(value, s.buffer.dtype)
        return Store(self.buffer(s.buffer), self.index(s.buffer, s.indices), value)

    def let(self, s: Let) -> Callable[[Stmt], Stmt]:
        if s.var.dtype.scalar not in self.unsupported:
            return super().let(s)
        if s.var in self.fragments:
            bits = self.raw_bits(s.value)
            if bits is not None:
                bits_var = Var(s.var.name, bits.dtype)
                self.vars[s.var] = call("reinterpret", (bits_var,), s.var.dtype)
                return partial(Let, bits_var, bits)
        var = self.vars[s.var] = Var(s.var.name, self.compute_dtype(s.var.dtype))
        return partial(Let, var, self.expr(s.value))

    # Values

    def raw_bits(self, e: Expr) -> Expr | None:
        """Return the bits of a value that is only loaded or zero; None for a computed value."""
        if isinstance(e, Load):
            return load(self.buffer(e.buffer), self.index(e.buffer, e.indices))
        if isinstance(e, Const):
            bits = dtype(f"uint{8 * e.dtype.itemsize}")
            if e.dtype.decl is not None:
                return const(e.dtype.decl.code_of(e.value), bits)
            return const(0, bits) if e.value == 0 and math.copysign(1, e.value) == 1 else None
        if isinstance(e, Broadcast):
            value = self.raw_bits(e.value)
            return None if value is None else broadcast(value, e.lanes)
        if isinstance(e, Call) and e.name == "vector_shuffle":
            value = self.raw_bits(e.args[0])
            if value is None:
                return None
            return call(e.name, [value, *e.args[1:]], value.dtype.with_lanes(e.dtype.lanes))
        chosen = isinstance(e, Call) and e.name == "if_then_else"
        if isinstance(e, Call) and (chosen or e.name == "vector_concat"):
            parts = [self.raw_bits(part) for part in e.args[1 if chosen else 0 :]]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            type_ = known[0].dtype.with_lanes(e.dtype.lanes)
            return call(e.name, [self.expr(e.args[0]), *known] if chosen else known, type_)
        return None

    def expr(self, e: Expr) -> Expr:
        memo: dict[Expr, Expr] = {}
        order = list(post_order(e))
        # Elements whose bits or address are taken are not decoded.
        bits = {
            x: x.args[0] for x in order if isinstance(x, Call) and x.name in ("reinterpret", "address_of")
        }
        decoded = {child for x in order if x not in bits for child in x.children}
        kept = {x for x in bits.values() if isinstance(x, Load) and x not in decoded}
        for x in order:
            memo[x] = x if x in kept else self.node(x, memo)
        return memo[e]

    def node(self, e: Expr, memo: dict[Expr, Expr]) -> Expr:
        """Rebuild a node over legalized operands."""
        new = [memo[c] for c in e.children]
        type_ = e.dtype.scalar
        if isinstance(e, Var):
            return self.vars.get(e, e)
        if isinstance(e, Load):
            made = load(self.buffer(e.buffer), new)
            return self.loaded(made, type_) if type_ in self.unsupported else made
        if isinstance(e, Call) and e.name == "address_of":
            (element,) = e.args
            assert isinstance(element, Load)
            return call(
                "address_of",
                (load(self.buffer(element.buffer), [memo[i] for i in element.indices]),),
                e.dtype,
            )
        if e in self.vars.values():
            return e
        if isinstance(e, Call) and e.name == "reinterpret":
            source, operand = e.args[0].dtype.scalar, e.args[0]
            bits = new[0]
            if source in self.unsupported and isinstance(operand, Load):
                # The bits are taken from memory, because decoding would not keep the payload of a NaN.
                bits = load(self.buffer(operand.buffer), [memo[i] for i in operand.indices])
            elif source in self.unsupported:
                bits = self.stored(bits, source)
            if type_ in self.unsupported:
                bits = bits if bits.dtype.kind == "uint" else self.bits_of(bits)
                return self.loaded(bits, type_)
            return bits if bits.dtype is e.dtype else call("reinterpret", (bits,), e.dtype)
        if type_ not in self.unsupported:
            return self.supported(e, new)
        return self.value(e, new)

    def supported(self, e: Expr, new: Sequence[Expr]) -> Expr:
        """Rebuild a node of a supported dtype."""
        if isinstance(e, (Binary, Call)) and e.children:
            self.check_emulated(e, e.children[-1].dtype.scalar)
        if isinstance(e, Cast):
            return cast_to(e.dtype, new[0])
        return e.rebuild(new)

    def value(self, e: Expr, new: Sequence[Expr]) -> Expr:
        """Rebuild a node of an unsupported dtype in the dtype in which it is computed."""
        to, type_ = self.compute_dtype(e.dtype), e.dtype.scalar
        self.check_emulated(e, type_)
        if isinstance(e, Const):
            return const(e.value, to)
        if isinstance(e, Broadcast):
            return broadcast(new[0], e.lanes)
        if isinstance(e, Select):
            return select(*new)
        if isinstance(e, Cast):
            return self.narrowed(cast_to(to, new[0]), type_)
        if isinstance(e, Unary):
            made = e.rebuild(new)
            return made if type_.is_float and type_.decl is None else self.narrowed(made, type_)
        if isinstance(e, Binary):
            made = e.rebuild(new)
            return made if e.op in ("min", "max") else self.narrowed(made, type_)
        assert isinstance(e, Call)
        made = call(e.name, new, to)
        moved = e.name == "if_then_else" or (e.name.startswith("vector_") and e.name != "vector_reduce_add")
        if type_.decl is not None:
            return made if moved else self.narrowed(made, type_)
        exact = type_.is_float and (moved or e.name in _EXACT)
        return made if exact or e.name == "if_then_else" else self.narrowed(made, type_)

    def check_emulated(self, e: Expr, type_: DType) -> None:
        """Raise UnsupportedError for an operation in a declared dtype that only some targets compute in."""
        decl = type_.decl
        moves = isinstance(e, Call) and e.name in MOVES
        if decl is None or decl.emulated or type_ not in self.unsupported or moves:
            return
        if isinstance(e, (Unary, Binary, Call)):
            name = e.name if isinstance(e, Call) else e.op
            raise refused(name, type_, self.target, f"in {self.func.name}")

    def narrowed(self, value: Expr, type_: DType) -> Expr:
        """Round a computed value to a narrow float dtype, or wrap it to a narrow integer dtype."""
        if type_.decl is not None:
            return self.loaded(self.stored(value, type_), type_)
        if type_.is_float:
            return rounded(value, type_)
        return _wrapped(value, type_)

    def loaded(self, bits: Expr, type_: DType) -> Expr:
        """Decode the bits of a value in memory."""
        if type_.decl is not None:
            return lowered_decode(bits, type_.decl)
        if type_.is_float:
            return decoded(bits, type_)
        return _wrapped(bits.astype(self.compute_dtype(type_.with_lanes(bits.dtype.lanes))), type_)

    def stored(self, value: Expr, type_: DType) -> Expr:
        """Encode a value as its bits in memory."""
        if type_.decl is not None:
            return lowered_encode(value, type_.decl)
        if type_.is_float:
            return encoded(value, type_)
        return value.astype(_U8.with_lanes(value.dtype.lanes)) & ((1 << type_.bits) - 1)

    def bits_of(self, value: Expr) -> Expr:
        wide = dtype(f"uint{value.dtype.bits}").with_lanes(value.dtype.lanes)
        return call("reinterpret", (value,), wide)


def _wrapped(value: Expr, type_: DType) -> Expr:
    """Wrap an integer in a byte to the width of a type below a byte, with its sign extended."""
    if type_.kind == "uint":
        return value & ((1 << type_.bits) - 1)
    spare = 8 - type_.bits
    return (value << spare) >> spare


__all__ = ["LegalDtypes"]
