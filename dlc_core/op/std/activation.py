"""Activation functions: elementwise, over floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node, constant
from dlc_core.ir.expr import Expr, const, maximum, minimum, select
from dlc_core.op.declare import FLOATS, NUMBERS, SIGNED, Attr, NDArray, OpDecl, Sample, Tensor, op
from dlc_core.op.infer import same_type
from dlc_core.op.lower import elementwise
from dlc_core.op.samples import unary_samples, wrong_dtype
from dlc_core.op.std.binary import ADD, MUL
from dlc_core.op.std.unary import ERF, TANH, sigmoid_reference
from dlc_core.tir.intrinsics import intrinsic


def _activation(
    name: str,
    doc: str,
    attrs: Sequence[Attr],
    reference: Callable[..., Any],
    body: Callable[..., Expr],
    *,
    dtypes: Sequence[str] = FLOATS,
    other: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> OpDecl:
    """Declare an activation. `other` are further sets of attributes for the samples."""
    samples = (*unary_samples(), *(Sample((Tensor((3, 8), "special"),), more) for more in other))
    return op(
        name,
        doc,
        ["x"],
        attrs,
        kind="elementwise",
        infer=same_type(dtypes),
        reference=reference,
        lower=elementwise(name, body),
        dtypes=dtypes,
        samples=samples,
        error_samples=[wrong_dtype("bool")],
        **fields,
    )


def _sigmoid(x: Expr) -> Expr:
    return intrinsic("sigmoid", x)


def _softplus(x: Expr) -> Expr:
    return maximum(x, const(0, x.dtype)) + intrinsic("log1p", intrinsic("exp", -intrinsic("abs", x)))


def _softplus_reference(x: NDArray) -> NDArray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _expm1(x: Expr) -> Expr:
    return intrinsic("expm1", x)


def _clamp(x: Expr, low: float, high: float) -> Expr:
    return minimum(maximum(x, const(low, x.dtype)), const(high, x.dtype))


RELU = _activation(
    "relu", "max(x, 0)", (),
    lambda x: np.maximum(x, 0), lambda x: maximum(x, const(0, x.dtype)), dtypes=(*FLOATS, *SIGNED),
)  # fmt: skip
LEAKY_RELU = _activation(
    "leaky_relu", "x, or alpha x where x < 0", [Attr("alpha", "float", 0.01)],
    lambda x, *, alpha: np.where(x < 0, x * x.dtype.type(alpha), x),
    lambda x, *, alpha: select(x < 0.0, x * alpha, x), other=[{"alpha": 0.3}],
)  # fmt: skip
THRESHOLDED_RELU = _activation(
    "thresholded_relu", "x where x > alpha, else 0", [Attr("alpha", "float", 1.0)],
    lambda x, *, alpha: np.where(x > alpha, x, x.dtype.type(0)),
    lambda x, *, alpha: select(x > alpha, x, 0.0), other=[{"alpha": 0.25}],
)  # fmt: skip
ELU = _activation(
    "elu", "x, or alpha (exp(x) - 1) where x <= 0 (arXiv:1511.07289)", [Attr("alpha", "float", 1.0)],
    lambda x, *, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
    lambda x, *, alpha: select(x > 0.0, x, _expm1(x) * alpha), other=[{"alpha": 0.5}],
)  # fmt: skip
SELU = _activation(
    "selu",
    "gamma x, or gamma alpha (exp(x) - 1) where x <= 0 (arXiv:1706.02515)",
    [Attr("alpha", "float", 1.67326319217681884765625), Attr("gamma", "float", 1.05070102214813232421875)],
    lambda x, *, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x)),
    lambda x, *, alpha, gamma: select(x > 0.0, x, _expm1(x) * alpha) * gamma,
    other=[{"alpha": 2.0, "gamma": 3.0}],
)
CELU = _activation(
    "celu", "x, or alpha (exp(x / alpha) - 1) where x <= 0 (arXiv:1704.07483)", [Attr("alpha", "float", 1.0)],
    lambda x, *, alpha: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
    lambda x, *, alpha: select(x > 0.0, x, _expm1(x / alpha) * alpha), other=[{"alpha": 2.0}],
)  # fmt: skip
SOFTPLUS = _activation("softplus", "log(1 + exp(x))", (), _softplus_reference, _softplus)
SOFTSIGN = _activation(
    "softsign", "x / (1 + |x|)", (), lambda x: x / (1 + np.abs(x)), lambda x: x / (intrinsic("abs", x) + 1.0)
)
HARD_SIGMOID = _activation(
    "hard_sigmoid",
    "alpha x + beta, clamped to [0, 1]",
    [Attr("alpha", "float", 0.2), Attr("beta", "float", 0.5)],
    lambda x, *, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    lambda x, *, alpha, beta: _clamp(x * alpha + beta, 0, 1),
    other=[{"alpha": 0.5, "beta": 0.6}],
)
HARD_SWISH = _activation(
    "hard_swish", "x clamp(x / 6 + 1/2, 0, 1) (arXiv:1905.02244)", (),
    lambda x: x * np.clip(x / 6 + 0.5, 0, 1), lambda x: x * _clamp(x * (1 / 6) + 0.5, 0, 1),
)  # fmt: skip
SILU = _activation("silu", "x sigmoid(x)", (), lambda x: x * sigmoid_reference(x), lambda x: x * _sigmoid(x))
MISH = _activation(
    "mish", "x tanh(softplus(x)) (arXiv:1908.08681)", (),
    lambda x: x * np.tanh(_softplus_reference(x)), lambda x: x * intrinsic("tanh", _softplus(x)),
)  # fmt: skip

_ROOT_HALF = math.sqrt(0.5)
_ROOT_2_PI = math.sqrt(2 / math.pi)


def _gelu_reference(x: NDArray, *, approximate: str) -> NDArray:
    wide = x.astype(np.float64)
    if approximate == "tanh":
        inner = np.tanh(_ROOT_2_PI * (wide + 0.044715 * wide**3))
    else:
        inner = np.vectorize(math.erf, otypes=[np.float64])(wide * _ROOT_HALF)
    return np.asarray(0.5 * wide * (1 + inner), x.dtype)


def _gelu_inner(x: Any, approximate: str) -> Any:
    """The argument of erf or tanh, for any type with arithmetic."""
    return x * _ROOT_HALF if approximate == "none" else (x * x * x * 0.044715 + x) * _ROOT_2_PI


def _gelu(x: Expr, *, approximate: str) -> Expr:
    name = "erf" if approximate == "none" else "tanh"
    return x * 0.5 * (intrinsic(name, _gelu_inner(x, approximate)) + 1.0)


def _gelu_compose(x: Node, *, approximate: str) -> Node:
    def number(value: float) -> Node:
        return constant(value, x.dtype)

    if approximate == "none":
        inner = ERF.build(MUL.build(x, number(_ROOT_HALF)))
    else:
        cube = MUL.build(MUL.build(MUL.build(x, x), x), number(0.044715))
        inner = TANH.build(MUL.build(ADD.build(cube, x), number(_ROOT_2_PI)))
    return MUL.build(MUL.build(x, number(0.5)), ADD.build(inner, number(1.0)))


GELU = _activation(
    "gelu", "x times the normal distribution function of x (arXiv:1606.08415), exactly or by a tanh",
    [Attr("approximate", "str", "none", choices=("none", "tanh"))], _gelu_reference, _gelu,
    other=[{"approximate": "tanh"}], compose=_gelu_compose,
)  # fmt: skip


def _bounds(x_dtype: Any, bounds: Mapping[str, float | None]) -> tuple[float | None, float | None]:
    """The bounds in a dtype. For integers, the tightest integers in its range."""
    low, high = bounds["min"], bounds["max"]
    if x_dtype.kind not in "iu":
        return low, high
    info = np.iinfo(x_dtype)
    return (
        None if low is None or low <= info.min else math.ceil(min(low, info.max)),
        None if high is None or high >= info.max else math.floor(max(high, info.min)),
    )


def _clip_reference(x: NDArray, **bounds: float | None) -> NDArray:
    low, high = _bounds(x.dtype, bounds)
    result = x if low is None else np.maximum(x, x.dtype.type(low))
    return result if high is None else np.minimum(result, x.dtype.type(high))


def _clip(x: Expr, **bounds: float | None) -> Expr:
    low, high = _bounds(x.dtype.numpy, bounds)
    result = x if low is None else maximum(x, const(low, x.dtype))
    return result if high is None else minimum(result, const(high, x.dtype))


CLIP = _activation(
    "clip", "x limited to [min, max] (max wins where min > max); NaN stays NaN.  None: no limit",
    [Attr("min", "float", None), Attr("max", "float", None)], _clip_reference, _clip, dtypes=NUMBERS,
    other=[{"min": -0.5, "max": 1.0}, {"min": 0.0}, {"max": 6.0}, {"min": 2.0, "max": 1.0}],
)  # fmt: skip

OPS = (
    RELU, LEAKY_RELU, THRESHOLDED_RELU, ELU, SELU, CELU, SOFTPLUS, SOFTSIGN, HARD_SIGMOID, HARD_SWISH, SILU,
    MISH, GELU, CLIP,
)  # fmt: skip
