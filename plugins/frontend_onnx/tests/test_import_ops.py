"""The node tests of the onnx package, and operators of old versions."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.support import supported_ops
from dlc_frontend_onnx.testing import suite
from dlc_frontend_onnx.testing.compare import check, main_of, parse, run

import dlc_core as dlc
from dlc_core.diag import ModelError, UnsupportedError
from dlc_core.graph.node import post_order

FAST = (
    "averagepool cast clip concat conv einsum flatten gather gemm lstm matmul maxpool pad"
    " pow reducesum reshape shape slice softmax split squeeze topk unsqueeze where"
)


def problems(score):
    """The verdicts other than passed or unsupported."""
    bad = [v for v in score.verdicts if v.outcome in ("wrong", "refused")]
    return [f"{v.name}: {v.outcome}: {v.reason}" for v in bad]


@pytest.mark.parametrize("module", FAST.split())
def test_node_tests_of_common_operators(module):
    score = suite.judge_all(suite.cases(module))
    assert problems(score) == []
    assert score.counts["pass"] + score.counts["frozen"] > 0


@pytest.mark.slow
def test_all_node_tests():
    score = suite.judge_all(suite.cases())
    assert problems(score) == []
    passed = score.counts["pass"] + score.counts["frozen"]
    assert passed >= 0.8 * len(score.verdicts)


def x_of(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


OLD = [
    (9, "float[2,3,4]", "Softmax <axis = 1> (x)"),
    (11, "float[2,3,4]", "LogSoftmax (x)"),
    (11, "float[2,3,4]", "Hardmax <axis = 1> (x)"),
    (7, "float[2,3]", "Clip <min = -0.5, max = 0.25> (x)"),
    (9, "float[4,3]", "Slice <starts = [1,0], ends = [3,-1]> (x)"),
    (9, "float[4,3]", "Slice <axes = [1], starts = [-1], ends = [9]> (x)"),
    (11, "float[1,3,1]", "Squeeze <axes = [0, 2]> (x)"),
    (11, "float[3]", "Unsqueeze <axes = [0, 2]> (x)"),
    (11, "float[2,3,4]", "ReduceSum <axes = [1]> (x)"),
    (13, "float[2,3,4]", "ReduceMean <axes = [1], keepdims = 0> (x)"),
    (9, "float[2,3]", "Pad <pads = [1,0,1,1], value = 2.0> (x)"),
    (10, "float[2,3]", "Dropout <ratio = 0.3> (x)"),
    (7, "float[2,3]", "Gemm <alpha = 0.5, beta = 2.0, transB = 1> (x, m, v3)"),
    (7, "float[1,1,2,3]", "Upsample <scales = [1.0,1.0,2.0,2.0]> (x)"),
    (8, "float[3]", "Sum (x, x, x)"),
    (8, "float[3]", "Mean (x, x)"),
]
SIX = [
    ("float[2,3,4]", "Add <axis = 1, broadcast = 1> (x, v)", lambda x, v: x + v[:, None]),
    ("float[2,4,3]", "Sub <broadcast = 1> (x, v)", lambda x, v: x - v),
    ("float[3,2]", "Mul <axis = 0, broadcast = 1> (x, v)", lambda x, v: x * v[:, None]),
    ("float[2,3,4]", "Div <axis = -2, broadcast = 1> (x, v)", lambda x, v: x / v[:, None]),
    ("float[3]", "Div (x, v)", lambda x, v: x / v),
    ("float[3,2]", "Pow <axis = 0, broadcast = 1> (x, v)", lambda x, v: x ** v[:, None]),
    ("float[2,3,2,2]", "PRelu (x, v)", lambda x, v: np.where(x < 0, x * v[:, None, None], x)),
    ("float[2,3]", "PRelu (x, v)", lambda x, v: np.where(x < 0, x * v, x)),
    ("float[3]", "Max (x, v)", np.maximum),
    ("float[2,4]", "Gemm <broadcast = 1> (x, m, v)", lambda x, v: x @ M + v),
    ("float[2,3]", "Dropout <is_test = 1> (x)", lambda x, v: x),
    (
        "float[2,3,2]",
        "BatchNormalization <is_test = 1> (x, v, v, v, v)",
        lambda x, v: ((x.swapaxes(1, 2) - v) / np.sqrt(v + 1e-5) * v + v).swapaxes(1, 2),
    ),
]
M = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2], np.float32).reshape(4, 3)


@pytest.mark.parametrize(("kind", "call", "expected"), SIX, ids=[call for _, call, _ in SIX])
def test_operators_of_opset_6(kind, call, expected):
    x, v = x_of(*eval_shape(kind)), np.array([1, 2, 3], np.float32)
    model = parse(f"g ({kind} x) => (float y) {{ {CONSTANTS} y = {call} }}", opset=6)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    (found,) = run(model, {"x": x})
    np.testing.assert_allclose(found, expected(x, v), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "kind", "problem"),
    [
        ("Add (x, v)", ModelError, "differ in shape"),
        ("Add <axis = 2, broadcast = 1> (x, m)", ModelError, "does not fit"),
        ("Dropout (x)", UnsupportedError, "training mode"),
        ("BatchNormalization (x, v, v, v, v)", UnsupportedError, "training mode"),
    ],
)
def test_what_opset_6_does_not_allow(call, kind, problem):
    with pytest.raises(kind, match=problem):
        run(parse(f"g (float[2,3,4] x) => (float[2,3,4] y) {{ {CONSTANTS} y = {call} }}", opset=6), {})


CONSTANTS = """
    v = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
    v3 = Constant <value = float[4] {1.0, 2.0, 3.0, 4.0}> ()
    m = Constant <value = float[4,3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}> ()
