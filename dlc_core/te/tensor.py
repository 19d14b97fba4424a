"""Tensors computed by expressions: `placeholder`, `compute`, reductions over `reduce_axis`.

    A = te.placeholder((n, k), name="A")
    B = te.placeholder((k, m), name="B")
    r = te.reduce_axis(k, "k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")

A `Tensor` owns the buffer that its elements are read from; `te.create_prim_func` turns a set of outputs into
a PrimFunc with one block for each computation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, DTypeLike, dtype
from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, binary, const, const_value
from dlc_core.ir.types import Dim
from dlc_core.tir.stmt import IterVar, Range


@dataclass(frozen=True)
class Combiner:
    """A commutative, associative reduction over one or more values at once.

    `combine(lhs, rhs)` maps two tuples of expressions to one; `identity(dtypes)` gives the neutral values.
    """

    name: str
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]]


@dataclass(frozen=True, eq=False)
class Reduction:
    """The value of a reducing compute: `sources` combined over `axes` where `condition` holds."""

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    condition: Expr | None = None


@dataclass(frozen=True, eq=False)
class ComputeOp:
    """How tensors are computed: for each point of `axes` the values of `body` (one for each output)."""

    name: str
    axes: tuple[IterVar, ...]
    body: tuple[Expr, ...] | Reduction
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reduce_axes(self) -> tuple[IterVar, ...]:
        return self.body.axes if isinstance(self.body, Reduction) else ()


class Tensor:
    """A placeholder (`op` is None) or output `index` of a ComputeOp; `tensor[i, j]` is an element."""

    __slots__ = ("buffer", "index", "op")

    def __init__(self, buffer: Buffer, op: ComputeOp | None = None, index: int = 0) -> None:
        self.buffer = buffer
        self.op = op
        self.index = index

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.buffer.shape

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def __getitem__(self, indices: ExprLike | IterVar | tuple[ExprLike | IterVar, ...]) -> Expr:
        items = indices if isinstance(indices, tuple) else (indices,)
        return self.buffer[tuple(i.var if isinstance(i, IterVar) else i for i in items)]

    def __repr__(self) -> str:
        return f"<te {self.buffer!r}>"


def placeholder(shape: Sequence[Dim], dtype_: DTypeLike = "float32", name: str = "placeholder") -> Tensor:
    """An input; symbolic dims are index-typed Vars."""
    return Tensor(Buffer(name, shape, dtype_))


def reduce_axis(dom: Dim | tuple[ExprLike, ExprLike], name: str = "k") -> IterVar:
    """A reduction axis over [0, dom) or [begin, end)."""
    begin, end = (
        (as_expr(0), as_expr(dom)) if not isinstance(dom, tuple) else (as_expr(dom[0]), as_expr(dom[1]))
    )
    return IterVar(Var(name), Range(begin, end - begin), "reduce")


_collectors: ContextVar[tuple[list[Tensor], ...]] = ContextVar("dlc_te_collectors", default=())


@contextmanager
def collect() -> Iterator[list[Tensor]]:
    """The list of all tensors made inside the `with`: the `producers` of `create_prim_func`."""
    made: list[Tensor] = []
    token = _collectors.set((*_collectors.get(), made))
    try:
        yield made
    finally:
        _collectors.reset(token)


_AXIS_NAMES = ("i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7")


def compute(
    shape: Sequence[Dim],
    body: Callable[..., ExprLike | Reduction | tuple[ExprLike, ...]],
    name: str = "compute",
    *,
    dtype_: DTypeLike | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """A tensor (a tuple of tensors where `body` gives several values) defined at every point of `shape`.

    `body` takes one index for each dim.  Literals take `dtype_`; an expression's dtype must be `dtype_` when
    given.
    """
    dims = tuple(as_expr(d) for d in shape)
    names = _parameter_names(body, len(dims))
    axes = tuple(IterVar(Var(n), Range(const(0), d)) for n, d in zip(names, dims, strict=True))
    value = body(*(axis.var for axis in axes))
    if isinstance(value, Reduction) and any(const_value(axis.dom.extent) == 0 for axis in value.axes):
        # A loop over nothing would not even store the neutral value.
        value = value.combiner.identity(tuple(source.dtype for source in value.sources))
    if isinstance(value, Reduction):
        op = ComputeOp(name, axes, value, dict(annotations or {}))
        dtypes = [source.dtype for source in value.sources]
    else:
        many = value if isinstance(value, tuple) else (value,)
        exprs = tuple(as_expr(v, None if isinstance(v, Expr) else dtype_) for v in many)
        op = ComputeOp(name, axes, exprs, dict(annotations or {}))
        dtypes = [expr.dtype for expr in exprs]
    if dtype_ is not None and any(found is not dtype(dtype_) for found in dtypes):
        raise UsageError(f"compute {name!r} gives {', '.join(map(str, dtypes))}, not {dtype(dtype_)}")
    outputs = tuple(
        Tensor(Buffer(name if len(dtypes) == 1 else f"{name}_{i}", dims, found), op, i)
        for i, found in enumerate(dtypes)
    )
    for made in _collectors.get():
        made.extend(outputs)
    return outputs[0] if len(outputs) == 1 else outputs


def _parameter_names(body: Callable[..., Any], rank: int) -> list[str]:
    """The lambda's own parameter names, so that printed loops are readable; generic ones for `*indices`."""
    parameters = inspect.signature(body).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return [_AXIS_NAMES[i] if i < len(_AXIS_NAMES) else f"i{i}" for i in range(rank)]
    if len(positional) != rank:
        raise UsageError(
            f"a compute over {rank} dims needs a function of {rank} indices, not {len(positional)}"
        )
    return [p.name for p in positional]


def _reducer(name: str, op: str, identity: Callable[[DType], int | float]) -> Combiner:
    return Combiner(
        name,
        lambda a, b: (binary(op, a[0], b[0]),),
        lambda dtypes: (const(identity(dtypes[0]), dtypes[0]),),
    )


def _lowest(type_: DType) -> int | float:
    return float("-inf") if type_.is_float else type_.int_range()[0]


def _highest(type_: DType) -> int | float:
    return float("inf") if type_.is_float else type_.int_range()[1]


SUM = _reducer("sum", "add", lambda _: 0)
PROD = _reducer("prod", "mul", lambda _: 1)
MAX = _reducer("max", "max", _lowest)
MIN = _reducer("min", "min", _highest)


def reduce(
    combiner: Combiner,
    sources: Sequence[ExprLike],
    axis: IterVar | Sequence[IterVar],
    where: Expr | None = None,
) -> Reduction:
    """A reduction with any combiner; `sources` has as many values as the combiner combines."""
    axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
    if any(a.kind != "reduce" for a in axes):
        raise UsageError("a reduction runs over reduce axes", hint="make them with te.reduce_axis")
    return Reduction(combiner, tuple(as_expr(s) for s in sources), axes, where)


def sum(source: ExprLike, axis: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    return reduce(SUM, (source,), axis, where)


def prod(source: ExprLike, axis: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    return reduce(PROD, (source,), axis, where)


def max(source: ExprLike, axis: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    """Maximum; NaN where any source is NaN."""
    return reduce(MAX, (source,), axis, where)


def min(source: ExprLike, axis: IterVar | Sequence[IterVar], where: Expr | None = None) -> Reduction:
    """Minimum; NaN where any source is NaN."""
    return reduce(MIN, (source,), axis, where)


def is_static(tensor: Tensor) -> bool:
    return all(const_value(d) is not None for d in tensor.shape)
