"""Types of graph values: tensors with symbolic dims, and tuples of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc_core.ir.dtype import STRING, DType, DTypeLike, dtype
from dlc_core.ir.expr import Const, Expr, Var, as_expr, const_value, free_vars
from dlc_core.support.record import record

Dim = int | Expr
"""An int, or an integer expression over symbolic dims (index-typed `Var`s); constants are kept as int."""


def dim(value: Dim) -> Dim:
    """The canonical form of a dim: an int if it is known."""
    if isinstance(value, Const):
        return int(value.value)
    return value if isinstance(value, Expr) else int(value)


@record(frozen=True)
class TensorType:
    """A dense tensor: `shape` of `Dim`s and an element type.  Equal when dtype and dims (by identity) are."""

    shape: tuple[Dim, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def static_shape(self) -> tuple[int, ...] | None:
        values = [const_value(d) for d in self.shape]
        return None if any(v is None for v in values) else tuple(v for v in values if v is not None)

    def dim_exprs(self) -> tuple[Expr, ...]:
        return tuple(as_expr(d) for d in self.shape)

    def symbols(self) -> list[Var]:
        """Symbolic dims in the order of first use."""
        return free_vars(*(d for d in self.shape if isinstance(d, Expr)))

    def with_dtype(self, to: DTypeLike) -> TensorType:
        return TensorType(self.shape, dtype(to))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(d) for d in self.shape)}]"


@record(frozen=True)
class TupleType:
    """A fixed number of values of known types."""

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.fields)) + ")"


Type = TensorType | TupleType


def tensor_type(shape: Sequence[Dim], dtype_: DTypeLike = "float32") -> TensorType:
    """A TensorType with dims and dtype in canonical form.

    >>> str(tensor_type((1, 3), "int8"))
    'int8[1, 3]'
    """
    return TensorType(tuple(dim(d) for d in shape), dtype(dtype_))


def symbols_of(type_: Type) -> list[Var]:
    """Symbolic dims of a type in the order of first use."""
    if isinstance(type_, TensorType):
        return type_.symbols()
    seen: dict[Var, None] = {}
    for field in type_.fields:
        seen.update(dict.fromkeys(symbols_of(field)))
    return list(seen)


def may_be_equal(a: Type, b: Type) -> bool:
    """Whether two types have the same dtypes and ranks, and no different known sizes."""
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(map(may_be_equal, a.fields, b.fields))
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return False
    if a.dtype is not b.dtype or a.ndim != b.ndim:
        return False
    pairs = zip(a.shape, b.shape, strict=True)
    return all(x == y for x, y in pairs if isinstance(x, int) and isinstance(y, int))


def static_bytes(*types: Type) -> int | None:
    """The bytes of values of these types. None if a shape is symbolic, and for texts."""
    total = 0
    for type_ in types:
        if isinstance(type_, TupleType):
            size = static_bytes(*type_.fields)
        else:
            shape = None if type_.dtype is STRING else type_.static_shape()
            size = None if shape is None else math.prod(shape) * type_.dtype.itemsize
        if size is None:
            return None
        total += size
    return total