"""


@pytest.mark.parametrize(("opset", "kind", "call"), OLD)
def test_operators_of_old_versions(opset, kind, call):
    x = x_of(*eval_shape(kind))
    model = parse(f"g ({kind} x) => (float y) {{ {CONSTANTS} y = {call} }}", opset=opset)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    if call.startswith("Upsample"):
        (found,) = run(model, {"x": x})
        np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(2, 3))
    elif "max" in call.split()[0]:
        (found,) = run(model, {"x": x})
        np.testing.assert_allclose(found, folded(call, x), rtol=1e-5)
    else:
        check(model, {"x": x})


def eval_shape(kind):
    return [int(dim) for dim in kind[kind.index("[") + 1 : -1].split(",")]


def folded(call, x):
    """Before version 13 the axes from the given one on are flattened."""
    flat = x.reshape(2, -1)
    powers = np.exp(flat - flat.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True)
    if call.startswith("Log"):
        expected = np.log(expected)
    if call.startswith("Hard"):
        expected = np.arange(flat.shape[1]) == flat.argmax(1)[:, None]
    return expected.reshape(x.shape)


@pytest.mark.parametrize("opset", [7, 9, 15])
def test_batch_normalization_of_every_version_uses_the_given_statistics(opset):
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {CONSTANTS} y = BatchNormalization (x, v, v, v, v) }}"
    x, v = x_of(2, 3), np.array([1, 2, 3], np.float32)
    (found,) = run(parse(text, opset=opset), {"x": x})
    np.testing.assert_allclose(found, (x - v) / np.sqrt(v + 1e-5) * v + v, rtol=1e-5)


LONG_POOLS = {
    "AveragePool": lambda x: x.mean((2, 3), keepdims=True),
    "MaxPool": lambda x: x.max((2, 3), keepdims=True),
}


@pytest.mark.parametrize("dims", ["1, 3, 7, 5", "n, 3, h, w"])
@pytest.mark.parametrize("op", LONG_POOLS)
def test_a_pool_longer_than_its_input_with_ceil_mode(op, dims):
    """As exporters write a pool over a whole image: torch and ONNX Runtime clip the only window."""
    attrs = "kernel_shape = [1280, 1280], strides = [1280, 1280], ceil_mode = 1"
    model = parse(f"g (float[{dims}] x) => (float[a, b, c, d] y) {{ y = {op}<{attrs}>(x) }}", 19)
    x = np.random.default_rng(0).normal(size=(1, 3, 7, 5)).astype(np.float32)
    np.testing.assert_allclose(dlc.compile(model, "llvm")(x), LONG_POOLS[op](x), rtol=1e-6)


def test_indices_of_a_pool_longer_than_its_input():
    attrs = "kernel_shape = [90, 90], strides = [90, 90], ceil_mode = 1"
    model = parse(f"g (float[1, 2, 3, 4] x) => (float[a, b, c, d] y, int64[a, b, c, d] i) "
                  f"{{ y, i = MaxPool<{attrs}>(x) }}", 19)  # fmt: skip
    x = np.random.default_rng(0).permutation(24).reshape(1, 2, 3, 4).astype(np.float32)
    _, found = run(model, {"x": x})
    assert found.ravel().tolist() == [x[0, 0].argmax(), 12 + x[0, 1].argmax()]


@pytest.mark.parametrize("size", [5, 6, 7, 8])
@pytest.mark.parametrize("pads", [(0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_with_ceil_mode(size, pads, p):
    attrs = f"kernel_shape = [3], strides = [2], pads = [{pads[0]}, {pads[1]}], ceil_mode = 1, p = {p}"
    model = parse(f"g (float[1,2,{size}] x) => (float[a,b,c] y) {{ y = LpPool <{attrs}> (x) }}", opset=18)
    x = x_of(1, 2, size)
    begins = [b for b in range(-pads[0], size, 2) if b == -pads[0] or b - 2 + 3 < size + pads[1]]
    expected = [(np.abs(x[..., max(b, 0) : b + 3]) ** p).sum(-1) ** (1 / p) for b in begins]
    (found,) = run(model, {"x": x})
    np.testing.assert_allclose(found, np.stack(expected, -1), rtol=1e-5)


@pytest.mark.parametrize("kind", ["uint16", "int8"])
def test_einsum_of_small_integers_keeps_their_type(kind):
    body = 'y = Einsum <equation = "ij,jk->ik"> (x, w)'
    model = parse(f"g ({kind}[2,3] x, {kind}[3,4] w) => ({kind}[2,4] y) {{ {body} }}")
    x, w = (np.arange(n).astype(kind) * 40 for n in (6, 12))
    check(model, {"x": x.reshape(2, 3), "w": w.reshape(3, 4)})


@pytest.mark.parametrize(
    ("equation", "x", "w", "known"),
    [
        ("dts,bsd->btd", "5,6,4", "b,4,5", True),  # b is no column, because vectors need known columns
        ("bsd,dts->btd", "b,4,5", "5,6,4", True),
        ("ts,bsd->bdt", "6,4", "b,4,5", False),  # columns are contiguous
        ("bqd,bkd->bqk", "2,3,4", "2,k,4", False),  # the result has columns innermost
    ],
)
def test_einsum_prefers_known_columns(equation, x, w, known):
    body = f'y = Einsum <equation = "{equation}"> (x, w)'
    model = parse(f"g (float[{x}] x, float[{w}] w) => (float[p, q, r] y) {{ {body} }}")
    (product,) = (node for node in post_order(main_of(model).body) if node.op.name == "matmul")
    assert isinstance(product.shape[-1], int) is known
    exe = dlc.compile(model)
    for size in (1, 2, 19):
        shapes = [[int(d) if d.isdigit() else size for d in dims.split(",")] for dims in (x, w)]
        a, b = (x_of(*shape) for shape in shapes)
        np.testing.assert_allclose(exe(a, b), np.einsum(equation, a, b), rtol=1e-5, atol=1e-6)


def test_large_integer_bounds_keep_all_bits():
    low = 2**53 + 1
    model = parse(
        f"g (int64[2] x) => (int64[2] y) {{ low = Constant <value_int = {low}> ()  y = Clip(x, low) }}"
    )
    (found,) = run(model, {"x": np.array([0, 2**60 + 1])})
    assert found.tolist() == [low, 2**60 + 1]


def test_large_integer_fills_keep_all_bits():
    value = 2**53 + 1
    model = parse(
        f"""g () => (int64[2] y) {{
            s = Constant <value_ints = [2]> ()
            y = ConstantOfShape <value = int64[1] {{{value}}}> (s)
        }}"""
    )
    (found,) = run(model, {})
    assert found.tolist() == [value, value]


def test_the_table_of_supported_operators():
    rows = {(row.domain, row.op): row for row in supported_ops()}
    assert rows["", "Clip"].versions == (6, 11, 12, 13)
    assert rows["", "Relu"].how == "converter"
    assert rows["", "HannWindow"].how == "function"
    assert rows["com.microsoft", "FusedMatMul"].versions == (1,)
    assert ("", "ImageDecoder") in rows
    assert sum(row.domain == "" for row in rows.values()) >= 165


@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
@pytest.mark.parametrize("axes", ["", "<axes = [-1]>", "<axes = [0, 1]>"])
def test_mean_and_variance_of_any_float(dtype, axes):
    x = x_of(2, 3, 4, 4)
    text = f"g ({dtype}[2,3,4,4] x) => ({dtype}[a,b,c,d] y) {{ y = MeanVarianceNormalization {axes} (x) }}"
    given = x.astype({"float": "float32", "float16": "float16", "double": "float64"}[dtype])
    (found,) = run(parse(text, 13), {"x": given})
    over = {"": (0, 2, 3), "<axes = [-1]>": (-1,), "<axes = [0, 1]>": (0, 1)}[axes]
    wide = given.astype(np.float64)
    expected = (wide - wide.mean(over, keepdims=True)) / (wide.std(over, keepdims=True) + 1e-9)
    assert found.dtype == given.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float16" else 1e-4, atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hardmax_without_elements(axis):
    x = np.zeros((2, 0, 3), np.float32)
    text = f"g (float[2,0,3] x) => (float[2,0,3] y) {{ y = Hardmax <axis = {axis}> (x) }}"
    assert run(parse(text), {"x": x})[0].shape == (2, 0, 3)
