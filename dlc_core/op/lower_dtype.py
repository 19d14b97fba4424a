"""Lowering of the conversions of declared dtypes (`ir/dtype_decl.py`), and refusals of their arithmetic."""

from __future__ import annotations

from collections.abc import Collection

from dlc_core.diag import PluginError, TypeInferenceError, UnsupportedError
from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import Expr
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.declare import OpDecl
from dlc_core.op.infer import STANDS_FOR


def lowered_decode(codes: Expr, decl: DTypeDecl) -> Expr:
    """The values, float32 or int32, of codes in unsigned integers. Spare bits are ignored."""
    _check_lowering(decl)
    assert decl.lower_decode is not None
    if decl.bits < decl.storage:
        codes = codes & ((1 << decl.bits) - 1)
    return _checked(decl.lower_decode(codes), decl.computed, codes, f"lower_decode of {decl.name}")


def lowered_encode(value: Expr, decl: DTypeDecl) -> Expr:
    """The codes, in unsigned integers, of float32 or int32 values."""
    _check_lowering(decl)
    assert decl.lower_encode is not None
    made = decl.lower_encode(value)
    return _checked(made, decl.codes.name, value, f"lower_encode of {decl.name}")


def _check_lowering(decl: DTypeDecl) -> None:
    if decl.lower_decode is None:
        raise UnsupportedError(
            f"the conversions of {decl.name} have no tensor-level form",
            hint="declare lower_decode and lower_encode, or run on the `reference` target",
        )


def _checked(made: object, wanted: str, operand: Expr, what: str) -> Expr:
    """Check what a plugin has made of an operand."""
    type_ = dtype(wanted).with_lanes(operand.dtype.lanes)
    if not isinstance(made, Expr):
        raise PluginError(f"{what} returned a {type(made).__name__}", hint="return an expression")
    if made.dtype.lanes != type_.lanes or not (made.dtype is type_ or (made.dtype.is_int and type_.is_int)):
        raise PluginError(f"{what} returned {made.dtype} for {operand.dtype}", why=f"{type_} is needed")
    return made.astype(type_)


def refused(op: str, type_: DType, target: str, where: str = "") -> UnsupportedError:
    """The error for arithmetic in a declared dtype on a target that does not compute in it."""
    return UnsupportedError(
        f"{op} of {type_} on the target {target or 'without a name'}{where and ' ' + where}",
        why=f"{type_} is not emulated, and the target's description does not list it",
        hint="cast to a dtype of the core and back, or compile for a target that computes in it",
    )


def check_arithmetic(node: Node, native: Collection[str], target: str) -> None:
    """Raise UnsupportedError if a node computes in a declared dtype that is neither native nor emulated.

    Data movement and casts are allowed. They are the ops that accept dtypes that are for storage only, so
    inference is tried with such a dtype.
    """
    if not isinstance(node.op, OpDecl):
        return
    fields = [t for value in (node, *node.args) for t in _tensors(value.type)]
    found = {t.dtype for t in fields if t.dtype.decl is not None and not t.dtype.decl.emulated}
    foreign = {t for t in found if t.name not in native}
    if not foreign or node.op.infer is None:
        return
    stored = {t: dtype(STANDS_FOR[t.kind][1]) for t in foreign}
    types = [_replaced(arg.type, stored) for arg in node.args]
    attrs = {n: stored.get(v, v) if isinstance(v, DType) else v for n, v in node.attrs.items()}
    try:
        node.op.infer(types, attrs)
    except TypeInferenceError:
        raise refused(node.op.name, min(foreign, key=str), target).at(node.spans) from None


def _tensors(type_: Type) -> list[TensorType]:
    return [t for field in type_.fields for t in _tensors(field)] if isinstance(type_, TupleType) else [type_]


def _replaced(type_: Type, to: dict[DType, DType]) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(_replaced(field, to) for field in type_.fields))
    return type_.with_dtype(to.get(type_.dtype, type_.dtype))


__all__ = ["check_arithmetic", "lowered_decode", "lowered_encode", "refused"]
