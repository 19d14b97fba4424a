"""Patterns over graph nodes, and how they match.

    x, c = var("x"), const_var("c")
    match_op(NEG, match_op(NEG, x))                  neg(neg(x))
    match_op(ADD, x, number(-0.0), commutes=True)    x + -0.0 and -0.0 + x, the zero of any shape
    match_op(CAST, x, dtype=attr("to"))              captures an attribute
    match_op("add", x, any_op("y"))                  an op by its name; a node of any declared op

A pattern variable that occurs twice must match the same node.  Captures are read by name from the `Match`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.graph.node import CONST, STRUCTURAL, Node, Op, attr_key, const_array
from dlc_core.ir.types import TensorType
from dlc_core.op.lookup import registered_ops
from dlc_core.support.record import record


@record(frozen=True)
class Pattern:
    """Base of patterns."""


@record(frozen=True)
class VarPattern(Pattern):
    """Any node that satisfies `accepts`; with `constant` only constants."""

    name: str
    constant: bool = False
    accepts: Callable[[Node], bool] | None = None


@record(frozen=True)
class NumberPattern(Pattern):
    """A constant of any shape and dtype all of whose elements are one number, bit for bit."""

    value: int | float | bool


@record(frozen=True)
class AttrVar:
    """Captures an attribute's value under a name."""

    name: str


@record(frozen=True, eq=False)
class OpPattern(Pattern):
    """A node of one of `ops` whose arguments match `args` (None: any arguments).

    `attrs` has, for some attributes, the value, an `AttrVar`, or a predicate.  `commutes` also tries the two
    arguments in the other order.  `name` captures the node itself.
    """

    ops: tuple[Op, ...]
    args: tuple[Pattern, ...] | None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    commutes: bool = False
    name: str = ""


@record(frozen=True)
class AnyOpPattern(Pattern):
    """A node of any declared op, with any arguments; `name` captures it."""

    name: str = ""


def var(name: str, accepts: Callable[[Node], bool] | None = None) -> VarPattern:
    """A pattern of any node that satisfies `accepts`."""
    return VarPattern(name, accepts=accepts)


def const_var(name: str, accepts: Callable[[Node], bool] | None = None) -> VarPattern:
    """A pattern of any constant that satisfies `accepts`."""
    return VarPattern(name, True, accepts)


def number(value: int | float | bool) -> NumberPattern:
    """A pattern of a constant all of whose elements are this number. -0.0 and 0.0 differ; 0 is an integer."""
    return NumberPattern(value)


def attr(name: str) -> AttrVar:
    """Captures an attribute."""
    return AttrVar(name)


OpLike = Op | str
"""An op, or its name."""


def _ops(op: OpLike | Sequence[OpLike]) -> tuple[Op, ...]:
    given = (op,) if isinstance(op, (Op, str)) else op
    return tuple(registered_ops()[each] if isinstance(each, str) else each for each in given)


def any_op(capture: str = "") -> AnyOpPattern:
    """A pattern of a node of any op."""
    return AnyOpPattern(capture)


def match_op(
    op: OpLike | Sequence[OpLike], *args: Pattern, commutes: bool = False, capture: str = "", **attrs: Any
) -> OpPattern:
    """A pattern of a node of an op (or of one of several)."""
    ops = _ops(op)
    if commutes and len(args) != 2:
        raise UsageError("only a pattern of two arguments commutes")
    return OpPattern(ops, args, MappingProxyType(attrs), commutes, capture)


def match_any(op: OpLike | Sequence[OpLike], *, capture: str = "", **attrs: Any) -> OpPattern:
    """A pattern of a node of an op with any arguments; `match.root.args` has them."""
    return OpPattern(_ops(op), None, MappingProxyType(attrs), False, capture)


