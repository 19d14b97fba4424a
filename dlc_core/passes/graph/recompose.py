"""recompose: recognise normalisations that a model writes as single operations.

Law: results stay within tolerance. The composites have their own lowering, which reads its input once; the
single operations would read it three times.

    d = x - mean(x);  d / sqrt(mean(d * d) + eps) * scale + bias      =>      layer_norm(x, scale, bias)
    x / sqrt(mean(x * x) + eps) * scale                               =>      rms_norm(x, scale)
    exp(x - max(x)) / sum(exp(x - max(x)))                            =>      softmax(x)

It runs before `expand_composites`, so a target can still have one of these expanded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from dlc_core.graph.node import Function, Node, const_array, constant, param
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.rules_shape import reshaped
from dlc_core.passes.graph.simplify import apply_rules
from dlc_core.rewrite import Match, Rule, attr, const_var, match_any, match_op, var
from dlc_core.rewrite.pattern import OpPattern
from dlc_core.rewrite.rule import Example
from dlc_core.support.record import record

ADD, SUB, MUL, DIV, SQRT, RSQRT, EXP, POW = (
    OPS[name] for name in ("add", "sub", "mul", "div", "sqrt", "rsqrt", "exp", "pow")
)
MEAN, SUM, MAX = (OPS[f"reduce_{name}"] for name in ("mean", "sum", "max"))
LAYER_NORM, RMS_NORM, SOFTMAX = (OPS[name] for name in ("layer_norm", "rms_norm", "softmax"))

x = var("x")
_FLOATS = ("float32", "float64")


def _is_small_number(value: Node) -> bool:
    array = const_array(value)
    return array is not None and array.size == 1 and float(array.flat[0]) > 0


eps = const_var("eps", _is_small_number)
vector = const_var("vector")


def _mean(of: OpPattern, axes: str) -> OpPattern:
    return match_op(MEAN, of, axes=attr(axes), keepdims=True)


def _variance_plus_eps(squares: OpPattern) -> OpPattern:
    return match_op(ADD, _mean(squares, "axes"), eps, commutes=True)


def _squares(value: OpPattern | object) -> OpPattern:
    return match_op(MUL, value, value)  # type: ignore[arg-type]


CENTRED = match_op(SUB, x, match_op(MEAN, x, axes=attr("mean_axes"), keepdims=True))


def _first_axis(match: Match, name: str) -> int | None:
    """Return the first axis if the axes are the innermost ones of x; else None."""
    rank = len(match["x"].shape)
    axes = sorted(a % rank for a in match[name] or range(rank))
    return axes[0] if axes and axes == list(range(axes[0], rank)) else None


def _normal(layer: bool) -> Callable[[Match], Node | None]:
    def replace(match: Match) -> Node | None:
        axis = _first_axis(match, "axes")
        if axis is None or (layer and _first_axis(match, "mean_axes") != axis):
            return None
        value = float(const_array(match["eps"]).flat[0])  # type: ignore[union-attr]
        return (LAYER_NORM if layer else RMS_NORM).build(match["x"], axis=axis, eps=value)

    return replace


def _norm_parameter(match: Match) -> Node | None:
    """Return the constant without leading dims of 1, as a parameter of a norm; None if it has other axes."""
    norm, value = match["norm"], match["vector"]
    tail = len(norm.shape) - norm.attrs["axis"] % len(norm.shape)
    shape = tuple(value.shape)
    while len(shape) > tail and shape[0] == 1:
        shape = shape[1:]
    return reshaped(value, shape) if len(shape) <= tail else None


def _with_scale(match: Match) -> Node | None:
    norm = match["norm"]
    scale = _norm_parameter(match) if len(norm.args) == 1 and match.root.type == norm.type else None
    return None if scale is None else norm.op.build(norm.args[0], scale, **norm.attrs)


def _with_bias(match: Match) -> Node | None:
    norm = match["norm"]
    bias = _norm_parameter(match) if len(norm.args) < 3 and match.root.type == norm.type else None
    if bias is None:
        return None
    scale = norm.args[1] if len(norm.args) > 1 else constant(np.ones(()), norm.dtype)
    return LAYER_NORM.build(norm.args[0], scale, bias, **norm.attrs)


def _softmax(match: Match) -> Node | None:
    rank = len(match["x"].shape)
    axes = [[a % rank for a in match[name] or range(rank)] for name in ("max_axes", "sum_axes")]
    return SOFTMAX.build(match["x"], axis=axes[0][0]) if axes[0] == axes[1] and len(axes[0]) == 1 else None


def _param(dtype: str) -> Node:
    return param("x", tensor_type((4, 24), dtype))


def _written_out(kind: str) -> Example:
    def example(dtype: str) -> Node:
        value = _param(dtype)
        small = constant(1e-3, dtype)
        if kind == "softmax":
            powers = EXP.build(SUB.build(value, MAX.build(value, axes=(1,), keepdims=True)))
            return DIV.build(powers, SUM.build(powers, axes=(-1,), keepdims=True))
        if kind.startswith("layer"):
            value = SUB.build(value, MEAN.build(value, axes=(-1,), keepdims=True))
        spread = ADD.build(MEAN.build(MUL.build(value, value), axes=(-1,), keepdims=True), small)
        return (
            DIV.build(value, SQRT.build(spread))
            if kind.endswith("div")
            else MUL.build(value, RSQRT.build(spread))
        )

    return example


def _of_norm(op_name: str, outer: str) -> Example:
    def example(dtype: str) -> Node:
        row = constant(np.linspace(-1, 1, 24).reshape(1, 24), dtype)
        return OPS[outer].build(OPS[op_name].build(_param(dtype)), row)

    return example


_ANY_NORM = match_any((LAYER_NORM, RMS_NORM), capture="norm")
_LAYER = match_any(LAYER_NORM, capture="norm")

RULES: tuple[Rule, ...] = (
    Rule(
        "layer_norm_div",
        match_op(DIV, CENTRED, match_op(SQRT, _variance_plus_eps(_squares(CENTRED)))),
        _normal(True),
        approximate=True,
        applied_by="recompose",
        doc="(x - mean) / sqrt(variance + eps) is layer_norm",
        examples=(_written_out("layer_div"),),
        dtypes=_FLOATS,
    ),
    Rule(
        "layer_norm_mul",
        match_op(MUL, CENTRED, match_op(RSQRT, _variance_plus_eps(_squares(CENTRED))), commutes=True),
        _normal(True),
        approximate=True,
        applied_by="recompose",
        doc="(x - mean) * rsqrt(variance + eps) is layer_norm",
        examples=(_written_out("layer_mul"),),
        dtypes=_FLOATS,
    ),
    Rule(
        "rms_norm_div",
        match_op(DIV, x, match_op(SQRT, _variance_plus_eps(_squares(x)))),
        _normal(False),
        approximate=True,
        applied_by="recompose",
        doc="x / sqrt(mean of squares + eps) is rms_norm",
        examples=(_written_out("rms_div"),),
        dtypes=_FLOATS,
    ),
    Rule(
        "rms_norm_mul",
        match_op(MUL, x, match_op(RSQRT, _variance_plus_eps(_squares(x))), commutes=True),
        _normal(False),
        approximate=True,
        applied_by="recompose",
        doc="x * rsqrt(mean of squares + eps) is rms_norm",
        examples=(_written_out("rms_mul"),),
        dtypes=_FLOATS,
    ),
    Rule(
        "norm_scale",
        match_op(MUL, _ANY_NORM, vector, commutes=True),
        _with_scale,
        approximate=True,
        applied_by="recompose",
        doc="a factor after a norm is its scale",
        examples=(_of_norm("layer_norm", "mul"), _of_norm("rms_norm", "mul")),
        dtypes=_FLOATS,
    ),
    Rule(
        "norm_bias",
        match_op(ADD, _LAYER, vector, commutes=True),
        _with_bias,
        approximate=True,
        applied_by="recompose",
        doc="a term after a norm is its bias",
        examples=(_of_norm("layer_norm", "add"),),
        dtypes=_FLOATS,
    ),
    Rule(
        "softmax",
        match_op(
            DIV,
            match_op(
                EXP,
                match_op(SUB, x, match_op(MAX, x, axes=attr("max_axes"), keepdims=True)),
                capture="powers",
            ),
            match_op(SUM, var("powers"), axes=attr("sum_axes"), keepdims=True),
        ),
        _softmax,
        approximate=True,
        applied_by="recompose",
        doc="exp(x - max) over its sum is softmax",
        examples=(_written_out("softmax"),),
        dtypes=_FLOATS,
    ),
)


@record(frozen=True)
class Recompose(GraphPass):
    """Recognise layer_norm, rms_norm and softmax that a model writes as single operations."""

    name: ClassVar[str] = "recompose"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        return apply_rules(function, RULES, context)
