"""Rounding and clamping to low-bit integers, recognised in expressions."""

from __future__ import annotations

import pytest

from dlc_core.ir.expr import Cast, Var, cast_to, const, maximum, minimum
from dlc_core.target.source.rounding import Rounded, clamped_round, scaled_round
from dlc_core.tir.intrinsics import intrinsic, rounded_mul

X = Var("x", "float32")
POINT = Var("z", "int8")


def rounded(low: float, high: float, *, to: str = "int8", point=None, by: str = "round") -> Cast:
    value = intrinsic(by, X)
    if point is not None:
        value = value + point
    limited = minimum(maximum(value, const(low, "float32")), const(high, "float32"))
    made = cast_to(to, cast_to("int32", limited))
    assert isinstance(made, Cast)
    return made


def test_the_operands():
    assert clamped_round(rounded(-128, 127)) == (X, None, -128, 127)
    assert clamped_round(rounded(0, 255, to="uint8")) == (X, None, 0, 255)
    assert clamped_round(rounded(-5, 99)) == (X, None, -5, 99)


def test_zero_points():
    wide = cast_to("int32", POINT)
    found = clamped_round(rounded(-128, 127, point=cast_to("float32", wide)))
    assert found == (X, wide, -128, 127)
    found = clamped_round(rounded(-128, 127, point=const(-7.0, "float32")))
    assert found == (X, const(-7, "int32"), -128, 127)


@pytest.mark.parametrize(
    "other",
    [
        rounded(-129, 127),
        rounded(-128, 128),
        rounded(-128, 126.5),
        rounded(5, 4),
        rounded(-128, 127, by="floor"),
        rounded(-128, 127, point=Var("f", "float32")),
        rounded(-128, 127, point=const(0.5, "float32")),
        rounded(-128, 127, point=const(1e6, "float32")),
        cast_to("int8", cast_to("int32", intrinsic("round", X))),
        cast_to("int8", X),
    ],
    ids=str,
)
def test_other_expressions(other):
    assert clamped_round(other) is None


def test_scaled_sums():
    total, factor = Var("n", "int32"), Var("f", "float32")
    for value in (
        rounded_mul(cast_to("float32", total), factor),
        rounded_mul(factor, cast_to("float32", total)),
    ):
        assert scaled_round(Rounded(value, None, 0, 255)) == (total, factor)
    assert scaled_round(Rounded(X, None, 0, 255)) is None
    assert scaled_round(Rounded(rounded_mul(X, factor), None, 0, 255)) is None
    assert scaled_round(Rounded(cast_to("float32", total) * factor, None, 0, 255)) is None
