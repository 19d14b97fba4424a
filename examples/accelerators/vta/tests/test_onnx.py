"""Operators of quantized ONNX models, if the importer is installed."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.plugin.registry import registry

onnx = pytest.importorskip("onnx")
parser = pytest.importorskip("onnx.parser")
pytest.importorskip("dlc_frontend_onnx")

HOST = "reference -level=tir"
CONV = "y = {op} <pads = [1, 1, 1, 1], strides = [2, 1]> ({inputs})"
SCALES = "float s = {0.03}, float t = {0.01}, float u = {0.7}"
MODELS = {
    "QLinearConv": (
        "uint8[1, 5, 9, 7] x",
        "uint8[1, 6, 5, 7] y",
        f"{SCALES}, uint8 z = {{131}}, int8 p = {{0}}, uint8 v = {{9}}",
        CONV.format(op="QLinearConv", inputs="x, s, z, w, t, p, u, v, b"),
        {"w": ((6, 5, 3, 3), "int8"), "b": ((6,), "int32")},
    ),
    "ConvInteger": (
        "uint8[2, 5, 9, 7] x",
        "int32[2, 6, 5, 7] y",
        "uint8 z = {131}, uint8 q = {7}",
        CONV.format(op="ConvInteger", inputs="x, w, z, q"),
        {"w": ((6, 5, 3, 3), "uint8")},
    ),
    "QLinearMatMul": (
        "int8[4, 33] x",
        "int8[4, 21] y",
        f"{SCALES}, int8 z = {{-3}}, int8 p = {{0}}, int8 v = {{2}}",
        "y = QLinearMatMul (x, s, z, w, t, p, u, v)",
        {"w": ((33, 21), "int8")},
    ),
    "MatMulInteger": (
        "uint8[2, 4, 33] x",
        "int32[2, 4, 21] y",
        "uint8 z = {120}",
        "y = MatMulInteger (x, w, z)",
        {"w": ((33, 21), "int8")},
    ),
    "QDQ": (
        "float[4, 33] x",
        "uint8[4, 21] y",
        f"{SCALES}, uint8 z = {{128}}, int8 p = {{0}}, uint8 v = {{3}}",
        """a = QuantizeLinear (x, s, z)
           c = DequantizeLinear (a, s, z)
           d = DequantizeLinear (w, t, p)
           m = MatMul (c, d)
           r = Relu (m)
           y = QuantizeLinear (r, u, v)""",
        {"w": ((33, 21), "int8")},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_card_computes_the_sums_and_every_bit_is_right(name):
    given, result, constants, body, weights = MODELS[name]
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g ({given}) => ({result}) <{constants}> {{ {body} }}'
    )
    rng = np.random.default_rng(0)
    for weight, (shape, dtype) in weights.items():
        info = np.iinfo(dtype if dtype != "int32" else "int16")
        array = rng.integers(info.min, info.max + 1, shape).astype(dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, weight))
    exe = dlc.compile(model, targets=["vta", HOST])
    (value,) = exe.inputs
    shape = [int(size) for size in value.type.shape]
    if value.type.dtype.is_float:
        x = rng.standard_normal(shape).astype(np.float32)
    else:
        low, high = value.type.dtype.int_range()
        x = rng.integers(low, high + 1, shape).astype(value.type.dtype.numpy)
    before = registry().devices["vta"].launches
    np.testing.assert_array_equal(exe(x), dlc.compile(model, HOST)(x))
    assert registry().devices["vta"].launches == before + 1
    (region,) = exe.about["placed"]["regions"]
    assert {"conv", "matmul"} & set(region["ops"])
    assert ("requantize" in region["ops"]) == (name.startswith("QLinear") or name == "QDQ")
