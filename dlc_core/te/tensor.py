"""Tensors computed by expressions: `placeholder`, `compute`, and reductions.

    A = te.placeholder((n, k), name="A")
    B = te.placeholder((k, m), name="B")
    r = te.reduce_axis(k, "r")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")

A `Tensor` owns the buffer of its elements, and each buffer is mapped to the operation that computes it.
`te.create_prim_func` finds all operations that the given tensors depend on, and makes a PrimFunc with one
block for each.
"""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import ConditionRow
from dlc_core.ir.dtype import DType, DTypeLike, dtype
from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, const, const_value, free_vars, loads_in
from dlc_core.ir.types import Dim
from dlc_core.tir.combine import Combine
from dlc_core.tir.stmt import IterVar, Range


@dataclass(frozen=True)
class Combiner:
    """A commutative, associative function of two values, or of two tuples of values.

    `combine(lhs, rhs)` maps two tuples of expressions to one; `identity(dtypes)` gives the neutral values.
    """

    name: str
    combine: Combine
    identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]]


@dataclass(frozen=True, eq=False)
class Reduction:
    """The value of a reducing compute: `sources` combined over `axes` where `condition` holds."""

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    condition: Expr | None = None

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(
            f"a {self.combiner.name} over axes cannot be part of an expression",
            why="it must be the whole value of a compute",
            hint="compute it as a tensor of its own, and use that tensor's elements",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __invert__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _refuse
    __getitem__ = astype = _refuse


@dataclass(frozen=True, eq=False)
class Operation:
    """How tensors are computed.  Base of `ComputeOp`, `ExternOp` and `ScanOp`."""

    name: str
    buffer_refs: list[weakref.ref[Buffer]] = field(default_factory=list, init=False, repr=False)
    """Weak references to the buffers of its tensors, in order."""
    conditions: list[ConditionRow] = field(default_factory=list, init=False, repr=False)
    """What its definition assumes about symbolic dims; see `require`."""

    def results(self) -> tuple[tuple[tuple[Expr, ...], DType], ...]:
        """Shape and dtype of each tensor that the operation computes."""
        raise NotImplementedError(f"{type(self).__name__}.results")

    def reads(self) -> Iterable[Buffer]:
        """The buffers that the operation reads, in the order of first use."""
        raise NotImplementedError(f"{type(self).__name__}.reads")

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the operation reads, in the order of first use, such as its padded input."""
        found = ((buffer, producer_of(buffer)) for buffer in self.reads())
        return tuple(Tensor(buffer) if made is None else Tensor(buffer, *made) for buffer, made in found)

    def free_vars(self) -> Iterable[Var]:
        """Variables that the operation does not bind, in the order of first use. They become by-value
        parameters of programs.
        """
        raise NotImplementedError(f"{type(self).__name__}.free_vars")

    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of all its tensors. A tensor that is no longer referenced gets a fresh buffer."""
        known = [ref() for ref in self.buffer_refs]
        if None in known:
            fresh = self.fresh_buffers()
            known = [found or fresh[i] for i, found in enumerate(known)]
        return tuple(b for b in known if b is not None)

    def fresh_buffers(self) -> tuple[Buffer, ...]:
        """New buffers for all its tensors."""
        results = self.results()
        names = [self.name] if len(results) == 1 else [f"{self.name}_{i}" for i in range(len(results))]
        return tuple(Buffer(n, shape, type_) for n, (shape, type_) in zip(names, results, strict=True))


@dataclass(frozen=True, eq=False)
class ComputeOp(Operation):
    """For each point of `axes` the values of `body`, one for each output."""

    axes: tuple[IterVar, ...]
    body: tuple[Expr, ...] | Reduction
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The axes of the outputs, for schedules."""
        return self.axes

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes that are reduced, for schedules."""
        return self.reduce_axes

    @property
    def reduce_axes(self) -> tuple[IterVar, ...]:
        return self.body.axes if isinstance(self.body, Reduction) else ()

    @property
    def sources(self) -> tuple[Expr, ...]:
        """All expressions of the body."""
        if isinstance(self.body, Reduction):
            condition = () if self.body.condition is None else (self.body.condition,)
            return self.body.sources + condition
        return self.body

    def results(self) -> tuple[tuple[tuple[Expr, ...], DType], ...]:
        values = self.body.sources if isinstance(self.body, Reduction) else self.body
        shape = tuple(a.dom.extent for a in self.axes)
        return tuple((shape, value.dtype) for value in values)

    def reads(self) -> Iterable[Buffer]:
        return dict.fromkeys(e.buffer for e in loads_in(*self.sources))

    def free_vars(self) -> Iterable[Var]:
        axes = (*self.axes, *self.reduce_axes)
        bound = {a.var for a in axes}
        domains = [e for a in axes for e in (a.dom.begin, a.dom.extent)]
        return [v for v in free_vars(*self.sources, *domains) if v not in bound]


class Tensor:
    """A placeholder (`op` is None) or output `index` of an operation; `tensor[i, j]` is an element."""

    __slots__ = ("buffer", "index", "op")

    def __init__(self, buffer: Buffer, op: Operation | None = None, index: int = 0) -> None:
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

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Raises UsageError: combiners and bodies of operations are Python functions."""
        raise UsageError(
            f"tensor {self.name!r} cannot be pickled",
            why="how it is computed is known to this process only",
            hint="pickle te.create_prim_func([...]), which has all of it",
        )

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self

    def __repr__(self) -> str:
        return f"<te {self.buffer!r}>"


_producers: weakref.WeakKeyDictionary[Buffer, tuple[Operation, int]] = weakref.WeakKeyDictionary()
"""The operations that compute buffers. No operation refers to the buffers of its tensors, so that entries end
with the buffers."""


def producer_of(buffer: Buffer) -> tuple[Operation, int] | None:
    """The operation that computes a buffer, and the index of the buffer among its tensors; None for
    placeholders.
    """
    return _producers.get(buffer)


def make_tensors(op: Operation) -> tuple[Tensor, ...]:
    """Make the tensors of a new operation."""
    outputs = []
    for index, buffer in enumerate(op.fresh_buffers()):
        op.buffer_refs.append(weakref.ref(buffer))
        _producers[buffer] = (op, index)
        outputs.append(Tensor(buffer, op, index))
    for collected in _collectors.get():
        collected.extend(outputs)
    return tuple(outputs)


def require(tensors: Iterable[Tensor], conditions: Iterable[ConditionRow]) -> None:
    """Make every program that computes these tensors check conditions on symbolic dims in each call.

    A condition is a tuple of the fields of an `ir.conditions.Condition`.
    """
    rows = tuple(conditions)
    for operation in dict.fromkeys(t.op for t in tensors if t.op is not None):
        operation.conditions.extend(rows)


def placeholder(shape: Sequence[Dim], dtype_: DTypeLike = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor. Symbolic dims are Vars of index type."""
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
    """Collect in a list all tensors that are computed inside the `with`."""
    made: list[Tensor] = []
    token = _collectors.set((*_collectors.get(), made))
    try:
        yield made
    finally:
        _collectors.reset(token)


_AXIS_NAMES = ("i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7")


def compute(
    shape: Sequence[Dim],
    body: Callable[..., ExprLike | Reduction | tuple[ExprLike | Reduction, ...]],
    name: str = "compute",
    *,
    dtype_: DTypeLike | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """A tensor that `body` defines at every point of `shape`; a tuple of tensors if `body` returns a tuple.

    `body` takes one index for each dim. It returns an expression, a reduction, or a tuple of expressions or
    of reductions over the same axes. Literals take `dtype_`. If `dtype_` is given, expressions must have it.
    """
    dims = tuple(as_expr(d) for d in (shape if isinstance(shape, Sequence) else (shape,)))
    names = _parameter_names(body, len(dims))
    axes = tuple(IterVar(Var(n), Range(const(0), d)) for n, d in zip(names, dims, strict=True))
    value = body(*(axis.var for axis in axes))
    if isinstance(value, (tuple, list)) and any(isinstance(v, Reduction) for v in value):
        value = _merged_reduction(name, value)
    if isinstance(value, Reduction) and any(const_value(axis.dom.extent) == 0 for axis in value.axes):
        # The loop over an empty domain would not even store the neutral value.
        value = tuple(value.combiner.identity(tuple(source.dtype for source in value.sources)))
    if isinstance(value, Reduction):
        op = ComputeOp(name, axes, value, dict(annotations or {}))
    else:
        many: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if not many:
            raise UsageError(f"compute {name!r} returns no value")
        exprs = tuple(as_expr(v, None if isinstance(v, Expr) else dtype_) for v in many)
        op = ComputeOp(name, axes, exprs, dict(annotations or {}))
    if dtype_ is not None:
        dtypes = [type_ for _, type_ in op.results()]
        if any(found is not dtype(dtype_) for found in dtypes):
            raise UsageError(f"compute {name!r} gives {', '.join(map(str, dtypes))}, not {dtype(dtype_)}")
    outputs = make_tensors(op)
    return outputs[0] if len(outputs) == 1 else outputs


def _merged_reduction(name: str, parts: Sequence[Any]) -> Reduction:
    """Merge several reductions over the same axes into one."""
    if not all(isinstance(p, Reduction) for p in parts):
        raise UsageError(
            f"compute {name!r} gives reductions and plain values at once", hint="make them two computes"
        )
    first: Reduction = parts[0]
    if any(p.axes != first.axes or p.condition is not first.condition for p in parts):
        raise UsageError(
            f"the reductions of compute {name!r} run over different axes, or under different conditions",
            hint="make them computes of their own",
        )
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part.sources))
    slices = [slice(*pair) for pair in itertools.pairwise(ends)]

    def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(v for p, s in zip(parts, slices, strict=True) for v in p.combiner.combine(a[s], b[s]))

    def identity(dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
        return tuple(v for p, s in zip(parts, slices, strict=True) for v in p.combiner.identity(dtypes[s]))

    merged = Combiner("_".join(p.combiner.name for p in parts), combine, identity)
    return Reduction(merged, tuple(v for p in parts for v in p.sources), first.axes, first.condition)


def _parameter_names(body: Callable[..., Any], rank: int) -> list[str]:
    """The parameter names of the lambda, so that printed loops are readable; generic names for `*indices`."""
    parameters = inspect.signature(body).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return [_AXIS_NAMES[i] if i < len(_AXIS_NAMES) else f"i{i}" for i in range(rank)]
    if len(positional) != rank:
        positional = [p for p in positional if p.default is p.empty]
    if len(positional) != rank:
        raise UsageError(
            f"a compute over {rank} dims needs a function of {rank} indices, not {len(positional)}"
        )
    return [p.name for p in positional]
