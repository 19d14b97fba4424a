"""Ops that only rearrange elements: reshape, transpose, broadcast and their composites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Node
from dlc_core.ir.conditions import EQUAL
from dlc_core.ir.expr import Expr, as_expr, const, const_value
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op.assume import assume
from dlc_core.op.declare import ALL, MOVED, Attr, ErrorSample, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import (
    Attrs,
    axes_of,
    axis_of,
    broadcast_into,
    check_rank,
    dims_text,
    factors,
    fail,
    of_input,
    product,
    quotient,
    same_size,
)
from dlc_core.op.lower import compute, elementwise
from dlc_core.op.std.slicing import CONCAT


def _reshape_infer(x: TensorType, attrs: Attrs) -> TensorType:
    shape: tuple[Dim, ...] = attrs["shape"]
    unknown = [i for i, d in enumerate(shape) if isinstance(d, int) and d == -1]
    if len(unknown) > 1 or any(isinstance(d, int) and d < -1 for d in shape):
        raise fail(f"cannot reshape to {dims_text(shape)}", "dims are at least 0; at most one may be -1")
    if unknown:
        rest = [d for i, d in enumerate(shape) if i != unknown[0]]
        missing = quotient(x.shape, rest)
        if missing is None:
            raise fail(
                f"{dims_text(x.shape)} does not fit {dims_text(shape)}", "no size for the dim -1 is right"
            )
        shape = (*shape[: unknown[0]], missing, *shape[unknown[0] + 1 :])
    elif same_size(x.shape, shape) is False:
        raise fail(f"{dims_text(x.shape)} does not fit {dims_text(shape)}: the numbers of elements differ")
    assume(EQUAL, product(x.shape), product(shape), f"{x} is reshaped to {dims_text(shape)}")
    return TensorType(shape, x.dtype)


def reshaped_index(indices: Sequence[Expr], shape: Sequence[Dim], into: Sequence[Dim]) -> tuple[Expr, ...]:
    """The index of an element in a tensor of shape `into`, from its `indices` in the reshape to `shape`.

    Runs of dims with equal products are mapped separately, which keeps the expressions small.
    """
    result: list[Expr] = []
    start_in = start_out = 0
    for end_in, end_out in _cuts(into, shape):
        linear: Expr = const(0)
        for index, size in zip(indices[start_out:end_out], shape[start_out:end_out], strict=True):
            if const_value(size) != 1:
                linear = linear * size + index
        result += _unflatten(linear, into[start_in:end_in])
        start_in, start_out = end_in, end_out
    return tuple(result)


def _cuts(a: Sequence[Dim], b: Sequence[Dim]) -> list[tuple[int, int]]:
    """Lengths of prefixes of `a` and `b` with equally many elements. The last pair is (len(a), len(b))."""

    def keys(shape: Sequence[Dim]) -> list[Any]:
        made = []
        for length in range(len(shape) + 1):
            number, symbols = factors(shape[:length])
            made.append((number, tuple(sorted(map(id, symbols)))))
        return made

    last_in_a = {key: length for length, key in enumerate(keys(a))}
    last_in_b = {key: length for length, key in enumerate(keys(b))}
    cuts = [(last_in_a[key], length) for key, length in last_in_b.items() if key in last_in_a]
    ordered = [cuts[0]] if cuts else []
    for cut in cuts[1:]:
        if cut[0] >= ordered[-1][0] and cut[1] >= ordered[-1][1]:
            ordered.append(cut)
    full = (len(a), len(b))
    return ordered if ordered and ordered[-1] == full else [c for c in ordered if c != full] + [full]


def _unflatten(linear: Expr, shape: Sequence[Dim]) -> list[Expr]:
    result: list[Expr] = []
    nontrivial = [i for i, size in enumerate(shape) if const_value(size) != 1]
    stride: Dim = 1
    for position in reversed(range(len(shape))):
        if position not in nontrivial:
            result.append(const(0))
            continue
        index = as_expr(linear) // stride
        result.append(index if position == nontrivial[0] else index % shape[position])
        stride = product([stride, shape[position]])
    return result[::-1]


def _reshape_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    return compute(type_.shape, lambda *i: x[reshaped_index(i, type_.shape, x.shape)], "reshape")


RESHAPE = op(
    "reshape", "the elements in row-major order in another shape; one dim may be -1, which is inferred",
    ["x"], [Attr("shape", "dims")], kind="injective", infer=of_input(_reshape_infer, MOVED), reference=lambda
    x, *, shape: np.reshape(x, shape), lower=_reshape_lower, dtypes=ALL, samples=(
        Sample((Tensor((2, 3, 4)),), {"shape": (6, 4)}),
        Sample((Tensor((2, 12)),), {"shape": (2, -1, 3)}),
        Sample((Tensor((4, 6)),), {"shape": (3, 8)}),
        Sample((Tensor((4, 6)),), {"shape": (3, 8)}, ("float8_e4m3fn", "float8_e8m0fnu", "uint4")),
        Sample((Tensor((1, 4)),), {"shape": (4, 1, 1)}),
        Sample((Tensor((1,)),), {"shape": ()}),
        Sample((Tensor((0, 3)),), {"shape": (3, 0)}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {"shape": (4, 2)}, "numbers of elements"),
        ErrorSample((Tensor((2, 3)),), {"shape": (4, -1)}, "does not fit"),
        ErrorSample((Tensor((2, 3)),), {"shape": (-1, -1)}, "at most one"),
    ],
)  # fmt: skip


def _transpose_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axes = _permutation(attrs["axes"], x.ndim)
    if len(axes) != x.ndim:
        raise fail(f"axes {attrs['axes']} are {len(axes)}, the input has rank {x.ndim}")
    return TensorType(tuple(x.shape[a] for a in axes), x.dtype)


def _permutation(axes: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    return tuple(reversed(range(rank))) if axes is None else axes_of(axes, rank)


def _transpose_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = _permutation(attrs["axes"], x.ndim)
    return compute(type_.shape, lambda *i: x[tuple(i[axes.index(a)] for a in range(x.ndim))], "transpose")


TRANSPOSE = op(
    "transpose",
    "axes in another order: axis k of the result is axis axes[k] of x; None reverses them",
    ["x"],
    [Attr("axes", "ints", None)],
    kind="injective",
    infer=of_input(_transpose_infer, MOVED),
    reference=lambda x, *, axes: np.transpose(x, axes),
    lower=_transpose_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3, 4)),), {"axes": (0, 2, 1)}),
        Sample((Tensor((2, 3, 4)),), {"axes": (2, 0, 1)}),
        Sample((Tensor((2, 3)),)),
        Sample((Tensor(()),)),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {"axes": (0,)}, "rank 2"),
        ErrorSample((Tensor((2, 3)),), {"axes": (0, 0)}, "twice"),
        ErrorSample((Tensor((2, 3)),), {"axes": (0, 2)}, "out of range"),
    ],
)


def _broadcast_infer(x: TensorType, attrs: Attrs) -> TensorType:
    shape: tuple[Dim, ...] = attrs["shape"]
    broadcast_into(x.shape, shape, "")
    return TensorType(shape, x.dtype)


BROADCAST_TO = op(
    "broadcast_to",
    "x repeated to a shape: its dims, aligned to the right, are 1 or those of the shape",
    ["x"],
    [Attr("shape", "dims")],
    kind="broadcast",
    infer=of_input(_broadcast_infer, MOVED),
    reference=lambda x, *, shape: np.broadcast_to(x, shape),
    lower=elementwise("broadcast_to", lambda x, *, shape: x),
    dtypes=ALL,
    samples=(
        Sample((Tensor((3, 1)),), {"shape": (2, 3, 4)}),
        Sample((Tensor(()),), {"shape": (2, 2)}),
        Sample((Tensor((2, 3)),), {"shape": (2, 3)}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {"shape": (2, 4)}, "does not broadcast"),
        ErrorSample((Tensor((2, 3)),), {"shape": (3,)}, "does not broadcast"),
    ],
)


def _squeeze_axes(shape: Sequence[Dim], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(i for i, d in enumerate(shape) if const_value(d) == 1)
    return axes_of(axes, len(shape))


def _squeeze_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axes = _squeeze_axes(x.shape, attrs["axes"])
    for axis in axes:
        if const_value(x.shape[axis]) not in (1, None):
            raise fail(f"dim {axis} is {x.shape[axis]}, only dims of 1 can be dropped")
        assume(EQUAL, x.shape[axis], 1, "only dims of 1 can be dropped")
    return TensorType(tuple(d for i, d in enumerate(x.shape) if i not in axes), x.dtype)


def _squeeze_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = _squeeze_axes(x.shape, attrs["axes"])

    def body(*indices: Expr) -> Expr:
        kept = iter(indices)
        return x[tuple(const(0) if axis in axes else next(kept) for axis in range(x.ndim))]

    return compute(type_.shape, body, "squeeze")


SQUEEZE = op(
    "squeeze", "x without the dims of 1 at `axes` (None: all dims that are known to be 1)", ["x"],
    [Attr("axes", "ints", None)], kind="injective", infer=of_input(_squeeze_infer, MOVED),
    reference=lambda x, *, axes: np.squeeze(x, axes), lower=_squeeze_lower, dtypes=ALL,
    samples=(
        Sample((Tensor((1, 3, 1, 2)),), {"axes": (0,)}),
        Sample((Tensor((1, 3, 1, 2)),), {"axes": (-2, 0)}),
        Sample((Tensor((1, 3, 1, 2)),)),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 1)),), {"axes": (0,)}, "dims of 1"),
        ErrorSample((Tensor((2, 1)),), {"axes": (2,)}, "out of range"),
    ],
)  # fmt: skip


def _unsqueeze_infer(x: TensorType, attrs: Attrs) -> TensorType:
    rank = x.ndim + len(attrs["axes"])
    axes = axes_of(attrs["axes"], rank)
    kept = iter(x.shape)
    return TensorType(tuple(1 if i in axes else next(kept) for i in range(rank)), x.dtype)


def _unsqueeze_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = axes_of(attrs["axes"], type_.ndim)
    return compute(type_.shape, lambda *i: x[tuple(v for k, v in enumerate(i) if k not in axes)], "unsqueeze")


UNSQUEEZE = op(
    "unsqueeze",
    "x with new dims of 1 at `axes` of the result",
    ["x"],
    [Attr("axes", "ints")],
    kind="injective",
    infer=of_input(_unsqueeze_infer, MOVED),
    reference=lambda x, *, axes: np.expand_dims(x, axes),
    lower=_unsqueeze_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((3, 2)),), {"axes": (0,)}),
        Sample((Tensor((3, 2)),), {"axes": (1, -1)}),
        Sample((Tensor(()),), {"axes": (0,)}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 1)),), {"axes": (3,)}, "out of range"),
        ErrorSample((Tensor((2, 1)),), {"axes": (0, 0)}, "twice"),
    ],
)


def _flatten(x: Node, *, axis: int) -> Node:
    rank = len(x.shape)
    split = axis if axis == rank else axis_of(axis, rank)
    return RESHAPE.build(x, shape=(product(x.shape[:split]), product(x.shape[split:])))


FLATTEN = op(
    "flatten",
    "x as a matrix: the dims before `axis` are one dim, the others the second",
    ["x"],
    [Attr("axis", "int", 1)],
    kind="injective",
    compose=_flatten,
    dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3, 4)),)),
        Sample((Tensor((2, 3, 4)),), {"axis": 0}),
        Sample((Tensor((2, 3, 4)),), {"axis": 3}),
        Sample((Tensor((2, 3, 4)),), {"axis": -1}),
    ),
    error_samples=[ErrorSample((Tensor((2, 3)),), {"axis": 3}, "out of range")],
)


def _stack(*xs: Node, axis: int) -> Node:
    if not xs:
        raise fail("nothing to stack")
    new_axis = axis_of(axis, len(xs[0].shape) + 1)
    return CONCAT.build(*(UNSQUEEZE.build(x, axes=(new_axis,)) for x in xs), axis=new_axis)


STACK = op(
    "stack", "tensors of one shape along a new axis", ["*xs"], [Attr("axis", "int", 0)], kind="injective",
    compose=_stack, dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3)), Tensor((2, 3)), Tensor((2, 3))), {"axis": 1}),
        Sample((Tensor(()), Tensor(()))),
        Sample((Tensor((2,)),), {"axis": -1}),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)), Tensor((3,))), {}, "must be equal"),
        ErrorSample((), {}, "nothing to stack"),
    ],
)  # fmt: skip


def _image(x: Node, block: int) -> tuple[Dim, Dim, Dim, Dim]:
    (x_type,) = tensor_types([x.type])
    check_rank(x_type, 4, 4)
    if block < 1:
        raise fail(f"the block size is {block}, it must be at least 1")
    n, c, h, w = x_type.shape
    return n, c, h, w


def _depth_to_space(x: Node, *, block: int, mode: str) -> Node:
    n, c, h, w = _image(x, block)
    depth = quotient([c], [block * block])
    if depth is None:
        raise fail(f"{c} channels are no multiple of {block} * {block}")
    if mode == "DCR":
        split = RESHAPE.build(x, shape=(n, block, block, depth, h, w))
        moved = TRANSPOSE.build(split, axes=(0, 3, 4, 1, 5, 2))
    else:
        split = RESHAPE.build(x, shape=(n, depth, block, block, h, w))
        moved = TRANSPOSE.build(split, axes=(0, 1, 4, 2, 5, 3))
    return RESHAPE.build(moved, shape=(n, depth, product([h, block]), product([w, block])))


DEPTH_TO_SPACE = op(
    "depth_to_space",
    "channels as blocks of pixels, of [n, c, h, w]; the position in a block is the outer part of the channel"
    " in mode DCR, the inner part in CRD",
    ["x"],
    [Attr("block", "int"), Attr("mode", "str", "DCR", choices=("DCR", "CRD"))],
    kind="injective",
    compose=_depth_to_space,
    dtypes=ALL,
    samples=(
        Sample((Tensor((1, 8, 2, 3), "special"),), {"block": 2}),
        Sample((Tensor((2, 9, 1, 2)),), {"block": 3, "mode": "CRD"}),
    ),
    error_samples=[
        ErrorSample((Tensor((1, 6, 2, 2)),), {"block": 2}, "no multiple"),
        ErrorSample((Tensor((6, 2, 2)),), {"block": 2}, "rank 4"),
    ],
)


def _space_to_depth(x: Node, *, block: int) -> Node:
    n, c, h, w = _image(x, block)
    rows, columns = quotient([h], [block]), quotient([w], [block])
    if rows is None or columns is None:
        raise fail(f"the image {h} x {w} is no multiple of {block}")
    split = RESHAPE.build(x, shape=(n, c, rows, block, columns, block))
    moved = TRANSPOSE.build(split, axes=(0, 3, 5, 1, 2, 4))
    return RESHAPE.build(moved, shape=(n, product([c, block * block]), rows, columns))


SPACE_TO_DEPTH = op(
    "space_to_depth",
    "blocks of pixels as channels, of [n, c, h, w]",
    ["x"],
    [Attr("block", "int")],
    kind="injective",
    compose=_space_to_depth,
    dtypes=ALL,
    samples=(
        Sample((Tensor((1, 2, 4, 6)),), {"block": 2}),
        Sample((Tensor((1, 2, 3, 6)),), {"block": 3}),
    ),
    error_samples=[ErrorSample((Tensor((1, 2, 3, 4)),), {"block": 2}, "no multiple")],
)

OPS = (
    RESHAPE, TRANSPOSE, BROADCAST_TO, SQUEEZE, UNSQUEEZE, FLATTEN, STACK, DEPTH_TO_SPACE, SPACE_TO_DEPTH,
)  # fmt: skip
