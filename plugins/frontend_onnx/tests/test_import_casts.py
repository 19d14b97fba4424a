"""Casts to and from dtypes that are only stored, and quantizing to them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import parse, run

VALUES = np.array([0, -0.0, 1.4, 1.5, 3, -448, 500, 1e6, np.inf, -np.inf, np.nan], np.float32)


def made(text, x, opset=25):
    model = parse(f"g (float[{x.size}] x) => ({text}", opset=opset)
    return run(model, {"x": x})[0]


@pytest.mark.parametrize(("kind", "number"), [("float8_e4m3fn", 17), ("float8_e5m2", 19)])
def test_casts_to_float8_saturate_by_default(kind, number):
    to = getattr(ml_dtypes, kind)
    name = {17: "float8e4m3fn", 19: "float8e5m2"}[number]
    greatest = float(ml_dtypes.finfo(to).max)
    found = made(f"{name}[11] y) {{ y = Cast <to = {number}> (x) }}", VALUES)
    expected = np.clip(VALUES, -greatest, greatest).astype(to)
    assert found.dtype == to
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
    found = made(f"{name}[11] y) {{ y = Cast <to = {number}, saturate = 0> (x) }}", VALUES)
    np.testing.assert_array_equal(found.astype(np.float32), VALUES.astype(to).astype(np.float32))


@pytest.mark.parametrize(
    ("mode", "codes"),
    [("up", [127, 128, 128, 129]), ("down", [127, 127, 127, 128]), ("nearest", [127, 127, 128, 129])],
)
def test_exponents_are_rounded_by_round_mode(mode, codes):
    x = np.array([1, 1.4, 1.5, 3], np.float32)
    found = made(f'float8e8m0[4] y) {{ y = Cast <to = 24, round_mode = "{mode}"> (x) }}', x)
    assert found.view(np.uint8).tolist() == codes


def test_exponents_of_infinities_and_nan():
    x = np.array([3.4e38, np.inf, np.nan], np.float32)
    assert made("float8e8m0[3] y) { y = Cast <to = 24> (x) }", x).view(np.uint8).tolist() == [254, 255, 255]


def test_quantizing_divides_in_the_given_precision():
    x, scale = np.array([2049.0, 3.0], np.float32), np.array(2.0, np.float32)
    text = """g (float[2] x, float s) => (int16[2] y) {
        y = QuantizeLinear <output_dtype = 5, precision = 10> (x, s)
    }"""
    (found,) = run(parse(text, opset=25), {"x": x, "s": scale})
    assert found.tolist() == [1024, 2]


def test_bitcasts():
    x = np.array([1.0, -0.0], np.float32)
    assert made("int32[2] y) { y = BitCast <to = 6> (x) }", x, opset=26).tolist() == [0x3F800000, -(2**31)]
