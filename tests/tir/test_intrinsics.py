from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Call, Expr, Var, as_expr, broadcast, call, ramp
from dlc_core.tir.intrinsics import (
    INTRINSICS,
    address_of,
    call_kernel,
    check_call,
    evaluate_intrinsic,
    fused_multiply_add,
    has_effect,
    if_then_else,
    intrinsic,
    kernel_symbol,
    reinterpret,
    vector_concat,
    vector_shuffle,
)

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-310, 0.5, 2.5, -2.5, 1e300])


def problem(expr: Expr) -> str | None:
    assert isinstance(expr, Call)
    return check_call(expr)


def test_constructors_give_well_typed_calls() -> None:
    x, i, a = Var("x", "float16"), Var("i"), Buffer("A", (16,))
    assert intrinsic("exp", x).dtype is dtype("float16")
    assert intrinsic("isnan", x).dtype is dtype("bool")
    assert intrinsic("pow", x, 2.0).dtype is x.dtype
    vector = a[ramp(0, 1, 8)]
    assert intrinsic("fma", vector, 2.0, vector).dtype is dtype("float32x8")
    assert intrinsic("vector_reduce_max", vector).dtype is dtype("float32")
    assert vector_shuffle(vector, [0, 2]).dtype is dtype("float32x2")
    assert vector_concat(vector, as_expr(1.0)).dtype is dtype("float32x9")
    assert if_then_else(i < 4, a[i], 0.0).dtype is dtype("float32")
    assert reinterpret("int16", x).dtype is dtype("int16")
    for expr in (vector_shuffle(vector, [7, 0]), vector_concat(vector, vector), if_then_else(i < 1, x, x)):
        assert problem(expr) is None


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (call("nothing", (Var("i"),), "int64"), "unknown intrinsic"),
        (call("exp", (Var("i"),), "int64"), "does not take int64"),
        (call("exp", (Var("x", "float32"),), "float64"), "gives float32"),
        (call("pow", (Var("x", "float32"),), "float32"), "takes 2 arguments"),
        (call("pow", (Var("x", "float32"), Var("y", "float64")), "float64"), "one dtype"),
        (call("if_then_else", (Var("i"), Var("x"), Var("y")), "int64"), "wants a bool"),
        (call("vector_reduce_add", (broadcast(Var("i"), 4),), "int64x4"), "gives int64"),
        (call("reinterpret", (Var("x", "float32"),), "int16"), "reinterpret"),
    ],
)
def test_ill_typed_calls_are_explained(expr: Expr, message: str) -> None:
    assert message in (problem(expr) or "")


def test_intrinsic_rejects_bad_arguments() -> None:
    with pytest.raises(UsageError, match="does not take int64"):
        intrinsic("exp", Var("i"))
    with pytest.raises(UsageError, match="unknown intrinsic"):
        intrinsic("expp", Var("x", "float32"))


def test_effects() -> None:
    a = Buffer("A", (4, 4))
    kernel = call_kernel("conv", a, 3)
    assert has_effect(kernel)
    assert kernel_symbol(kernel) == "conv"
    assert has_effect(intrinsic("barrier"))
    assert not has_effect(address_of(a))
    assert not has_effect(intrinsic("exp", Var("x", "float32")))


@pytest.mark.parametrize("name", sorted(n for n, e in INTRINSICS.items() if e.arity == 1 and e.reference))
def test_references_accept_every_special_value(name: str) -> None:
    if name.startswith("vector_") or name == "popcount":
        return
    with np.errstate(all="ignore"):
        value = evaluate_intrinsic(name, (SPECIAL,))
    assert value.shape == SPECIAL.shape
    assert value.dtype == (np.bool_ if name.startswith("is") else SPECIAL.dtype)


def test_special_values() -> None:
    assert evaluate_intrinsic("sigmoid", (np.array([-np.inf, np.inf, 0.0, -800.0]),)).tolist() == [
        0,
        1,
        0.5,
        0,
    ]
    assert math.isnan(evaluate_intrinsic("sigmoid", (np.array([np.nan]),))[0])
    assert evaluate_intrinsic("round", (np.array([0.5, 1.5, 2.5, -0.5]),)).tolist() == [0, 2, 2, 0]
    assert evaluate_intrinsic("pow", (np.array([2, -1, 3, 0]), np.array([-1, -3, 3, 0]))).tolist() == [
        0,
        -1,
        27,
        1,
    ]
    assert evaluate_intrinsic("popcount", (np.array([-1, 7], np.int8),)).tolist() == [8, 3]
    assert evaluate_intrinsic("vector_shuffle", (np.array([5, 6, 7]), 2, 0)).tolist() == [7, 5]
    half = evaluate_intrinsic("exp", (np.array([1.0], np.float16),), "float16")
    assert half.dtype == np.float16


def test_fma_rounds_once() -> None:
    a = 1.0 + 2.0**-30
    assert fused_multiply_add(a, a, -1.0) == float(Fraction(a) * Fraction(a) - 1)
    assert fused_multiply_add(a, a, -1.0) != a * a - 1.0
    assert math.isnan(fused_multiply_add(math.inf, 0.0, 1.0))
    assert fused_multiply_add(1e200, 1e200, 1.0) == math.inf
