"""Operators that reduce axes, sort elements or scan along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from dlc_frontend_onnx.testing.random_models.builder import FLOATS, Builder, Refused, Value, evaluate
from dlc_frontend_onnx.testing.random_models.templates import template


@template(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp"
    " ReduceSumSquare",
    0.7,
)
def reduce(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    value = b.need(dtype, (0, 4), when=lambda v: v.array.size > 0)
    # The standard does not define how means of integers are rounded.
    if dtype not in FLOATS and op in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        raise Refused(op)
    attrs: dict[str, Any] = {"keepdims": int(b.chance(0.5))} if b.chance(0.8) else {}
    axes = b.axes(value.rank) if value.rank and b.chance(0.8) else None
    exact = op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1")
    if b.has_attribute(op, "axes"):
        if axes is not None:
            attrs["axes"] = axes
        b.emit(op, [value], exact=exact, **attrs)
        return
    if axes is None and b.chance(0.4):
        attrs["noop_with_empty_axes"] = int(b.chance(0.5))
    b.emit(op, [value, None if axes is None else b.constant(axes)], exact=exact, **attrs)


@template("ArgMax ArgMin", 0.7)
def arg(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4), exact=True, when=lambda v: v.array.size > 0)
    attrs: dict[str, Any] = {"axis": b.axis(value.rank)} if b.chance(0.8) else {}
    if b.chance(0.5):
        attrs["keepdims"] = int(b.chance(0.5))
    if b.has_attribute(op, "select_last_index") and b.chance(0.4):
        attrs["select_last_index"] = 1
    b.emit(op, [value], exact=True, **attrs)


@template("TopK", 0.7)
def topk(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), exact=True, when=lambda v: v.array.size > 0)
    axis = b.axis(value.rank)
    count = b.rng.randint(1, value.shape[axis])
    if b.has_attribute(op, "k"):
        b.emit(op, [value], 2, exact=True, axis=axis, k=count)
        return
    attrs: dict[str, Any] = {"largest": int(b.chance(0.5))} if b.opset >= 11 and b.chance(0.5) else {}
    b.emit(op, [value, b.constant([count])], 2, exact=True, axis=axis, **attrs)


@template("CumSum", 0.7)
def cumsum(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3))
    attrs: dict[str, Any] = {name: 1 for name in ("exclusive", "reverse") if b.chance(0.4)}
    b.emit(op, [value, b.constant(b.axis(value.rank), b.rng.choice(("int64", "int32")))], exact=True, **attrs)


@template("Softmax LogSoftmax")
def softmax(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4), when=lambda v: v.array.size > 0)
    # The default axis has changed; the old default does not exist for a vector.
    given = b.chance(0.8) or (b.opset < 13 and value.rank == 1)
    _along(b, op, value, b.axis(value.rank) if given else None, exact=False)


@template("Hardmax", 0.3)
def hardmax(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), exact=True, when=lambda v: v.array.size > 0)
    _along(b, op, value, b.axis(value.rank), exact=True)


def _along(b: Builder, op: str, value: Value, axis: int | None, *, exact: bool) -> None:
    """A softmax or similar operator.

    Before version 13 the axes from the given one on are flattened, which the evaluator does not implement.
    """
    attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
    if b.opset >= 13:
        b.emit(op, [value], exact=exact, **attrs)
        return
    first = 1 if axis is None else axis % value.rank
    flat = value.array.reshape(int(np.prod(value.shape[:first])), -1)
    (found,) = evaluate(helper.make_node(op, ["x"], ["y"], axis=1), {"x": flat}, 13)
    b.emit(op, [value], exact=exact, wanted=[np.asarray(found).reshape(value.shape)], **attrs)


@template("LpNormalization", 0.3)
def lp_normalization(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), when=lambda v: v.array.size > 0)
    b.emit(op, [value], axis=b.axis(value.rank), p=b.rng.choice((1, 2)))


@template("LayerNormalization RMSNormalization", 0.8)
def layer_normalization(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (2, 4), when=lambda v: v.array.size > 0)
    axis = b.rng.randrange(-value.rank, value.rank)
    scale = b.given(b.fill(value.shape[axis:], value.dtype))
    attrs: dict[str, Any] = {"epsilon": 1e-3} if b.chance(0.5) else {}
    inputs = [value, scale]
    if op == "LayerNormalization" and b.chance(0.6):
        inputs.append(b.given(b.fill(value.shape[axis:], value.dtype)))
    b.emit(op, inputs, axis=axis, **attrs)


@template("MeanVarianceNormalization", 0.3)
def mean_variance(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), 4, when=lambda v: v.array.size > 8)
    attrs: dict[str, Any] = {"axes": b.axes(4)} if b.chance(0.5) else {}
    b.emit(op, [value], **attrs)
