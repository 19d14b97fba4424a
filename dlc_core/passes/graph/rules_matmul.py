"""Rules of matrix products.

Canonical forms: a transpose of the last two dims is an attribute of the product; a constant right-hand side
is stored as […, k, n], a view of the transposed one.
"""

from __future__ import annotations

import numpy as np

from dlc_core.graph.node import CONST, Node, const_array, constant, param
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.graph.rules_shape import permutation, transposed
from dlc_core.rewrite import Match, Rule, const_var, match_op, var
from dlc_core.rewrite.rule import Example

MATMUL, TRANSPOSE = OPS["matmul"], OPS["transpose"]
x, y, c = var("x"), var("y"), const_var("c")
_DTYPES = ("float32", "bfloat16", "int8")


def _swaps_innermost(value: Node) -> bool:
    """Whether a transpose moves the innermost axis to the last position but one."""
    rank = len(value.shape)
    return value.op is TRANSPOSE and rank >= 2 and permutation(value)[-2] == rank - 1


def _without_swap(value: Node) -> Node:
    """Swap the last two axes of a transpose back, so that the innermost axis stays innermost."""
    axes = list(permutation(value))
    axes[-2], axes[-1] = axes[-1], axes[-2]
    return transposed(value.args[0], axes)


def _absorb(match: Match) -> Node:
    a, b = match.root.args
    attrs = dict(match.root.attrs)
    if _swaps_innermost(a):
        a, attrs["transpose_a"] = _without_swap(a), not attrs["transpose_a"]
    if _swaps_innermost(b):
        b, attrs["transpose_b"] = _without_swap(b), not attrs["transpose_b"]
    return MATMUL.build(a, b, **attrs)


def _store_untransposed(match: Match) -> Node:
    array = const_array(match["c"])
    assert array is not None
    return MATMUL.build(
        match["x"], constant(np.swapaxes(array, -1, -2)), **{**match.root.attrs, "transpose_b": False}
    )


def _product(axes_a: tuple[int, ...] | None, axes_b: tuple[int, ...] | None) -> Example:
    def operand(name: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> Node:
        if axes is None:
            return param(name, tensor_type(shape, dtype))
        inner = [0] * len(shape)
        for position, axis in enumerate(axes):
            inner[axis] = shape[position]
        return TRANSPOSE.build(param(name, tensor_type(inner, dtype)), axes=axes)

    return lambda dtype: MATMUL.build(
        operand("x", dtype, (2, 3, 4, 5), axes_a), operand("y", dtype, (2, 3, 5, 6), axes_b)
    )


def _with_constant(dtype: str) -> Node:
    weights = constant(np.arange(12).reshape(3, 4) - 5, dtype)
    return MATMUL.build(param("x", tensor_type((2, 4), dtype)), weights, transpose_b=True)


RULES: tuple[Rule, ...] = (
    Rule(
        "matmul_transpose",
        match_op(MATMUL, x, y),
        _absorb,
        lambda m: any(map(_swaps_innermost, m.root.args)),
        doc="a product reads transposed operands by itself",
        examples=(
            _product((0, 1, 3, 2), None),
            _product(None, (0, 1, 3, 2)),
            _product((1, 0, 3, 2), (0, 2, 3, 1)),
        ),
        dtypes=_DTYPES,
    ),
    Rule(
        "matmul_constant",
        match_op(MATMUL, x, c, transpose_b=True),
        _store_untransposed,
        doc="a constant can be stored either way",
        condition=lambda m: m["x"].op is not CONST,
        examples=(_with_constant,),
        dtypes=_DTYPES,
    ),
)
