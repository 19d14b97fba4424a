"""Rules of matrix products.

Canonical forms: a transpose of the last two dims is an attribute of the product; a constant right-hand side
is stored as […, k, n], a view of the transposed one; a product of a constant with few columns has the
constant on the right, whose columns fill vectors and which can be packed.
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
FEW_COLUMNS = 8
"""The most columns of a right-hand side that become rows.  The vectors of most machines have no fewer
elements, so that fewer columns leave lanes empty.  Measured on Zen 4 with a constant of 1024x1024: 0.31 and
0.04 ms with one column, 0.17 and 0.07 with four, 0.19 and 0.15 with eight, and the same with 16."""


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


def _has_few_columns(match: Match) -> bool:
    left, right = match.root.args
    if right.op is CONST or min(len(left.shape), len(right.shape)) < 2:
        return False
    rows, columns = match.root.shape[-2:]
    return isinstance(rows, int) and isinstance(columns, int) and columns <= min(FEW_COLUMNS, rows - 1)


def _constant_to_right(match: Match) -> Node:
    """(c x)ᵀ = xᵀ cᵀ."""
    array, attrs = const_array(match["c"]), dict(match.root.attrs)
    assert array is not None
    if not attrs["transpose_a"]:
        array = np.swapaxes(array, -1, -2)
    attrs |= {"transpose_a": not attrs["transpose_b"], "transpose_b": False}
    product = MATMUL.build(match["x"], constant(array), **attrs)
    last = len(product.shape) - 1
    return transposed(product, (*range(last - 1), last, last - 1))


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


def _with_constant_left(columns: int, shape: tuple[int, ...] = (3, 4), **attrs: bool) -> Example:
    def example(dtype: str) -> Node:
        weights = constant(np.arange(np.prod(shape)).reshape(shape) - 5, dtype)
        rows = (columns, 4) if attrs.get("transpose_b") else (4, columns)
        return MATMUL.build(weights, param("x", tensor_type((2, *rows), dtype)), **attrs)

    return example


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
    Rule(
        "matmul_constant_left",
        match_op(MATMUL, c, x),
        _constant_to_right,
        _has_few_columns,
        doc="a constant with few columns beside it goes to the right, where it can be packed",
        examples=(
            _with_constant_left(1),
            _with_constant_left(2),
            _with_constant_left(2, transpose_b=True),
            _with_constant_left(1, (2, 4, 3), transpose_a=True),
        ),
        dtypes=_DTYPES,
    ),
)
