"""Shape arithmetic: the known elements of small tensors while a model is imported.

A model computes shapes by tensors: Shape, Gather, Mul, Concat, Reshape. `ShapeTable.known(node)` follows such
arithmetic through the graph. It returns the elements of a tensor if they depend on constants and dims alone,
as an array of the node's shape. If all elements are numbers, the array has the node's dtype. Otherwise it is
an array of objects: numbers, expressions over dims (`int64`, or `bool` for a condition), and in tensors of
floats a `Ratio` of such an expression. None means unknown.

`materialised` is the inverse: it returns the tensor of such elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from dlc_core.arith import Analyzer
from dlc_core.arith.interval import INF
from dlc_core.diag import DlcError
from dlc_core.graph.node import CONST, GET, TUPLE, Node, const_array, constant
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import Const, Expr, Var, as_expr, binary, free_vars, ne, post_order, select, unary
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op import std
from dlc_core.op.declare import OpDecl
from dlc_core.op.reference import apply
from dlc_frontend_onnx.floats import FLOATS, in_floats, truncated
from dlc_frontend_onnx.ratios import RULES as RATIO_OPS
from dlc_frontend_onnx.ratios import NoRatio, Ratio

MAX_ELEMENTS = 1024
"""Larger tensors are not followed."""

MAX_NODES = 50_000
"""Limit of nodes that one query visits."""

Known = npt.NDArray[Any]
Element = Any

_INT64 = (-(1 << 63), (1 << 63) - 1)


class Unknown(Exception):
    """The elements cannot be computed from constants and dims."""


_ELEMENTS: WeakSet[Var] = WeakSet()


def element(name: str, dtype: DType = INDEX) -> Var:
    """A variable for an integer or float whose value is data. Unlike a dim, an integer may be any, not only 1
    or more.
    """
    made = Var(name, dtype)
    _ELEMENTS.add(made)
    return made


def has_elements(value: Element) -> bool:
    """Whether an integer depends on data, not only on dims. A value computed in floats counts as data."""
    if not isinstance(value, Expr):
        return False
    return any(var in _ELEMENTS for var in free_vars(value)) or any(
        part.dtype.is_float for part in post_order(value)
    )


def analyzer_of(*values: Expr) -> Analyzer:
    """An analyzer in which all free variables are declared as dims, except elements.

    A dim may be 0: the values of `Shape` are computed by what is simplified here, and nothing checks them.
    """
    analyzer = Analyzer()
    for var in free_vars(*values):
        if var not in _ELEMENTS:
            analyzer.declare_dim(var, low=0)
    return analyzer


def at_most(size: Dim) -> Bounds | None:
    """The bounds of a dim that is at most `size`; None if `size` has no constant upper bound."""
    if isinstance(size, int):
        return Bounds(0, max(1, size))
    high = analyzer_of(size).quick_bounds(size)[1]
    return None if high == INF else Bounds(0, max(1, int(high)))


def simple(value: Element) -> Element:
    """An element simplified; a Python number if it is constant."""
    if isinstance(value, Ratio):
        numerator = simple(value.numerator)
        return (
            Ratio(numerator, value.denominator)
            if isinstance(numerator, Expr)
            else numerator / value.denominator
        )
    if not isinstance(value, Expr):
        return value
    found = analyzer_of(value).simplify(value)
    if isinstance(found, Const) and found.dtype.is_float:
        return float(found.value)
    if isinstance(found, Const):
        return bool(found.value) if found.dtype.is_bool else int(found.value)
    return found


def objects(values: Sequence[Element], shape: Sequence[int]) -> Known:
    """An object array of the elements in the given shape."""
    flat = np.empty(len(values), object)
    flat[:] = values
    return flat.reshape(tuple(shape))


def numeric(values: Known, dtype: DType) -> Known:
    """The array converted to the dtype if all its elements are numbers, else unchanged. Raises Unknown on
    overflow.
    """
    if values.dtype != object or any(isinstance(item, (Expr, Ratio)) for item in values.flat):
        return values
    if dtype.is_float:
        return values.astype(dtype.numpy)
    low, high = dtype.int_range() if dtype.is_int else _INT64
    if not all(low <= int(item) <= high for item in values.flat):
        raise Unknown
    return values.astype(dtype.numpy)


def int_elements(values: Known) -> tuple[Dim, ...]:
    """The elements of an integer array as dims."""
    return tuple(item if isinstance(item, Expr) else int(item) for item in values.reshape(-1))


def materialised(values: Known, type_: TensorType) -> Node:
    """The tensor of these integer elements, of rank 0 or 1. It is a constant if all of them are numbers."""
    if values.dtype != object or not any(isinstance(item, Expr) for item in values.flat):
        return constant(np.asarray(values, type_.dtype.numpy))
    vector = std.dims_tensor(dims=int_elements(values))
    wide = vector if values.ndim == 1 else std.squeeze(vector, axes=(0,))
    return wide if wide.dtype is type_.dtype else std.cast(wide, to=type_.dtype)


class ShapeTable:
    """The known elements of nodes, memoised."""

    def __init__(self) -> None:
        self._memo: dict[Node, Known | None] = {}

    def known(self, node: Node) -> Known | None:
        """The elements of the node's tensor; None if they are unknown, or if the tensor has more than
        `MAX_ELEMENTS`.
        """
        if not _small(node):
            return None
        stack = [node]
        budget = MAX_NODES
        while stack:
            current = stack[-1]
            if current in self._memo:
                stack.pop()
                continue
            budget -= 1
            missing = [arg for arg in _sources(current) if arg not in self._memo]
            hopeless = budget < 0 or any(not _small(arg) for arg in missing)
            if missing and not hopeless:
                stack.extend(missing)
                continue
            self._memo[current] = self._unknown(current) if hopeless else self._compute(current)
            stack.pop()
        return self._memo[node]

    def settled(self, node: Node) -> Node:
        """The node, or its replacement by a constant or `dims_tensor` if its elements are known integers."""
        if node.op is CONST or not isinstance(node.type, TensorType) or node.type.ndim > 1:
            return node
        if not node.type.dtype.is_int and not node.type.dtype.is_bool:
            return node
        values = self.known(node)
        if values is None or (values.dtype == object and node.type.dtype.is_bool):
            return node
        made = materialised(values, node.type)
        self._memo.setdefault(made, values)
        return made

    def _unknown(self, node: Node) -> Known | None:
        """The result for a tensor whose elements cannot be computed. `ElementTable` overrides it."""
        return None

    def _compute(self, node: Node) -> Known | None:
        if node.op is CONST:
            return const_array(node)
        if node.op is GET:
            return self._field(node)
        decl = node.op
        if not isinstance(decl, OpDecl) or not decl.pure:
            return None
        args = [self._memo[arg] for arg in node.args]
        if any(arg is None for arg in args):
            return None
        try:
            return _evaluate(decl, node, [arg for arg in args if arg is not None])
        except (Unknown, NoRatio, OverflowError, DlcError):
            return None

    def _field(self, node: Node) -> Known | None:
        """The elements of one output of a split."""
        source = node.args[0]
        if source.op is not std.split.decl:
            return None
        whole = self._memo[source.args[0]]
        sizes, axis = source.attrs["sizes"], source.attrs["axis"]
        if whole is None or not all(isinstance(size, int) for size in sizes):
            return None
        begin = sum(sizes[: node.attrs["index"]])
        return np.take(whole, range(begin, begin + sizes[node.attrs["index"]]), axis)


def _small(node: Node) -> bool:
    """Whether the tensor is static and has at most `MAX_ELEMENTS` elements."""
    if not isinstance(node.type, TensorType):
        return False
    shape = node.type.static_shape()
    return shape is not None and math.prod(shape) <= MAX_ELEMENTS


def _sources(node: Node) -> tuple[Node, ...]:
    """The nodes from whose elements the elements of this node are computed."""
    if node.op is GET:
        return node.args[0].args if node.args[0].op is std.split.decl else ()
    return () if node.op is TUPLE else node.args


def _evaluate(decl: OpDecl, node: Node, args: list[Known]) -> Known | None:
    type_ = node.tensor_type
    if decl is std.dims_tensor.decl:
        return numeric(objects([*node.attrs["dims"]], type_.static_shape() or (0,)), type_.dtype)
    symbolic = any(_is_symbolic(value) for value in node.attrs.values())
    if not symbolic and all(arg.dtype != object for arg in args):
        result = apply(decl, args, node.attrs, type_)
        return result if isinstance(result, np.ndarray) else None
    rule = _RULES.get(decl.name)
    if type_.dtype.is_float and decl.name in _RATIO_RULES:
        made = _RATIO_RULES[decl.name](node, *args)
    elif type_.dtype.is_float and decl.name not in _ANY_ELEMENTS and decl.name not in _STRUCTURAL:
        return None
    elif rule is not None:
        made = rule(node, *args)
    elif decl.name in _STRUCTURAL and not symbolic and decl.reference is not None:
        made = decl.reference(*args, **node.attrs)
    else:
        return None
    return numeric(np.asarray(made, object).reshape(type_.static_shape() or ()), type_.dtype)


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, Expr) or (isinstance(value, tuple) and any(map(_is_symbolic, value)))


_STRUCTURAL = frozenset(
    [
        "transpose",
        "squeeze",
        "unsqueeze",
        "concat",
        "slice",
        "flip",
        "roll",
        "tile",
        "repeat",
        "identity",
        "pad",
    ]
)

Rule = Callable[..., Known]


def _elementwise(combine: Callable[..., Element]) -> Rule:
    def rule(node: Node, *args: Known) -> Known:
        shape = node.tensor_type.static_shape()
        spread = [np.broadcast_to(arg, shape or ()).reshape(-1) for arg in args]
        made = [simple(combine(*map(_plain, items))) for items in zip(*spread, strict=True)]
        return objects(made, shape or ())

    return rule


def _plain(item: Element) -> Element:
    return item.item() if isinstance(item, np.generic) else item


def _op(name: str) -> Callable[[Element, Element], Element]:
    return lambda a, b: binary(name, as_expr(a), as_expr(b))


def _nonnegative(*values: Element) -> bool:
    exprs = [as_expr(value) for value in values]
    analyzer = analyzer_of(*exprs)
    return all(analyzer.const_bounds(expr)[0] >= 0 for expr in exprs)


def _quotient(a: Element, b: Element) -> Element:
    """Integer division that truncates toward zero. It equals floor division for nonnegative operands."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    denominator = simple(b)
    if not _nonnegative(a, b):
        if not isinstance(denominator, int) or denominator == 0:
            raise Unknown
        return binary("truncdiv", as_expr(a), as_expr(denominator))
    if denominator == 0:
        raise Unknown
    return as_expr(a) // as_expr(b)


