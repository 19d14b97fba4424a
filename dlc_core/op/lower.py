"""Parts of tensor lowerings that op declarations share.

A lowering is `lower(type_, attrs, *tensors)`. It gets the inferred result type, canonical attributes and one
te tensor for each argument. It returns the result tensor, or a tuple for a tuple type. Shapes may be
symbolic. A node with a plan is lowered by the plan (`ir/plan.py`), other nodes by their ops.

Floats narrower than 32 bits are computed in float32 and rounded once for each op: `widen` at loads, `narrow`
at stores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from dlc_core import te
from dlc_core.diag import UnsupportedError
from dlc_core.graph.node import Node
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, DTypeLike
from dlc_core.ir.expr import (
    Expr,
    ExprLike,
    Var,
    as_expr,
    binary,
    cast_to,
    const,
    const_value,
    eq,
    logical_and,
    maximum,
    minimum,
    ne,
    select,
)
from dlc_core.ir.plan import PLAN, without_plan
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op.declare import Lower, OpDecl, lowering_of, plan_of
from dlc_core.tir.failures import report_index
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Block, IterVar, PrimFunc, Range, Region, Stmt, loop


def compute_type(type_: DType) -> DType:
    """The dtype in which values of `type_` are computed."""
    if type_.decl is not None:
        return DType(type_.decl.computed)
    return DType("float32") if type_.is_float and type_.bits < 32 else type_


def widen(value: Expr) -> Expr:
    """The value in its computing dtype."""
    return cast_to(compute_type(value.dtype), value)


def narrow(value: Expr, to: DTypeLike) -> Expr:
    """The value in the result dtype."""
    return cast_to(to, value)


def truncate_div(a: Expr, b: Expr) -> Expr:
    """Integer division toward zero that never traps: x / 0 is 0, and the smallest value / -1 wraps around."""
    safe = select(eq(b, 0), const(1, b.dtype), b)
    if b.dtype.kind == "uint":
        return select(eq(b, 0), const(0, a.dtype), binary("truncdiv", a, safe))
    safe = select(eq(safe, -1), const(1, b.dtype), safe)
    return select(eq(b, 0), const(0, a.dtype), select(eq(b, -1), -a, binary("truncdiv", a, safe)))


def truncate_mod(a: Expr, b: Expr) -> Expr:
    """Integer remainder with the dividend's sign that never traps; x mod 0 is 0."""
    safe = select(eq(b, 0), const(1, b.dtype), b)
    if b.dtype.kind == "int":
        safe = select(eq(safe, -1), const(1, b.dtype), safe)
    return binary("truncmod", a, safe)


def to_bool(value: Expr) -> Expr:
    """value != 0; NaN is true."""
    return value if value.dtype.is_bool else ne(value, const(0, value.dtype))


def broadcast_indices(own: Sequence[Dim], indices: Sequence[Expr], shape: Sequence[Dim]) -> list[Expr]:
    """Indices into a tensor of dims `own` that is broadcast to `shape`, at a point of `shape`. Dims are
    aligned at the right.
    """
    offset = len(indices) - len(own)
    result: list[Expr] = []
    for index, dim, out in zip(indices[offset:], own, list(shape)[offset:], strict=True):
        size = const_value(dim)
        if as_expr(dim) is as_expr(out) or (size is not None and size != 1):
            result.append(index)
        elif size == 1:
            result.append(const(0))
        else:
            # A symbolic dim may be 1 at run time.
            result.append(select(eq(dim, 1), const(0), index))
    return result


