"""share_kernels: make one kernel of many groups that differ only in literals.

Law: the function computes the same values, bit for bit.

    x * 0.1 + 1, x * 0.2 + 1, x * 0.3 + 1, …   =>   f(x, 0.1), f(x, 0.2), f(x, 0.3), …

`f` is the group x * c + 1. A kernel takes some 20 milliseconds to compile, so a model with hundreds of such
groups would take long. The literals become operands only if at least `least` groups differ in them, because
a literal in a kernel needs no load. Literals that all the groups have stay in the kernel, and so do those of
ops whose code depends on their value, such as exponents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dlc_core.graph.extract import is_region
from dlc_core.graph.node import CALL, CONST, Function, Node, call_function, node, param, post_order, rewrite
from dlc_core.ir.structural import structural_hash
from dlc_core.ir.types import TensorType
from dlc_core.op.std import BY_NAME
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.support.record import record

MANY = 32
"""The number of kernels from which their compile time is noticed."""

_OPS = frozenset(BY_NAME[name] for name in ("add", "sub", "mul", "div", "maximum", "minimum"))
"""Ops that compute the same with an operand as with a literal."""

_Position = tuple[Node, int]
"""A node of a group, and the index of one of its arguments."""


@record(frozen=True)
class ShareKernels(GraphPass):
    """Make literals operands where at least `least` groups differ in them alone."""

    name: ClassVar[str] = "share_kernels"
    min_level: ClassVar[int] = 1
    least: int = MANY

    def run_function(self, function: Function, context: PassContext) -> Function:
        calls = {
            n: positions
            for n in post_order(function.body)
            if n.op is CALL
            and not is_region(n.attrs["function"])
            and (positions := _literals(n.attrs["function"]))
        }
        if len(calls) < self.least:
            return function
        alike: dict[str, list[Node]] = {}
        for call, positions in calls.items():
            group: Function = call.attrs["function"]
            params, body = _with_params(group, positions, range(len(positions)))
            alike.setdefault(structural_hash((*group.params, *params, body)), []).append(call)
        taken: dict[Node, Sequence[int]] = {}
        for members in alike.values():
            values = [[_value(position) for position in calls[call]] for call in members]
            if len(set(map(tuple, values))) >= self.least:
                differing = [i for i, column in enumerate(zip(*values, strict=True)) if len(set(column)) > 1]
                taken.update(dict.fromkeys(members, differing))
        if not taken:
            return function

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            return _shared(old, args, calls[old], taken[old]) if old in taken else None

        return function.with_body(rewrite(function.body, visit))


def _literals(group: Function) -> list[_Position]:
    """The positions of a group's literals that may become operands."""
    return [
        (n, index)
        for n in post_order(group.body)
        if n.op in _OPS
        for index, arg in enumerate(n.args)
        if arg.op is CONST and isinstance(arg.type, TensorType) and arg.attrs["value"].data.size == 1
    ]


def _value(position: _Position) -> Any:
    user, index = position
    return user.args[index]


def _with_params(
    group: Function, positions: Sequence[_Position], taken: Sequence[int]
) -> tuple[tuple[Node, ...], Node]:
    """New params for the literals at some of the positions, and the group's body with them."""
    params: dict[_Position, Node] = {}
    for number, at in enumerate(taken):
        params[positions[at]] = param(f"c{number}", _value(positions[at]).type)
    return tuple(params.values()), _replaced(group.body, params)


def _replaced(body: Node, params: Mapping[_Position, Node]) -> Node:
    users = {user for user, _ in params}

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old not in users:
            return None
        given = tuple([params.get((old, i), arg) for i, arg in enumerate(args)])
        return node(old.op, given, old.attrs, old.type)

    return rewrite(body, visit)


def _shared(call: Node, args: tuple[Node, ...], positions: Sequence[_Position], taken: Sequence[int]) -> Node:
    """A call whose group takes literals as operands."""
    group: Function = call.attrs["function"]
    params, body = _with_params(group, positions, taken)
    function = Function(group.name, (*group.params, *params), body, group.attrs)
    return call_function(function, (*args, *(_value(positions[at]) for at in taken)))


__all__ = ["MANY", "ShareKernels"]
