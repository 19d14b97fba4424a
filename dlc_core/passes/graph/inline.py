"""Closed functions in place: their bodies over a caller's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.graph.node import GET, TUPLE, Function, Node, get_item, make_tuple, node, rewrite
from dlc_core.ir.expr import Expr, Var, as_expr, substitute
from dlc_core.ir.types import TensorType, dim
from dlc_core.op.declare import OpDecl


def inlined(function: Function, args: Sequence[Node], dims: Mapping[Var, Expr] | None = None) -> Node:
    """Return the body of a function with arguments for its parameters, and their dims for its symbolic dims.
    `dims` are further dims, such as new names for data-dependent ones.

    Types are inferred again, because the types of arguments may be more specific than those of parameters.
    """
    if len(args) != len(function.params):
        raise UsageError(f"{function.name} takes {len(function.params)} arguments, {len(args)} are given")
    symbols: dict[Var, Expr] = dict(dims or {})
    for own, given in zip(function.params, args, strict=True):
        if isinstance(own.type, TensorType) and isinstance(given.type, TensorType):
            for symbol, size in zip(own.type.shape, given.type.shape, strict=True):
                if isinstance(symbol, Var):
                    symbols.setdefault(symbol, as_expr(size))

    def visit(old: Node, new_args: tuple[Node, ...]) -> Node | None:
        if old.op is GET:
            return get_item(new_args[0], old.attrs["index"])
        if old.op is TUPLE:
            return make_tuple(new_args)
        if isinstance(old.op, OpDecl):
            attrs = {name: _bound(value, symbols) for name, value in old.attrs.items()}
            types = [a.type for a in new_args]
            return node(old.op, new_args, attrs, old.op.infer_type(types, attrs, new_args))
        return None

    return rewrite(function.body, visit, dict(zip(function.params, args, strict=True)))


def _bound(value: Any, symbols: Mapping[Var, Expr]) -> Any:
    if isinstance(value, Expr):
        return dim(substitute(value, symbols))
    return tuple(_bound(item, symbols) for item in value) if isinstance(value, tuple) else value
