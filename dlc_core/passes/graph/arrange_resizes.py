"""arrange_resizes: interpolate along one axis after the other, and transpose before values grow.

Law: results stay within tolerance; the sums of an interpolation are the same.

    resize(x, axes=(2, 3))      =>      resize(resize(x, axes=(3,)), axes=(2,))
    transpose(resize(x))        =>      resize(transpose(x))                        if x is smaller

A linear interpolation along two axes reads four elements for each result, and along the innermost axis their
addresses differ from result to result.  Separated, this axis is interpolated for the rows of the input only,
and the other axis combines whole rows.  `fuse` keeps the two in different kernels.

The pass runs after `partition`, so that another target still gets the whole operation, and after
`convert_layout`, which adds transposes.
"""

from __future__ import annotations

import math
from typing import ClassVar, cast

from dlc_core.graph.node import Function, Node, param
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.resizing import TAPS, moved_axes
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.rules_shape import permutation, transposed
from dlc_core.passes.graph.simplify import apply_rules
from dlc_core.rewrite import Match, Rule, match_op, var
from dlc_core.rewrite.rule import Example
from dlc_core.support.record import record

RESIZE, TRANSPOSE = OPS["resize"], OPS["transpose"]
x = var("x")
_DTYPES = ("float32", "float64")
MAX_TAPS = 64
"""Elements that one result may read, cubic along three axes. Lowering writes out every read, so more of them
would make long programs.
"""


def _grows(match: Match) -> bool:
    """Whether the result has at least twice the elements of the input."""
    source = cast("Node", match["x"])
    before, after = source.tensor_type.static_shape(), match.root.tensor_type.static_shape()
    if before is None or after is None:
        return False
    return math.prod(after) >= 2 * math.prod(before)


def _transposed_before(match: Match) -> Node:
    axes, attrs = permutation(match.root), match["resize"].attrs
    moved = tuple(axes.index(axis % len(axes)) for axis in attrs["axes"])
    return RESIZE.build(transposed(match["x"], axes), **{**attrs, "axes": moved})


def _is_cheaper(match: Match) -> bool:
    """Whether one axis after the other reads fewer elements. With symbolic sizes, only a result of more than
    `MAX_TAPS` elements is separated.

    Values in between are rounded to the dtype of the result, which is exact enough from 32 bits on.
    """
    node, source = match.root, cast("Node", match["x"])
    if node.dtype.name not in _DTYPES:
        return False
    taps, moved = TAPS[node.attrs["mode"]], moved_axes(node.tensor_type, node.attrs, source.shape)
    if len(moved) < 2 or taps == 1:
        return False
    if taps ** len(moved) > MAX_TAPS:
        return True
    shape = list(source.tensor_type.static_shape() or ())
    result = node.tensor_type.static_shape()
    if not shape or result is None:
        return False
    reads = 0
    for axis in sorted(moved, reverse=True):
        shape[axis] = result[axis]
        reads += taps * math.prod(shape)
    return reads <= math.prod((*(taps for _ in moved), *result))


def _separated(match: Match) -> Node:
    attrs, value = match.root.attrs, cast("Node", match["x"])
    rank = len(value.shape)
    scales = attrs["scales"] or (None,) * len(attrs["axes"])
    found = {
        axis % rank: (size, scale)
        for axis, size, scale in zip(attrs["axes"], attrs["sizes"], scales, strict=True)
    }
    for axis in sorted(moved_axes(match.root.tensor_type, attrs, value.shape), reverse=True):
        size, scale = found[axis]
        one = {"axes": (axis,), "sizes": (size,), "scales": None if scale is None else (scale,)}
        value = RESIZE.build(value, **{**attrs, **one})
    return value


def _example(
    shape: tuple[int, ...], axes: tuple[int, ...], sizes: tuple[int, ...], **attrs: object
) -> Example:
    return lambda dtype: RESIZE.build(param("x", tensor_type(shape, dtype)), axes=axes, sizes=sizes, **attrs)


def _transposed(shape: tuple[int, ...], axes: tuple[int, ...], **attrs: object) -> Example:
    resized = _example(shape, (1, -1), (9, 8), **attrs)
    return lambda dtype: TRANSPOSE.build(resized(dtype), axes=axes)


RULES = (
    Rule(
        "transpose_before_resize",
        match_op(TRANSPOSE, match_op(RESIZE, x, capture="resize")),
        _transposed_before,
        _grows,
        applied_by="arrange_resizes",
        doc="a transpose of a value before it grows moves fewer elements",
        examples=(
            _transposed((2, 3, 4), (0, 2, 1)),
            _transposed((2, 3, 4), (2, 0, 1), mode="linear"),
            _transposed((1, 3, 2, 4), (0, 2, 3, 1), mode="cubic", scales=(3.0, 2.0)),
        ),
        dtypes=_DTYPES,
    ),
    Rule(
        "separate_axes",
        match_op(RESIZE, x),
        _separated,
        _is_cheaper,
        applied_by="arrange_resizes",
        approximate=True,
        doc="an interpolation along several axes is one along each",
        examples=(
            _example((1, 2, 3, 4), (2, 3), (6, 9), mode="linear"),
            _example((1, 2, 3, 4), (-1, -2), (9, 6), scales=(2.25, 2.0), mode="linear"),
            _example((1, 4, 5, 2), (1, 2), (5, 7), mode="cubic", coordinates="align_corners"),
            _example((2, 1, 3, 2), (0, 1, 2, 3), (1, 2, 2, 3), mode="cubic"),
            _example((2, 3, 4, 1, 3), (0, 2, 3, 4), (2, 6, 2, 6), mode="linear", coordinates="asymmetric"),
        ),
        dtypes=_DTYPES,
    ),
)


@record(frozen=True)
class ArrangeResizes(GraphPass):
    """Interpolate along one axis after the other if this reads less; transpose before values grow."""

    name: ClassVar[str] = "arrange_resizes"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        return apply_rules(function, RULES, context)


__all__ = ["RULES", "ArrangeResizes"]
