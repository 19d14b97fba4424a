"""Quantized operators, compared bit for bit with ONNX Runtime if it is installed; also whole models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.compare import run
from onnx import TensorProto, helper, numpy_helper

import dlc_core as dlc

ort: Any = pytest.importorskip("onnxruntime")
R = np.random.default_rng(0)


def number(value, dtype="float32"):
    return np.array(value, dtype)


def u8(*shape):
    return R.integers(0, 256, shape).astype(np.uint8)


def i8(*shape):
    # Runtimes without dot products add pairs of products in 16 bits, which must not saturate.
    return R.integers(-60, 61, shape).astype(np.int8)


def steps(*shape):
    return R.uniform(0.01, 0.05, shape).astype(np.float32)


def model_of(nodes, inputs, outputs, constants, *, opset=19):
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def runtime(model, feeds, level="all"):
    options = ort.SessionOptions()
    kinds = ort.GraphOptimizationLevel
    options.graph_optimization_level = kinds.ORT_ENABLE_ALL if level == "all" else kinds.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


S, Z = number(0.031), number(118, "uint8")
W, NONE, BIAS = i8(6, 4, 3, 3), np.zeros(6, "i1"), R.integers(-999, 999, 6).astype("i4")
CASES = [
    ("QLinearConv", "", [u8(1, 4, 7, 8), S, Z, W, steps(6), NONE, S, Z, BIAS], {"pads": [1, 1, 0, 2]}),
    ("QLinearConv", "", [u8(1, 4, 9), S, Z, i8(4, 1, 3), S, number(3, "int8"), number(0.5), Z],
     {"group": 4, "strides": [2]}),
    ("QLinearMatMul", "", [u8(3, 9), S, Z, i8(9, 6), steps(6), NONE, number(0.2), Z], {}),
    ("MatMulInteger", "", [u8(2, 3, 9), u8(9, 5), Z, u8(5)], {}),
    ("ConvInteger", "", [u8(1, 2, 6, 6), u8(3, 2, 3, 3), Z, number(7, "uint8")], {"pads": [1, 1, 1, 1]}),
    ("DynamicQuantizeLinear", "", [R.standard_normal((5, 9)).astype(np.float32)], {}),
    ("DynamicQuantizeLinear", "", [np.abs(R.standard_normal((5, 9))).astype(np.float32)], {}),
    ("QLinearWhere", "m", [R.integers(0, 2, (4, 5)).astype(bool), u8(4, 5), S, Z, u8(4, 5), S, Z, S, Z], {}),
    ("QLinearConv", "m", [u8(1, 7, 8, 4), S, Z, W, steps(6), NONE, S, Z], {"channels_last": 1}),
    ("QLinearGlobalAveragePool", "m", [u8(1, 4, 4, 3), S, Z, S, Z], {"channels_last": 1}),
    ("QGemm", "m", [u8(3, 9), S, Z, i8(6, 9), steps(6), NONE, BIAS, number(0.2), Z], {"transB": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "domain", "inputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_operators_bit_for_bit(op, domain, inputs, attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    fed = {names[0]: inputs[0]} | ({names[1]: inputs[1]} if op == "QLinearWhere" else {})
    count = 3 if op == "DynamicQuantizeLinear" else 1
    outputs = [f"y{i}" for i in range(count)]
    node = helper.make_node(op, names, outputs, domain="com.microsoft" if domain else "", **attributes)
    constants = {n: a for n, a in zip(names, inputs) if n not in fed}
    model = model_of([node], fed, outputs, constants)
    for found, expected in zip(run(model, fed), runtime(model, fed), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("points", ["", "packed", "floats"])
@pytest.mark.parametrize(
    ("bits", "size", "depth", "rows"), [(4, 16, 64, 1), (4, 32, 64, 3), (8, 32, 64, 1), (4, 16, 40, 20)]
)
def test_low_bit_weights(bits, size, depth, rows, points):
    columns, blocks = 6, -(-depth // size)
    x = R.standard_normal((rows, depth)).astype(np.float32)
    b, scales = u8(columns, blocks, size * bits // 8), steps(columns * blocks)
    extra = {
        "packed": u8(columns * -(-blocks * bits // 8)),
        "floats": R.uniform(0, 9, (columns, blocks)).astype("f4"),
    }
    constants = {"b": b, "s": scales} | ({"z": extra[points]} if points else {})
    if points == "floats" and bits == 8:
        pytest.skip("ONNX Runtime has no such kernel")
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": size}
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **attributes)
    model = model_of([node], {"x": x}, ["y"], constants)
    (expected,) = runtime(model, {"x": x})
    np.testing.assert_allclose(run(model, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)
    exe = dlc.compile(model, cache=False)
    np.testing.assert_allclose(exe(x), expected, rtol=1e-4, atol=1e-4)


def quantize(name, x, scale, zero, out):
    return helper.make_node("QuantizeLinear", [x, scale, zero], [out], name=name)


def dequantize(name, q, scale, zero, out, **attributes):
    return helper.make_node("DequantizeLinear", [q, scale, zero], [out], name=name, **attributes)


def test_a_network_of_quantize_and_dequantize():
    """Convolutions with a residual, a pool and a product: the same bits on every target."""
    w1, w2, w3 = i8(8, 3, 3, 3), i8(8, 8, 3, 3), i8(8, 10)
    constants = {
        "s0": number(0.02), "z0": number(128, "uint8"), "s1": number(0.035), "z1": number(0, "uint8"),
        "s2": number(0.05), "z2": number(97, "uint8"), "w1": w1, "w2": w2, "w3": w3,
        "t1": steps(8), "t2": steps(8), "t3": number(0.02), "zw": np.zeros(8, "i1"), "z3": number(0, "int8"),
        "b1": R.integers(-2000, 2000, 8).astype("i4"), "zb": np.zeros(8, "i4"),
    }  # fmt: skip
    constants["sb"] = constants["s0"] * constants["t1"]
    nodes = [
        quantize("q0", "x", "s0", "z0", "x_q"),
        dequantize("d0", "x_q", "s0", "z0", "x_d"),
        dequantize("dw1", "w1", "t1", "zw", "w1_d", axis=0),
        dequantize("db1", "b1", "sb", "zb", "b1_d", axis=0),
        helper.make_node("Conv", ["x_d", "w1_d", "b1_d"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        quantize("q1", "r1", "s1", "z1", "r1_q"),
        dequantize("d1", "r1_q", "s1", "z1", "r1_d"),
        dequantize("dw2", "w2", "t2", "zw", "w2_d", axis=0),
        helper.make_node("Conv", ["r1_d", "w2_d"], ["c2"], pads=[1, 1, 1, 1]),
        quantize("q2", "c2", "s2", "z2", "c2_q"),
        dequantize("d2", "c2_q", "s2", "z2", "c2_d"),
        helper.make_node("Add", ["c2_d", "r1_d"], ["sum"]),
        quantize("q3", "sum", "s2", "z2", "sum_q"),
        dequantize("d3", "sum_q", "s2", "z2", "sum_d"),
        helper.make_node("MaxPool", ["sum_d"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        quantize("q4", "pool", "s2", "z2", "pool_q"),
        dequantize("d4", "pool_q", "s2", "z2", "pool_d"),
        helper.make_node("GlobalAveragePool", ["pool_d"], ["mean"]),
        quantize("q5", "mean", "s2", "z2", "mean_q"),
        dequantize("d5", "mean_q", "s2", "z2", "mean_d"),
        helper.make_node("Flatten", ["mean_d"], ["flat"]),
        dequantize("dw3", "w3", "t3", "z3", "w3_d"),
        helper.make_node("MatMul", ["flat", "w3_d"], ["y"]),
        quantize("q6", "y", "s2", "z2", "y_q"),
    ]
    x = R.standard_normal((1, 3, 10, 12)).astype(np.float32)
    model = model_of(nodes, {"x": x}, ["sum_q", "y_q"], constants)
    expected, _ = runtime(model, {"x": x})
    for arithmetic in ("integer", "fixed", "float"):
        config = {"quantized": arithmetic}
        found = dlc.compile(model, config=config, cache=False)(x)
        # ONNX Runtime adds with ratios of scales, so ties of the standard's sums may be rounded differently.
        assert np.abs(found[0].astype(int) - expected).max() <= 1
        if arithmetic != "float":
            other = dlc.compile(model, "reference -level=tir", config=config, cache=False)(x)
            for a, b in zip(found, other, strict=True):
                np.testing.assert_array_equal(a, b)


def test_dynamic_quantization_is_one_product_with_an_epilogue():
    w, scale, bias = i8(32, 16), number(0.02), R.standard_normal(16).astype(np.float32)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["scale"]),
        helper.make_node("Mul", ["f", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    x = R.standard_normal((6, 32)).astype(np.float32)
    constants = {"w": w, "wz": number(0, "int8"), "ws": scale, "bias": bias}
    model = model_of(nodes, {"x": x}, ["y"], constants)
    (expected,) = runtime(model, {"x": x})
    exe = dlc.compile(model, cache=False)
    np.testing.assert_allclose(exe(x), expected, rtol=1e-6, atol=1e-6)
    products = [line for line in exe.source("tir").splitlines() if "def fused_matmul" in line]
    assert len(products) == 1
    assert all(word in products[0] for word in ("sub", "cast", "mul", "add", "relu"))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_quotient_has_the_precision_of_the_scale(dtype):
    """In float16, 2049 / 2 is 1024, because the quotient is rounded before the conversion to an integer."""
    x = np.array([2049.0, 2051.0, 1.0, -3.0]).astype(dtype)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    model = model_of([node], {"x": x}, ["y"], {"s": number(2, dtype), "z": number(0, "int16")}, opset=21)
    expected = np.rint(x / number(2, dtype)).astype(np.int16)
    np.testing.assert_array_equal(run(model, {"x": x})[0], expected)
    np.testing.assert_array_equal(dlc.compile(model, cache=False)(x), expected)