def broadcast_element(tensor: te.Tensor, indices: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """The element of a tensor, broadcast to `shape`, at a point of `shape`."""
    return tensor[tuple(broadcast_indices(tensor.shape, indices, shape))]


def elementwise(name: str, body: Callable[..., Expr]) -> Lower:
    """Lowering of an elementwise op: `body(*elements, **attrs)` over the broadcast inputs."""

    def lower(type_: TensorType, attrs: dict[str, Any], *tensors: te.Tensor) -> te.Tensor:
        def value(*indices: Expr) -> Expr:
            operands = [widen(broadcast_element(t, indices, type_.shape)) for t in tensors]
            return narrow(body(*operands, **attrs), type_.dtype)

        return compute(type_.shape, value, name)

    return lower


def compute(shape: Sequence[Dim], body: Callable[..., Any], name: str) -> te.Tensor:
    """`te.compute` of one tensor."""
    made: te.Tensor = te.compute(shape, body, name)
    return made


def flattened(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The row-major position of an index in a shape."""
    position = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        position = position * extent + index
    return position


def unflattened(position: Expr, shape: Sequence[Expr]) -> list[Expr]:
    """The index with a row-major position; the inverse of `flattened`."""
    indices: list[Expr] = []
    for extent in reversed(shape[1:]):
        indices.append(position % extent)
        position = position // extent
    return [position, *reversed(indices)]


def rounded(tensor: te.Tensor, to: DType, name: str) -> te.Tensor:
    """Convert a tensor to a dtype; the tensor itself if it already has the dtype."""
    if tensor.dtype is to:
        return tensor
    return compute(tensor.shape, lambda *i: narrow(tensor[i], to), name)


def nest(shape: Sequence[Expr], body: Callable[[list[Expr]], Stmt], name: str = "i") -> Stmt:
    """Loops over a shape, the last dim innermost. Their variables are `name` with numbers."""
    indices = [Var(f"{name}{axis}", "int64") for axis in range(len(shape))]
    made = body(list(indices))
    for var, extent in reversed(list(zip(indices, shape, strict=True))):
        made = loop(var, extent, made)
    return made


def region(buffer: Buffer, indices: Sequence[Expr | None]) -> Region:
    """The region of a buffer at some indices. A dim whose index is None is covered in full."""
    return Region(
        buffer,
        tuple(
            Range(const(0), size) if index is None else Range(index, const(1))
            for index, size in zip(indices, buffer.shape, strict=True)
        ),
    )


def block_nest(
    name: str,
    shape: Sequence[Expr],
    body: Callable[[list[Expr]], Stmt],
    regions: Callable[[list[Expr]], tuple[Sequence[Region], Sequence[Region]]],
    over: Collection[int] = (),
) -> Stmt:
    """Loops over a shape around one block. `body` returns its statement at a point, and `regions` its reads
    and writes.

    Points that differ in one of the axes `over` may write the same elements, so they run in order.
    """
    axes = [Var(f"v_i{axis}", "int64") for axis in range(len(shape))]
    point: list[Expr] = list(axes)
    reads, writes = regions(point)
    own = tuple(
        IterVar(var, Range(const(0), extent), "reduce" if axis in over else "spatial")
        for axis, (var, extent) in enumerate(zip(axes, shape, strict=True))
    )
    return nest(shape, lambda i: Block(name, own, tuple(i), tuple(reads), tuple(writes), body(point)))


def padded(
    tensor: te.Tensor,
    before: Sequence[Dim],
    after: Sequence[Dim],
    value: int | float | bool,
    name: str = "pad",
) -> te.Tensor:
    """Pad the tensor with `value`. Negative sizes crop. Returns the same tensor if all sizes are zero."""
    if all(b == 0 for b in (*before, *after)):
        return tensor
    shape = [d + b + a for d, b, a in zip(tensor.shape, before, after, strict=True)]

    def body(*indices: Expr) -> Expr:
        source = [i - b if b != 0 else i for i, b in zip(indices, before, strict=True)]
        inside: list[ExprLike] = []
        for index, low, high, size in zip(source, before, after, tensor.shape, strict=True):
            if not isinstance(low, int) or low > 0:
                inside.append(index >= 0)
            if not isinstance(high, int) or high > 0:
                inside.append(index < size)
        return if_then_else(logical_and(*inside), tensor[tuple(source)], const(value, tensor.dtype))

    return compute(shape, body, name)


def result_types(type_: Any) -> tuple[TensorType, ...]:
    """Fields of a tuple type, or the one tensor type."""
    return (type_,) if isinstance(type_, TensorType) else type_.fields


def replaced(indices: Sequence[Expr], axis: int, value: Expr) -> tuple[Expr, ...]:
    """The indices with `value` at `axis`."""
    return (*indices[:axis], value, *indices[axis + 1 :])


def checked_index(index: Expr, size: Dim) -> Expr:
    """Check a data-dependent index, which counts from the end if negative, and convert it to a non-negative
    int64. The call fails if the index is out of range.
    """
    if index.dtype.name == "uint64":  # indices beyond int64 are out of range, not negative
        index = minimum(index, const((1 << 63) - 1, index.dtype))
    wide = report_index(cast_to("int64", index), as_expr(size))
    return wide if index.dtype.kind == "uint" else select(wide < 0, wide + size, wide)


def clamped_index(index: Expr, size: Dim) -> Expr:
    """An index clamped to the range of the dim, so that it is safe to access."""
    return maximum(minimum(checked_index(index, size), as_expr(size) - 1), 0)


def lower_tensors(value: Node, tensors: Sequence[te.Tensor]) -> tuple[te.Tensor, ...]:
    """The results of a node that has a lowering, computed from tensors."""
    lower = lowering_of(value)
    assert lower is not None
    result = lower(value.type, dict(without_plan(value.attrs)), *tensors)
    return result if isinstance(result, tuple) else (result,)


def with_plan(func: PrimFunc, nodes: Iterable[Node]) -> PrimFunc:
    """Attach the nodes' plan to their PrimFunc. If several nodes have plans, none is attached."""
    plans = [plan for plan in map(plan_of, nodes) if plan is not None]
    return func.with_attrs(**{PLAN: plans[0]}) if len(plans) == 1 else func


def lower_node(value: Node, name: str | None = None) -> PrimFunc:
    """Lower one node to a PrimFunc over its arguments: inputs, then results, then symbolic dims.

    Raises UnsupportedError if the node has no lowering.
    """
    decl = value.op
    if not isinstance(decl, OpDecl) or lowering_of(value) is None:
        raise UnsupportedError(f"the op {decl.name!r} has no lowering", spans=value.spans)
    inputs = [
        te.placeholder(a.shape, a.dtype, f"{decl.inputs[min(i, len(decl.inputs) - 1)].strip('*?')}{i}")
        for i, a in enumerate(value.args)
    ]
    outputs = lower_tensors(value, inputs)
    return with_plan(te.create_prim_func(inputs, outputs, name or decl.name, spans=value.spans), [value])
