"""Values inside `forward`: graph nodes with Python operators, and functions that make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.graph.node import Node, get_item
from dlc_core.graph.node import constant as constant_node
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType, DTypeLike
from dlc_core.ir.types import Dim, TensorType, TupleType
from dlc_core.op import std
from dlc_core.op.declare import OpDecl


@dataclass(frozen=True)
class Spec:
    """The shape and dtype of an input.  A dim that is a name is symbolic: the same name is the same dim."""

    shape: tuple[int | str, ...]
    dtype: str = "float32"


class Tensor:
    """A value of the graph that is being built.

    Arithmetic and comparisons work element by element and broadcast; Python numbers take the tensor's dtype.
    """

    __slots__ = ("_node",)
    __array_ufunc__ = None
    """NumPy leaves `array * tensor` to us."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def node(self) -> Node:
        return self._node

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Dims, ints or expressions over symbolic dims."""
        return self.node.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node.type}>"

    def __bool__(self) -> bool:
        raise UsageError(
            "the truth of a tensor is known only when the model runs",
            hint="nn.where(cond, a, b) chooses element by element",
        )

    def __iter__(self) -> Any:
        raise UsageError("a tensor cannot be iterated over", hint="nn.split(x, sizes, axis) gives parts")

    def __add__(self, other: Any) -> Tensor:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _binary("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _binary("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _binary("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _binary("div", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return _binary("pow", self, other)

    def __matmul__(self, other: Any) -> Tensor:
        return matmul(self, other)

    def __neg__(self) -> Tensor:
        return call("neg", self)

    def __lt__(self, other: Any) -> Tensor:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _binary("greater_equal", self, other)

    def reshape(self, *shape: Dim) -> Tensor:
        """The elements in row-major order in another shape, of which one dim may be -1."""
        return call("reshape", self, shape=_unpacked(shape))

    def transpose(self, *axes: int) -> Tensor:
        """The dims in another order, by default reversed."""
        order = tuple(axes) if axes else tuple(reversed(range(self.ndim)))
        return call("transpose", self, axes=_unpacked(order))

    def astype(self, to: DTypeLike) -> Tensor:
        """Converted elements."""
        return call("cast", self, to=to)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduced("reduce_sum", axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduced("reduce_mean", axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduced("reduce_max", axis, keepdims)

    def _reduced(self, name: str, axis: int | Sequence[int] | None, keepdims: bool) -> Tensor:
        axes = (axis,) if isinstance(axis, int) else None if axis is None else tuple(axis)
        return call(name, self, axes=axes, keepdims=keepdims)


def _unpacked(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """`f(1, 2)` and `f((1, 2))` are the same."""
    return tuple(items[0]) if len(items) == 1 and isinstance(items[0], (tuple, list)) else items


def constant(value: Any, dtype_: DTypeLike | None = None) -> Tensor:
    """A number or an array as a constant of the graph; float64 becomes float32 unless a dtype is given."""
    array = np.asarray(value)
    if dtype_ is None and array.dtype == np.float64:
        dtype_ = "float32"
    return Tensor(constant_node(array if dtype_ is None else convert(array, dtype_)))


def node_of(value: Any, like: DType | None = None) -> Node:
    """A tensor's node; numbers and arrays become constants."""
    if isinstance(value, Tensor):
        return value.node
    if isinstance(value, Node):
        return value
    if isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        return constant(value, like if isinstance(value, (bool, int, float)) else None).node
    raise UsageError(
        f"a {type(value).__name__} cannot be an operand", hint="tensors, numbers and NumPy arrays can"
    )


def call(op: str | OpDecl, *args: Any, **attrs: Any) -> Tensor:
    """The result of an op, a standard one by its name.

    Raises TypeInferenceError for operands that do not fit, UsageError for an op of several results.
    """
    made = _made(op, args, attrs)
    if isinstance(made.type, TupleType):
        raise UsageError(f"op {made.op.name!r} has several results", hint="call_many gives them")
    return Tensor(made)


def call_many(op: str | OpDecl, *args: Any, **attrs: Any) -> tuple[Tensor, ...]:
    """The results of an op that has several; see `call`."""
    made = _made(op, args, attrs)
    if not isinstance(made.type, TupleType):
        return (Tensor(made),)
    return tuple(Tensor(get_item(made, i)) for i in range(len(made.type.fields)))


def _made(op: str | OpDecl, args: Sequence[Any], attrs: Mapping[str, Any]) -> Node:
    decl = op if isinstance(op, OpDecl) else std.BY_NAME.get(op)
    if decl is None:
        raise UsageError(f"there is no standard op {op!r}", hint="dlc.ops() has all ops by name")
    return decl.build(*map(node_of, args), **attrs)


def _binary(name: str, a: Any, b: Any) -> Tensor:
    like = a.dtype if isinstance(a, Tensor) else b.dtype
    return call(name, node_of(a, like), node_of(b, like))


def matmul(a: Any, b: Any, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """Products of matrices, in the last two dims."""
    return call("matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def maximum(a: Any, b: Any) -> Tensor:
    """The larger of two tensors or numbers, element by element."""
    return _binary("maximum", a, b)


def minimum(a: Any, b: Any) -> Tensor:
    """The smaller of two tensors or numbers, element by element."""
    return _binary("minimum", a, b)


def where(cond: Tensor, a: Any, b: Any) -> Tensor:
    """`a` where the condition holds, else `b`."""
    like = next((v.dtype for v in (a, b) if isinstance(v, Tensor)), None)
    return call("where", cond, node_of(a, like), node_of(b, like))


def relu(x: Tensor) -> Tensor:
    """max(x, 0)"""
    return call("relu", x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x, exactly or ("tanh") nearly."""
    return call("gelu", x, approximate=approximate)


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x)"""
    return call("silu", x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))"""
    return call("sigmoid", x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return call("tanh", x)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) over its sum along an axis."""
    return call("softmax", x, axis=axis)


def concat(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors joined along an axis."""
    return call("concat", *parts, axis=axis)


def split(x: Tensor, sizes: Sequence[Dim], axis: int = 0) -> tuple[Tensor, ...]:
    """Parts of the given sizes along an axis."""
    return call_many("split", x, sizes=tuple(sizes), axis=axis)


def type_text(value: Tensor) -> str:
    """Describe a tensor's type for error messages."""
    type_: TensorType = value.node.tensor_type
    return str(type_)


__all__ = [
    "Spec",
    "Tensor",
    "call",
    "call_many",
    "concat",
    "constant",
    "gelu",
    "matmul",
    "maximum",
    "minimum",
    "node_of",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "split",
    "tanh",
    "type_text",
    "where",
]