def _floor(a: Element, b: Element) -> Element:
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return 0 if b == 0 else a // b
    if simple(b) == 0 or not _nonnegative(b):
        raise Unknown
    return as_expr(a) // as_expr(b)


def _modulo(a: Element, b: Element) -> Element:
    if simple(b) == 0 or not _nonnegative(b):
        raise Unknown
    return as_expr(a) % as_expr(b)


def _remainder(a: Element, b: Element) -> Element:
    if simple(b) == 0 or not _nonnegative(a, b):
        raise Unknown
    return as_expr(a) % as_expr(b)


def _choose(cond: Element, a: Element, b: Element) -> Element:
    cond = simple(cond)
    if not isinstance(cond, Expr):
        return a if cond else b
    return select(cond, as_expr(a), as_expr(b))


def _cast(node: Node, value: Known) -> Known:
    to_bool = node.tensor_type.dtype.is_bool
    to = node.tensor_type.dtype

    def convert(item: Element) -> Element:
        if to.is_float:
            return _as_float(item, to)
        if isinstance(item, (float, Ratio)):
            return _as_integer(item)
        expr = as_expr(item)
        if expr.dtype.is_float:
            return ne(expr, 0.0) if to_bool else truncated(expr)
        if to_bool:
            return expr if expr.dtype.is_bool else binary("ne", expr, as_expr(0))
        return select(expr, as_expr(1), as_expr(0)) if expr.dtype.is_bool else expr

    return _elementwise(convert)(node, value)


