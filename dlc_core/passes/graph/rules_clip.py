"""Rules of clip and relu."""

from __future__ import annotations

from dlc_core.graph.node import Node, param
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.rewrite import Match, Rule, attr, match_op, var
from dlc_core.rewrite.rule import Example

CLIP, RELU = OPS["clip"], OPS["relu"]
FLOATS = ("float32", "float64", "float16", "bfloat16")
x = var("x")


def _merge_clips(match: Match) -> Node:
    """Merge two clips by clipping the inner bounds to the outer ones."""
    low, high, inner_low, inner_high = (match[n] for n in ("low", "high", "inner_low", "inner_high"))

    def clip(value: float | None) -> float | None:
        if value is None:
            return None
        value = value if low is None else max(value, low)
        return value if high is None else min(value, high)

    new_low = clip(inner_low) if inner_low is not None else low
    new_high = clip(inner_high) if inner_high is not None else high
    return CLIP.build(match["x"], min=new_low, max=new_high)


def _is_ordered(match: Match) -> bool:
    """Whether a float clip has both pairs of bounds in order. Only then do the two clips commute."""
    low, high, inner_low, inner_high = (match[n] for n in ("low", "high", "inner_low", "inner_high"))
    pairs = ((low, high), (inner_low, inner_high))
    return all(a is None or b is None or a <= b for a, b in pairs) and bool(match.root.dtype.is_float)


def _clip_examples() -> tuple[Example, ...]:
    bounds = ((0.0, 6.0, -1.0, 3.0), (None, 2.0, 0.5, None), (1.0, None, None, 4.0), (3.0, 4.0, 0.0, 1.0))

    def make(
        low: float | None, high: float | None, inner_low: float | None, inner_high: float | None
    ) -> Example:
        def example(dtype: str) -> Node:
            inner = CLIP.build(param("x", tensor_type((4, 24), dtype)), min=inner_low, max=inner_high)
            return CLIP.build(inner, min=low, max=high)

        return example

    return tuple(make(*b) for b in bounds)


def _relu_clip(outer_is_relu: bool) -> Example:
    def example(dtype: str) -> Node:
        value = param("x", tensor_type((4, 24), dtype))
        if outer_is_relu:
            return RELU.build(CLIP.build(value, min=-1.0, max=6.0))
        return CLIP.build(RELU.build(value), min=-2.0, max=6.0)

    return example


def _has_zero(match: Match) -> bool:
    """Whether a float clip has an upper bound, and 0 is between its bounds."""
    low, high = match["low"], match["high"]
    return (low is None or low <= 0) and high is not None and high >= 0 and bool(match.root.dtype.is_float)


def _rules() -> tuple[Rule, ...]:
    inner = match_op(CLIP, x, min=attr("inner_low"), max=attr("inner_high"))
    bounded = match_op(CLIP, x, min=attr("low"), max=attr("high"))
    return (
        Rule(
            "clip_clip",
            match_op(CLIP, inner, min=attr("low"), max=attr("high")),
            _merge_clips,
            _is_ordered,
            doc="clips nest into one, whose bounds are the inner ones clipped by the outer",
            examples=_clip_examples(),
            dtypes=FLOATS,
        ),
        Rule("clip_nothing", match_op(CLIP, x, min=None, max=None), x, doc="clip without bounds is x"),
        Rule(
            "clip_to_relu",
            match_op(CLIP, x, min=lambda v: v == 0, max=None),
            match_op(RELU, x),
            lambda m: bool(m.root.dtype.is_float),
            doc="max(x, 0) is relu",
            examples=(lambda t: CLIP.build(param("x", tensor_type((4, 24), t)), min=0.0),),
            dtypes=FLOATS,
        ),
        Rule(
            "relu_clip",
            match_op(RELU, bounded),
            lambda m: CLIP.build(m["x"], min=0.0, max=m["high"]),
            _has_zero,
            doc="relu raises the lower bound of a clip to 0",
            examples=(_relu_clip(True),),
            dtypes=FLOATS,
        ),
        Rule(
            "clip_relu",
            match_op(CLIP, match_op(RELU, x), min=attr("low"), max=attr("high")),
            lambda m: CLIP.build(m["x"], min=0.0, max=m["high"]),
            _has_zero,
            doc="a clip of relu has the lower bound 0",
            examples=(_relu_clip(False),),
            dtypes=FLOATS,
        ),
    )


RULES = _rules()

__all__ = ["FLOATS", "RULES"]
