"""Lowering of the conversions of declared dtypes (`ir/dtype_decl.py`), and refusals of their arithmetic."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from dlc_core.diag import PluginError, TypeInferenceError, UnsupportedError
from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import Call, Cast, Expr, Var, call, cast_to, post_order
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.declare import OpDecl
from dlc_core.op.infer import STANDS_FOR


def lowered_decode(codes: Expr, decl: DTypeDecl) -> Expr:
    """The values, float32 or int32, of codes in unsigned integers. Spare bits are ignored."""
    if decl.bits < decl.storage:
        codes = codes & ((1 << decl.bits) - 1)
    return _applied(_formula(decl, "lower_decode"), codes)


def lowered_encode(value: Expr, decl: DTypeDecl) -> Expr:
    """The codes, in unsigned integers, of float32 or int32 values."""
    return _applied(_formula(decl, "lower_encode"), value)


@lru_cache(maxsize=64)
def _formula(decl: DTypeDecl, name: str) -> tuple[Var, Expr]:
    """A conversion of one element, from a variable."""
    lower = getattr(decl, name)
    if lower is None:
        raise UnsupportedError(
            f"the conversions of {decl.name} have no tensor-level form",
            hint="declare lower_decode and lower_encode, or run on the `reference` target",
        )
    given, wanted = decl.codes.name, decl.computed
    if name == "lower_encode":
        given, wanted = wanted, given
    element = Var("element", given)
    made, type_ = lower(element), dtype(wanted)
    if not isinstance(made, Expr):
        raise PluginError(f"{name} of {decl.name} returned {made!r}", why="an expression is needed")
    if made.dtype is not type_ and not (made.dtype.is_int and type_.is_int and made.dtype.lanes == 1):
        raise PluginError(f"{name} of {decl.name} returned {made.dtype}", why=f"{type_} is needed")
    return element, cast_to(type_, made)


def _applied(formula: tuple[Var, Expr], operand: Expr) -> Expr:
    """The formula of an operand, which may have several lanes."""
    element, root = formula
    lanes = operand.dtype.lanes
    made: dict[Expr, Expr] = {element: operand}
    for e in post_order(root):
        if e in made:
            continue
        new = [made[child] for child in e.children]
        if all(child.dtype.lanes == 1 for child in new):
            made[e] = e.rebuild(new)
        elif isinstance(e, Cast):
            made[e] = cast_to(e.dtype.with_lanes(lanes), new[0])
        elif isinstance(e, Call):
            made[e] = call(e.name, new, e.dtype.with_lanes(lanes))
        else:
            made[e] = e.rebuild(new)
    return made[root]


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
