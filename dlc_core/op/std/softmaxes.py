"""softmax and log_softmax along one axis: composites with their own reference and lowering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, const
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, OpDecl, Sample, Tensor, op
from dlc_core.op.infer import Attrs, axis_of, of_input
from dlc_core.op.lower import compute, narrow, replaced, widen
from dlc_core.op.samples import wrong_dtype
from dlc_core.op.std.binary import DIV, SUB
from dlc_core.op.std.reduce import REDUCE_MAX, REDUCE_SUM, reduce_stage
from dlc_core.op.std.unary import EXP, LOG
from dlc_core.tir.intrinsics import intrinsic


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    axis_of(attrs["axis"], x.ndim)
    return x


def _softmax_reference(x: NDArray, *, axis: int) -> NDArray:
    shifted = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
    return np.asarray(shifted / np.sum(shifted, axis, keepdims=True))


def _log_softmax_reference(x: NDArray, *, axis: int) -> NDArray:
    shifted = x - np.max(x, axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True)))


def _softmax_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)
    top = reduce_stage(x, (axis,), True, te.max, "softmax_max")
    powers = compute(
        x.shape, lambda *i: intrinsic("exp", widen(x[i]) - top[replaced(i, axis, const(0))]), "softmax_exp"
    )
    total = reduce_stage(powers, (axis,), True, te.sum, "softmax_sum")
    # Elements are multiplied, because a division takes as long as ten products.
    factor = compute(total.shape, lambda *i: 1.0 / total[i], "softmax_factor")
    return compute(
        type_.shape,
        lambda *i: narrow(powers[i] * factor[replaced(i, axis, const(0))], type_.dtype),
        "softmax",
    )


def _log_softmax_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)
    top = reduce_stage(x, (axis,), True, te.max, "log_softmax_max")

    def shifted(i: tuple[Expr, ...]) -> Expr:
        return widen(x[i]) - top[replaced(i, axis, const(0))]

    powers = compute(x.shape, lambda *i: intrinsic("exp", shifted(i)), "log_softmax_exp")
    total = reduce_stage(powers, (axis,), True, te.sum, "log_softmax_sum")
    return compute(
        type_.shape,
        lambda *i: narrow(shifted(i) - intrinsic("log", total[replaced(i, axis, const(0))]), type_.dtype),
        "log_softmax",
    )


def _shifted(x: Node, axis: int) -> Node:
    return SUB.build(x, REDUCE_MAX.build(x, axes=(axis,), keepdims=True))


def _softmax(x: Node, *, axis: int) -> Node:
    powers = EXP.build(_shifted(x, axis))
    return DIV.build(powers, REDUCE_SUM.build(powers, axes=(axis,), keepdims=True))


def _log_softmax(x: Node, *, axis: int) -> Node:
    shifted = _shifted(x, axis)
    return SUB.build(shifted, LOG.build(REDUCE_SUM.build(EXP.build(shifted), axes=(axis,), keepdims=True)))


def _declare(
    name: str, doc: str, reference: Callable[..., Any], lower: Callable[..., Any], body: Callable[..., Node]
) -> OpDecl:
    return op(
        name, doc, ["x"], [Attr("axis", "int", -1)], kind="reduction", infer=of_input(_infer, FLOATS),
        reference=reference, lower=lower, compose=body,
        samples=(
            Sample((Tensor((3, 7)),)),
            Sample((Tensor((2, 5, 3), "uniform:-30:30"),), {"axis": 1}),
            Sample((Tensor((4, 6)),), {"axis": 0}),
            Sample((Tensor((5,)),)),
            Sample((Tensor((3, 12), "special"),), note="rows with inf and NaN are NaN"),
        ),
        error_samples=[ErrorSample((Tensor((2,)),), {"axis": 1}, "out of range"), wrong_dtype("int32")],
    )  # fmt: skip


SOFTMAX = _declare(
    "softmax",
    "exp(x) over its sum along an axis, without overflow",
    _softmax_reference,
    _softmax_lower,
    _softmax,
)
LOG_SOFTMAX = _declare(
    "log_softmax", "logarithm of softmax", _log_softmax_reference, _log_softmax_lower, _log_softmax
)

OPS = (SOFTMAX, LOG_SOFTMAX)