def _as_float(item: Element, to: DType) -> Element:
    if isinstance(item, Expr):
        if item.dtype.is_bool or (item.dtype.is_float and to.name not in FLOATS):
            raise Unknown
        return in_floats(item, to) if item.dtype.is_float else Ratio(item)
    return item if isinstance(item, Ratio) else float(item)


def _as_integer(item: Element) -> Element:
    """The value truncated toward zero."""
    if isinstance(item, Ratio):
        if not _nonnegative(item.numerator):
            raise Unknown
        return item.numerator // item.denominator
    return int(item)


def _gather(node: Node, value: Known, indices: Known) -> Known:
    if indices.dtype == object:
        raise Unknown
    axis = node.attrs["axis"] % value.ndim
    size = value.shape[axis]
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        raise Unknown
    return np.take(value, indices, axis)


def _reduce(combine: Callable[[Element, Element], Element], start: Element) -> Rule:
    def rule(node: Node, value: Known) -> Known:
        axes, keepdims = node.attrs["axes"], node.attrs["keepdims"]
        chosen = range(value.ndim) if axes is None else sorted(axis % value.ndim for axis in axes)
        result = value
        for axis in reversed(chosen):
            rows = np.moveaxis(result, axis, 0)
            total = np.full(rows.shape[1:], start, object)
            for row in rows:
                total = objects(
                    [simple(combine(*map(_plain, pair))) for pair in zip(total.flat, row.flat, strict=True)]
                    if total.ndim
                    else [simple(combine(_plain(total[()]), _plain(row)))],
                    total.shape,
                )
            result = np.expand_dims(total, axis) if keepdims else total
        return result

    return rule


