"""constant_state: move constants that control flow gets as arguments, or carries through iterations, into its
bodies.

Law: the function computes the same values, bit for bit.

    scan(h, W, xs, body=f)  with f(h, w, x) giving (…, w, …)      =>      scan(h, xs, body=f with W for w)
    if_(c, W, x, then=f, else=g)                                  =>      if_(c, x, f and g with W in them)

Exporters pass weights to recurrent cells as loop-carried values that no iteration changes. As constants of
the body, expressions of them are computed once, GEMMs can pack them at compile time, and no iteration copies
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dlc_core.graph.node import CONST, GET, Function, Node, get_item, make_tuple, node, rewrite
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TupleType
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.support.record import record

IF, WHILE, SCAN, LOOP = (OPS[name] for name in ("if_", "while_", "scan", "loop"))


@record(frozen=True)
class ConstantState(GraphPass):
    """Move constants that control flow gets, and that no iteration changes, into its bodies."""

    name: ClassVar[str] = "constant_state"
    min_level: ClassVar[int] = 1

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        """Process outer bodies first, because they may pass their new constants to inner bodies."""
        graphs = module.of_kind(Function)
        changed = {name: _with_constants(function) for name, function in graphs.items()}
        if all(changed[name] is graphs[name] for name in graphs):
            return module
        return module.with_functions(changed)


def _with_constants(function: Function) -> Function:
    body = rewrite(function.body, _visit)
    return function if body is function.body else function.with_body(body)


def _visit(old: Node, args: tuple[Node, ...]) -> Node | None:
    if old.op is GET:
        return get_item(args[0], old.attrs["index"])
    bodies = {name: value for name, value in old.attrs.items() if isinstance(value, Function)}
    if not bodies or not isinstance(old.op, OpDecl):
        return None
    fixed = {index: args[index + first] for index, first in _fixed(old, args)}
    inner = {
        name: _with_constants(_with_constant_params(f, fixed, name == "body")) for name, f in bodies.items()
    }
    if all(inner[name] is f for name, f in bodies.items()):
        return None
    attrs = {**old.attrs, **inner}
    if not fixed:
        return node(old.op, args, attrs, old.type)
    if old.op is IF:
        return IF.build(args[0], *_without_indices(args[1:], fixed), **attrs)
    if old.op is SCAN:
        attrs["num_state"] -= len(fixed)
    if old.op is LOOP:
        pairs = iter(attrs["changing"])
        attrs["changing"] = tuple(
            value for at, axis in zip(pairs, pairs) for value in (at - sum(f < at for f in fixed), axis)
        )
    new = old.op.build(*_without_indices(args, fixed), **attrs)
    assert isinstance(old.type, TupleType)
    remaining = iter(range(len(old.type.fields)))
    return make_tuple(
        [fixed[i] if i in fixed else get_item(new, next(remaining)) for i in range(len(old.type.fields))]
    )


def _fixed(old: Node, args: Sequence[Node]) -> list[tuple[int, int]]:
    """Return the params that are constant in all iterations, with the offset of their arguments."""
    bodies = [value for value in old.attrs.values() if isinstance(value, Function)]
    if old.op is IF:
        return [(i, 1) for i, own in enumerate(args[1:]) if own.op is CONST and _fits(own, bodies, i)]
    if old.op not in (WHILE, SCAN, LOOP):
        return []
    body = old.attrs["body"]
    count = old.attrs["num_state"] if old.op is SCAN else len(args)
    resized = old.attrs["changing"][::2] if old.op is LOOP else ()
    found = [
        (i, 0)
        for i, own in enumerate(args[:count])
        if own.op is CONST
        and body.results[i] is body.params[i]
        and _fits(own, bodies, i)
        and i not in resized
    ]
    # A loop needs at least one state value.
    return found[1:] if len(found) == len(args) else found


def _fits(own: Node, bodies: Sequence[Function], index: int) -> bool:
    """Whether every body declares exactly the constant's type, so that no dim depends on it."""
    return all(body.params[index].type == own.type for body in bodies)


def _with_constant_params(function: Function, fixed: Mapping[int, Node], carried: bool) -> Function:
    """Replace some params of a function by constants. With `carried`, remove them from its results too."""
    if not fixed:
        return function
    memo = {function.params[i]: value for i, value in fixed.items()}
    body = rewrite(function.body, lambda old, args: None, memo)
    if carried:
        body = make_tuple(_without_indices(function.with_body(body).results, fixed))
    return Function(function.name, tuple(_without_indices(function.params, fixed)), body, function.attrs)


def _without_indices(values: Sequence[Node], fixed: Mapping[int, Node]) -> list[Node]:
    return [value for i, value in enumerate(values) if i not in fixed]
