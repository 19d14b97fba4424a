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
from dlc_core.op.known import known_ops
from dlc_core.support.record import record


@record(frozen=True)
class Pattern:
    """Base of patterns."""


@record(frozen=True)
class VarPattern(Pattern):
    """Any node; `constant` restricts it to constants, `accepts` by a predicate."""

    name: str
    constant: bool = False
    accepts: Callable[[Node], bool] | None = None


@record(frozen=True)
class NumberPattern(Pattern):
    """A constant of any shape and dtype all of whose elements are one number, bit for bit."""

    value: int | float | bool


@record(frozen=True)
class AttrVar:
    """An attribute's value under a name."""

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
    """A pattern of any node (that `accepts` says yes to)."""
    return VarPattern(name, accepts=accepts)


def const_var(name: str, accepts: Callable[[Node], bool] | None = None) -> VarPattern:
    """A pattern of any constant (that `accepts` says yes to)."""
    return VarPattern(name, True, accepts)


def number(value: int | float | bool) -> NumberPattern:
    """A pattern of a constant that is this number everywhere; -0.0 and 0.0 differ, 0 and 0.0 do by dtype."""
    return NumberPattern(value)


def attr(name: str) -> AttrVar:
    """Captures an attribute."""
    return AttrVar(name)


OpLike = Op | str
"""An op, or its name."""


def _ops(op: OpLike | Sequence[OpLike]) -> tuple[Op, ...]:
    given = (op,) if isinstance(op, (Op, str)) else op
    return tuple(known_ops()[each] if isinstance(each, str) else each for each in given)


def any_op(capture: str = "") -> AnyOpPattern:
    """A pattern of a node of whatever op."""
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
        """The matched operations and constants, the root first: what a replacement stands for."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    @property
    def root(self) -> Node:
        return self.nodes[0]


_Todo = tuple[Any, ...] | None


def match(pattern: Pattern, root: Node) -> Match | None:
    """The first way in which a pattern matches a node, or None.  Iterative, with backtracking over orders."""
    branches: list[tuple[_Todo, dict[str, Any], tuple[Node, ...]]] = [((pattern, root, None), {}, ())]
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


def _push(patterns: Sequence[Pattern], nodes: Sequence[Node], todo: _Todo) -> _Todo:
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
    for name, wanted in pattern.attrs.items():
        if name not in value.attrs:
            return False
        found = value.attrs[name]
        if isinstance(wanted, AttrVar):
            if wanted.name in values and attr_key(values[wanted.name]) != attr_key(found):
                return False
            values[wanted.name] = found
        elif callable(wanted):
            if not wanted(found):
                return False
        elif attr_key(wanted) != attr_key(found):
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
        place = where or value.op.name
        if isinstance(current, VarPattern):
            if not _bind_var(current, value, values):
                return f"{place} is {_words(value)}, {_wanted(current, values)} is needed"
        elif isinstance(current, NumberPattern):
            if not is_number(value, current.value):
                return f"{place} is not {current.value} everywhere"
        elif isinstance(current, AnyOpPattern):
            if value.op.name in STRUCTURAL:
                return f"{place} is {_words(value)}, an op is needed"
        elif isinstance(current, OpPattern):
            if value.op not in current.ops:
                wanted = " or ".join(op.name for op in current.ops)
                return f"{place} is {_words(value)}, {wanted} is needed"
            if not _bind_op(current, value, values):
                return f"{place} has other attributes or arguments than the pattern"
            args = zip(current.args or (), value.args, strict=False)
            todo += [(p, a, f"argument {i} of {value.op.name}") for i, (p, a) in enumerate(args)][::-1]
    return "its arguments fit in no order"


def _words(value: Node) -> str:
    return {"param": "an input", "const": "a constant"}.get(value.op.name, value.op.name)


def _wanted(pattern: VarPattern, values: Mapping[str, Any]) -> str:
    if pattern.name in values:
        return f"the same value as elsewhere ({pattern.name})"
    return "a constant" if pattern.constant else f"what {pattern.name!r} accepts"


def is_number(value: Node, wanted: int | float | bool) -> bool:
    """Whether all elements of a node, a constant, are a number: of its kind (float, int, bool) and bits."""
    array = const_array(value)
    if array is None or array.size == 0 or not isinstance(value.type, TensorType):
        return False
    kind = value.type.dtype
    if isinstance(wanted, bool):
        return kind.is_bool and _is_filled(array, bool, wanted)
    if isinstance(wanted, int):
        return kind.is_int and _is_filled(array, int, wanted)
    return kind.is_float and _is_filled(array, float, wanted)


def _is_filled(array: np.ndarray[Any, Any], kind: type, wanted: int | float | bool) -> bool:
    # The first element decides for almost every weight, so that large arrays are seldom read.
    first = kind(array.flat[0])
    if isinstance(first, float):
        if struct.pack("<d", first) != struct.pack("<d", wanted):
            return False
    elif first != wanted:
        return False
    if array.size == 1:
        return True
    rows = np.ascontiguousarray(array).view(np.uint8).reshape(array.size, array.dtype.itemsize)
    return bool((rows == rows[0]).all())