def _nonempty(combine: Callable[[Element, Element], Element]) -> Rule:
    def first(a: Element, b: Element) -> Element:
        return b if a is None else combine(a, b)

    def rule(node: Node, value: Known) -> Known:
        if not value.size:
            raise Unknown
        return _reduce(first, None)(node, value)

    return rule


def _arange(node: Node) -> Known:
    start, step = node.attrs["start"], node.attrs["step"]
    (count,) = node.tensor_type.static_shape() or (0,)
    return objects([simple(as_expr(start) + index * step) for index in range(count)], (count,))


def _clip(node: Node, value: Known) -> Known:
    low, high = node.attrs["min"], node.attrs["max"]
    if any(bound is not None and bound != int(bound) for bound in (low, high)):
        raise Unknown

    def limited(item: Element) -> Element:
        result = as_expr(item)
        result = result if low is None else binary("max", result, as_expr(int(low)))
        return result if high is None else binary("min", result, as_expr(int(high)))

    return _elementwise(limited)(node, value)


_RULES: dict[str, Rule] = {
    "add": _elementwise(_op("add")),
    "sub": _elementwise(_op("sub")),
    "mul": _elementwise(_op("mul")),
    "div": _elementwise(_quotient),
    "floordiv": _elementwise(_floor),
    "mod": _elementwise(_modulo),
    "fmod": _elementwise(_remainder),
    "minimum": _elementwise(_op("min")),
    "maximum": _elementwise(_op("max")),
    "equal": _elementwise(_op("eq")),
    "not_equal": _elementwise(_op("ne")),
    "less": _elementwise(_op("lt")),
    "less_equal": _elementwise(_op("le")),
    "greater": _elementwise(_op("gt")),
    "greater_equal": _elementwise(_op("ge")),
    "logical_and": _elementwise(_op("and")),
    "logical_or": _elementwise(_op("or")),
    "logical_not": _elementwise(lambda a: unary("not", as_expr(a))),
    "neg": _elementwise(lambda a: -as_expr(a)),
    "abs": _elementwise(lambda a: binary("max", as_expr(a), -as_expr(a))),
    "relu": _elementwise(lambda a: binary("max", as_expr(a), as_expr(0))),
    "where": _elementwise(_choose),
    "clip": _clip,
    "cast": _cast,
    "reshape": lambda node, value: value.reshape(node.tensor_type.static_shape() or ()),
    "broadcast_to": lambda node, value: np.broadcast_to(value, node.tensor_type.static_shape() or ()),
    "gather": _gather,
    "reduce_sum": _reduce(_op("add"), 0),
    "reduce_prod": _reduce(_op("mul"), 1),
    "reduce_max": _nonempty(_op("max")),
    "reduce_min": _nonempty(_op("min")),
    "arange": _arange,
}


_ANY_ELEMENTS = frozenset({"reshape", "broadcast_to", "gather", "cast"})
"""Rules that only move or convert elements, so that they apply to floats too."""

_RATIO_RULES = {name: _elementwise(combine) for name, combine in RATIO_OPS.items()}


__all__ = [
    "Known",
    "ShapeTable",
    "Unknown",
    "element",
    "has_elements",
    "int_elements",
    "materialised",
    "objects",
    "simple",
]
