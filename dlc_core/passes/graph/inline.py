"""Closed functions in place: their bodies over a caller's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.diag import UsageError
from dlc_core.graph.node import GET, TUPLE, Function, Node, get_item, make_tuple, node, post_order, rewrite
from dlc_core.graph.resize import replace_dims
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import OpDecl, fresh_dims
from dlc_core.op.std.control import dims_of_call
from dlc_core.op.std.shape_checks import MATCH_CAST


def inlined(function: Function, args: Sequence[Node], dims: Mapping[Var, Expr] | None = None) -> Node:
    """Return the body of a function with arguments for its parameters, and their dims for its symbolic dims.
    `dims` are further dims, such as new names for data-dependent ones.

    Types are inferred again, because the types of arguments may be more specific than those of parameters.
    """
    if len(args) != len(function.params):
        raise UsageError(f"{function.name} takes {len(function.params)} arguments, {len(args)} are given")
    sized = replace_dims(function, {**dims_of_call(function, [a.type for a in args]), **(dims or {})})

    def visit(old: Node, new_args: tuple[Node, ...]) -> Node | None:
        if old.op is GET:
            return get_item(new_args[0], old.attrs["index"])
        if old.op is TUPLE:
            return make_tuple(new_args)
        if isinstance(old.op, OpDecl):
            types = [a.type for a in new_args]
            return node(old.op, new_args, old.attrs, old.op.infer_type(types, old.attrs, new_args))
        return None

    return rewrite(sized.body, visit, dict(zip(sized.params, args, strict=True)))


def inlined_call(function: Function, args: Sequence[Node]) -> Node:
    """Return the body of a function that is called. Arguments get the shapes that the function requires,
    which each call checks. Data-dependent dims get new names.
    """
    fresh = {v: Var(v.name, v.dtype, v.bounds) for n in post_order(function.body) for v in fresh_dims(n)}
    sized = replace_dims(function, {**dims_of_call(function, [a.type for a in args]), **fresh})
    return inlined(sized, [_matched(arg, own) for arg, own in zip(args, sized.params, strict=True)])


def _matched(arg: Node, formal: Node) -> Node:
    """The argument, with the shape of the parameter if these differ."""
    if not isinstance(formal.type, TensorType) or arg.type == formal.type:
        return arg
    return MATCH_CAST.build(arg, shape=formal.type.shape)