class Match:
    """The bindings of a pattern's names; `match["x"]` is a node or an attribute's value."""

    __slots__ = ("_values", "nodes")

    def __init__(self, values: Mapping[str, Any], nodes: tuple[Node, ...]) -> None:
        self._values = values
        self.nodes = nodes
        """The matched operations and constants, the root first. A replacement replaces them."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    @property
    def root(self) -> Node:
        return self.nodes[0]


def may_match(pattern: OpPattern, ops: Sequence[Op]) -> bool:
    """Whether a pattern may match a node of one of its ops whose arguments have the ops `ops`."""
    if pattern.args is None:
        return True
    if len(ops) != len(pattern.args):
        return False
    orders = (ops, ops[::-1]) if pattern.commutes else (ops,)
    return any(all(map(_accepts_op, pattern.args, order)) for order in orders)


def _accepts_op(pattern: Pattern, op: Op) -> bool:
    """Whether a pattern may match a node of an op."""
    if isinstance(pattern, VarPattern):
        return not pattern.constant or op is CONST
    if isinstance(pattern, NumberPattern):
        return op is CONST
    if isinstance(pattern, AnyOpPattern):
        return op.name not in STRUCTURAL
    assert isinstance(pattern, OpPattern)
    return op in pattern.ops


_Pending = tuple[Any, ...] | None
"""A linked list of (pattern, node, rest)."""


def match(pattern: Pattern, root: Node) -> Match | None:
    """The first match of a pattern at a node, or None. Iterative, with backtracking over argument orders."""
    branches: list[tuple[_Pending, dict[str, Any], tuple[Node, ...]]] = [((pattern, root, None), {}, ())]
    while branches:
        todo, values, nodes = branches.pop()
        failed = False
        while todo is not None and not failed:
            current, value, todo = todo
            if isinstance(current, VarPattern):
                failed = not _bind_var(current, value, values)
                if current.constant:
                    nodes = (*nodes, value)
            elif isinstance(current, NumberPattern):
                failed = not is_number(value, current.value)
                nodes = (*nodes, value)
            elif isinstance(current, AnyOpPattern):
                failed = value.op.name in STRUCTURAL or not _capture(current.name, value, values)
                nodes = (*nodes, value)
            else:
                assert isinstance(current, OpPattern)
                failed = not _bind_op(current, value, values)
                nodes = (*nodes, value)
                if not failed and current.args is not None:
                    if current.commutes and value.args[0] is not value.args[1]:
                        swapped = _push(current.args, value.args[::-1], todo)
                        branches.append((swapped, dict(values), nodes))
                    todo = _push(current.args, value.args, todo)
        if not failed:
            return Match(values, nodes)
    return None


def _push(patterns: Sequence[Pattern], nodes: Sequence[Node], todo: _Pending) -> _Pending:
    for pattern, value in zip(reversed(patterns), reversed(nodes), strict=True):
        todo = (pattern, value, todo)
    return todo


def _bind_var(pattern: VarPattern, value: Node, values: dict[str, Any]) -> bool:
    if pattern.name in values:
        return values[pattern.name] is value
    if pattern.constant and value.op is not CONST:
        return False
    if pattern.accepts is not None and not pattern.accepts(value):
        return False
    values[pattern.name] = value
    return True


def _bind_op(pattern: OpPattern, value: Node, values: dict[str, Any]) -> bool:
    if value.op not in pattern.ops or (pattern.args is not None and len(value.args) != len(pattern.args)):
        return False
    for name, expected in pattern.attrs.items():
        if name not in value.attrs:
            return False
        found = value.attrs[name]
        if isinstance(expected, AttrVar):
            if expected.name in values and attr_key(values[expected.name]) != attr_key(found):
                return False
            values[expected.name] = found
        elif callable(expected):
            if not expected(found):
                return False
        elif attr_key(expected) != attr_key(found):
            return False
    return _capture(pattern.name, value, values)


def _capture(name: str, value: Node, values: dict[str, Any]) -> bool:
    """Bind a node to the pattern's name, if there is one. False if the name is already bound to another
    node."""
    if not name:
        return True
    known: Node = values.setdefault(name, value)
    return known is value


def mismatch(pattern: Pattern, root: Node) -> str:
    """Describe the first mismatch of a pattern and a node; empty if it matches.

    For commutative patterns the given order is described.
    """
    if match(pattern, root) is not None:
        return ""
    values: dict[str, Any] = {}
    todo: list[tuple[Pattern, Node, str]] = [(pattern, root, "")]
    while todo:
        current, value, where = todo.pop()
        subject = where or value.op.name
        if isinstance(current, VarPattern):
            if not _bind_var(current, value, values):
                return f"{subject} is {_described(value)}, {_expected(current, values)} is needed"
        elif isinstance(current, NumberPattern):
            if not is_number(value, current.value):
                return f"{subject} is not {current.value} everywhere"
        elif isinstance(current, AnyOpPattern):
            if value.op.name in STRUCTURAL:
                return f"{subject} is {_described(value)}, an op is needed"
        elif isinstance(current, OpPattern):
            if value.op not in current.ops:
                expected = " or ".join(op.name for op in current.ops)
                return f"{subject} is {_described(value)}, {expected} is needed"
            if not _bind_op(current, value, values):
                return f"{subject} has other attributes or arguments than the pattern"
            args = zip(current.args or (), value.args, strict=False)
            todo += [(p, a, f"argument {i} of {value.op.name}") for i, (p, a) in enumerate(args)][::-1]
    return "its arguments match in no order"


def _described(value: Node) -> str:
    return {"param": "an input", "const": "a constant"}.get(value.op.name, value.op.name)


def _expected(pattern: VarPattern, values: Mapping[str, Any]) -> str:
    if pattern.name in values:
        return f"the same value as elsewhere ({pattern.name})"
    return "a constant" if pattern.constant else f"a node that {pattern.name!r} accepts"


def is_number(value: Node, number: int | float | bool) -> bool:
    """Whether all elements of a constant node are a number, of the same kind (float, int, bool) and bits."""
    array = const_array(value)
    if array is None or array.size == 0 or not isinstance(value.type, TensorType):
        return False
    kind = value.type.dtype
    if isinstance(number, bool):
        return kind.is_bool and _is_filled(array, bool, number)
    if isinstance(number, int):
        return kind.is_int and _is_filled(array, int, number)
    return kind.is_float and _is_filled(array, float, number)


def _is_filled(array: np.ndarray[Any, Any], kind: type, number: int | float | bool) -> bool:
    # The first element decides for almost every weight, so that large arrays are seldom read.
    first = kind(array.flat[0])
    if isinstance(first, float):
        if struct.pack("<d", first) != struct.pack("<d", number):
            return False
    elif first != number:
        return False
    if array.size == 1:
        return True
    rows = np.ascontiguousarray(array).view(np.uint8).reshape(array.size, array.dtype.itemsize)
    return bool((rows == rows[0]).all())
