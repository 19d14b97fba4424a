"""Peers whose libraries few machines have: torch with graphs as hand-written modules are, and tinygrad."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.measure import Result, measure_case
from benchmarks.models import Case, perceptron
from benchmarks.peers import OURS, PEERS, tinygrad

PEER = {peer.name: peer for peer in PEERS}
needs_torch = pytest.mark.skipif(not PEER["torch"].installed, reason="torch is not installed")
OPSET = 23
ONE = (
    "Abs Acos Asin Atan Ceil Cos Cosh Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsNaN"
    " LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh"
)
TWO = "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Pow Sub Sum"
REDUCTIONS = "L1 L2 LogSumExp Max Mean Min Prod Sum SumSquare"
IMAGE = "float[2, 4, 6, 6] x"
GRAPHS = [
    *(f"(float[2, 3] x) => (float[] y) {{ y = {name} (x) }}" for name in ONE.split()),
    *(f"(float[2, 3] x, float[3] z) => (float[] y) {{ y = {name} (x, z) }}" for name in TWO.split()),
    *(
        f"(float[2, 3, 4] x) => (float[] y) <int64[1] a = {{1}}> {{ y = Reduce{name} <keepdims = 0> (x, a) }}"
        for name in REDUCTIONS.split()
    ),
    *"""
(float[3] x, float[3] z) => (bool[] y) <float h = {0.5}>
{ a = Less(x, h) b = Less(z, h) c = And(a, b) d = Or(a, b) e = Xor(c, d) y = Not(e) }

(float[6] x) => (int64[] y) <float much = {100.0}, int64 seven = {-7}>
{ a = Mul(x, much) b = Cast <to = 7> (a) y = Div(b, seven) }

(float[6] x, float[6] z) => (float[] y) { y = Mod <fmod = 1> (x, z) }

(float[2, 3] x, float[3] z) => (float[] y) <float low = {0.3}, float high = {0.6}>
{ a = Less(x, z) b = Where(a, x, low) c = Sub(b, low) d = PRelu(c, z) y = Clip(d, low, high) }

(float[2, 3] x, float[2, 3, 4] z) => (float[] y) { y = MatMul (x, z) }

(float[2, 3] x) => (float[] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {7, 8}>
{ a = MatMul(x, w) y = Add(b, a) }

(float[3, 2] x) => (float[] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {7, 8}>
{ y = Gemm <transA = 1, alpha = 0.5, beta = 2.0> (x, w, b) }

(float[2, 3] x, float[4, 3] z, float[2, 4] c) => (float[] y) { y = Gemm <transB = 1, beta = 2.0> (x, z, c) }

(float[2, 3] x, float[4, 3] z) => (float[] y) { y = Einsum <equation = "ij,kj->ki"> (x, z) }

(IMAGE, float[8, 2, 3, 3] w, float[8] b) => (float[] y)
{ y = Conv <group = 2, pads = [1, 0, 2, 1], strides = [2, 1], dilations = [1, 2]> (x, w, b) }

(IMAGE, float[4, 4, 2, 3] w) => (float[] y)
{ y = Conv <auto_pad = "SAME_UPPER", strides = [1, 2]> (x, w) }

(IMAGE, float[4, 2, 3, 3] w) => (float[] y)
{ y = ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2], output_padding = [1, 1]> (x, w) }

(IMAGE) => (float[] y) { y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [0, 1, 1, 1]> (x) }

(IMAGE) => (float[] y) { y = AveragePool <kernel_shape = [3, 3], pads = [0, 1, 1, 1]> (x) }

(IMAGE) => (float[] y)
{ y = AveragePool <kernel_shape = [3, 3], pads = [0, 1, 1, 1], count_include_pad = 1> (x) }

(IMAGE) => (float[] y) { a = GlobalAveragePool(x) b = GlobalMaxPool(x) y = Sub(a, b) }

(IMAGE, float[4] s, float[4] b, float[4] m, float[4] v) => (float[] y)
{ y = BatchNormalization (x, s, b, m, v) }

(float[2, 3, 4] x) => (float[] y) <float[4] s = {1, 2, 3, 4}, float[4] b = {5, 6, 7, 8}>
{ y = LayerNormalization (x, s, b) }

(float[2, 3, 4] x) => (float[] y) <float[4] s = {1, 2, 3, 4}> { y = RMSNormalization (x, s) }

(IMAGE, float[4] s, float[4] b) => (float[] y)
{ a = InstanceNormalization (x, s, b) y = GroupNormalization <num_groups = 2> (a, s, b) }

(float[4, 4, 6, 6] x) => (float[] y) { y = LRN <size = 3, alpha = 0.5> (x) }

(float[2, 3, 4] x) => (float[] y) { a = Softmax <axis = 1> (x) b = LogSoftmax (x) y = Add(a, b) }

(float[2, 3, 4] x) => (int64[] y) { a = ArgMax <axis = 1> (x) b = ArgMin <axis = 1> (x) y = Add(a, b) }

(float[2, 9] x) => (float[] y, int64[] i) <int64[1] k = {3}> { y, i = TopK (x, k) }

(float[3, 3] x) => (float[] y) <int64 axis = {1}> { a = CumSum (x, axis) y = Trilu <upper = 0> (a) }

(float[2, 3, 4] x) => (float[] y) <int64[4] s = {0, 1, -1, 4}>
{ a = Reshape(x, s) b = Transpose <perm = [3, 0, 1, 2]> (a) y = Flatten <axis = 2> (b) }

(float[2, 1, 3] x) => (float[] y) <int64[1] one = {1}, int64[2] ends = {0, -1}>
{ a = Squeeze(x, one) y = Unsqueeze(a, ends) }

(float[2, 1, 3] x) => (float[] y) <int64[2] s = {4, 1}, int64[3] r = {1, 2, 1}>
{ a = Expand(x, s) y = Tile(a, r) }

(float[2, 6] x) => (float[] y, float[] z) <int64[2] s = {2, 4}>
{ a, b = Split <axis = 1> (x, s) c, d = Split <axis = 0, num_outputs = 2> (b)
y = Concat <axis = -1> (b, a) z = Sub(c, d) }

(float[4, 6] x) => (float[] y)
<int64[2] s = {1, -3}, int64[2] e = {9, -1}, int64[2] a = {0, -1}, int64[2] t = {2, 1}>
{ y = Slice(x, s, e, a, t) }

(float[4, 6] x) => (float[] y) <int64 one = {1}, int64[2] few = {2, 0}, int64[2, 2] more = {0, -1, 1, 2}>
{ a = Gather(x, few) b = Gather <axis = 1> (a, more) y = Gather <axis = 2> (b, one) }

(float[2, 3] x) => (float[] y) <float[3, 2] table = {1, 2, 3, 4, 5, 6}, float two = {2.0}>
{ a = Mul(x, two) b = Cast <to = 7> (a) y = Gather(table, b) }

(float[2, 3] x) => (float[] y, float[] z) <int64[2, 2] e = {0, -1, 1, 2}, int64[2, 2] p = {1, 2, 0, 0}>
{ y = GatherElements <axis = 1> (x, e) z = GatherND(x, p) }

(float[2, 3] x) => (float[] y)
<int64[4] p = {0, 1, 2, 0}, float v = {5.0}, int64[2] q = {1, 2}, int64[1] last = {-1}>
{ a = Pad(x, p, v) y = Pad <mode = "reflect"> (a, q, , last) }

(IMAGE) => (float[] y, float[] z) <int64[4] s = {2, 4, 9, 4}, float[4] f = {1, 1, 2, 2}>
{ y = Resize <mode = "linear"> (x, , , s) z = Resize <mode = "nearest", nearest_mode = "floor",
coordinate_transformation_mode = "asymmetric"> (x, , f) }

(IMAGE) => (float[] y, float[] z)
{ y = DepthToSpace <blocksize = 2> (x) z = DepthToSpace <blocksize = 2, mode = "CRD"> (x) }

(float[2] x) => (float[] y) { c = Constant <value_float = 2.0> () y = Mul(x, c) }

(float[n, 6] x) => (float[] y, int64[] r)
<int64 none = {0}, int64 two = {2}, int64[1] first = {0}, int64[1] second = {1}, int64[1] rest = {-1}>
{ s = Shape(x) n0 = Gather(s, none) n1 = Mul(n0, two) r = Range(none, n1, two) a = Slice(s, first, second)
b = ConstantOfShape(s) c = Concat <axis = 0> (a, second, rest) d = Add(x, b) y = Reshape(d, c) }

(float[n, 6] x) => (float[] y, float[] f)
<int64[1] two = {2}, int64[2] other = {5, -1}, int64[2] ones = {1, 1}, int64[1] none = {0}>
{ s = Shape(x) e = Equal(other, s) w = Where(e, ones, s) m = Max(w, s) a = Expand(x, m) p = ReduceProd(s)
 h = Div(p, two) q = Squeeze(h, none) u = Unsqueeze(q, none) c = Concat <axis = 0> (u, two) y = Reshape(a, c)
 b = Sub(h, two) d = Min(b, h) g = Cast <to = 1> (d) f = Mul(g, g) }
""".replace("IMAGE", IMAGE).split("\n\n"),
]


def model_of(text: str, opset: int = OPSET) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {text}')


def drawn(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs in (0, 1), for which all functions of the table are defined. Symbolic sizes are 5."""
    rng = np.random.default_rng(0)
    return {
        each.name: rng.uniform(0.05, 0.95, [dim.dim_value or 5 for dim in each.type.tensor_type.shape.dim])
        .astype(np.float32)
        for each in model.graph.input
    }  # fmt: skip


def graph_of(path: Path) -> dict[str, int]:
    """The number of calls of each function in the module."""
    from benchmarks.peers.onnx_torch.trace import module_of

    found: dict[str, int] = {}
    for node in module_of(path).graph.nodes:
        if node.op.startswith("call"):
            name = getattr(node.target, "__name__", str(node.target))
            found[name] = found.get(name, 0) + 1
    return found


def outputs(model: onnx.ModelProto, folder: Path) -> tuple[Path, list[Any], list[Any]]:
    """The model's file, torch's outputs, and the expected ones."""
    path, feeds = folder / "g.onnx", drawn(model)
    onnx.save(model, path)
    found = list(PEER["torch"].load(path, 1)(feeds).values())
    return path, found, ReferenceEvaluator(model).run(None, feeds)


@needs_torch
@pytest.mark.parametrize("text", GRAPHS)
def test_operators_match_onnx(text: str, tmp_path: Path) -> None:
    _, found, expected = outputs(model_of(text), tmp_path)
    for got, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)
        assert got.shape == right.shape


@needs_torch
def test_every_operator_of_the_table_is_tested() -> None:
    from benchmarks.peers.onnx_torch.ops import OPS

    tested = {node.op_type for text in GRAPHS for node in model_of(text).graph.node}
    assert set(OPS) <= tested


@needs_torch
def test_old_operator_sets(tmp_path: Path) -> None:
    """Axes were attributes, and a softmax reduced all dims from its axis on."""
    text = (
        "(float[2, 3, 1, 1] x) => (float[] y) { a = Softmax (x) b = Squeeze <axes = [2, 3]> (a)"
        " c = Unsqueeze <axes = [0]> (b) y = Slice <starts = [1], ends = [3], axes = [2]> (c) }"
    )
    path = tmp_path / "g.onnx"
    model = model_of(text, 9)
    onnx.save(model, path)
    x = drawn(model)["x"]
    (found,) = PEER["torch"].load(path, 1)({"x": x}).values()
    soft = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, soft.reshape(1, 2, 3)[:, :, 1:], rtol=1e-5)


@needs_torch
def test_norms_scales_and_shifts_are_folded_into_convolutions(tmp_path: Path) -> None:
    vectors = "".join(f", float[4] {name} = {{0.5, 1.5, 2.5, 3.5}}" for name in "bmv")
    text = (
        f"({IMAGE}) => (float[] y) <float[4, 4, 1, 1] w = {{{', '.join(map(str, range(16)))}}}{vectors},"
        " float[4, 1, 1] c = {1, 2, 3, 4}> { a = Conv(x, w) n = BatchNormalization(a, b, b, m, v)"
        " d = Mul(c, n) e = Add(d, c) f = Relu(e) y = Add(f, x) }"
    )
    path, (found,), (expected,) = outputs(model_of(text), tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert graph_of(path) == {"contiguous": 1, "conv2d": 1, "relu_": 1, "add_": 1}


GELUS = {
    "by erf": "{ a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }",
    "half first": "{ h = Mul(half, x) a = Div(x, root) b = Erf(a) c = Add(one, b) y = Mul(h, c) }",
    "by tanh": "{ a = Pow(x, three) b = Mul(a, k) c = Add(x, b) d = Mul(c, r) e = Tanh(d) f = Add(e, one)"
    " g = Mul(x, half) y = Mul(g, f) }",
}


@needs_torch
@pytest.mark.parametrize("form", GELUS)
def test_activations_are_recognised_in_any_form(form: str, tmp_path: Path) -> None:
    constants = (
        "<float root = {1.41421356}, float one = {1.0}, float half = {0.5}, float three = {3.0},"
        " float k = {0.044715}, float r = {0.79788456}>"
    )
    text = f"(float[2, 3] x) => (float[] y) {constants} {GELUS[form]}"
    path, (found,), (expected,) = outputs(model_of(text), tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert graph_of(path) == {"gelu": 1}
    other = model_of(text.replace("half = {0.5}", "half = {0.6}"))
    path, (found,), (expected,) = outputs(other, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert "gelu" not in graph_of(path)


@needs_torch
def test_attention_becomes_scaled_dot_product_attention(tmp_path: Path) -> None:
    text = (
        "(float[1, 2, 5, 4] q, float[1, 2, 7, 4] k, float[1, 2, 7, 4] v, float[5, 7] m) => (float[] y)"
        "<float four = {4.0}> { t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul(q, t) b = Div(a, four)"
        " c = Add(m, b) s = Softmax(c) y = MatMul(s, v) }"
    )
    path, (found,), (expected,) = outputs(model_of(text), tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert graph_of(path) == {"permute": 1, "transpose": 1, "scaled_dot_product_attention": 1}


@needs_torch
def test_values_with_other_readers_are_not_overwritten(tmp_path: Path) -> None:
    text = (
        "(float[2, 3] x, float[3] z) => (float[] y, float[] u)"
        "{ a = Sub(x, z) u = Relu(a) b = Add(z, x) y = Add(a, b) }"
    )
    path, found, expected = outputs(model_of(text), tmp_path)
    for got, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6)
    assert graph_of(path) == {"sub": 1, "relu": 1, "add": 1, "add_": 1}


@needs_torch
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[2] x) => (float[] y) { y = Hardmax (x) }", "no operator Hardmax here"),
        (
            "(float[2] x) => (float[] y) { y = com.microsoft.Gelu (x) }",
            "no operator com.microsoft::Gelu here",
        ),
        (
            "(float[2] x) => (float[] y) { a = Cast <to = 7> (x) y = Reshape(x, a) }",
            "depends on data",
        ),
    ],
)
def test_unknown_operators_are_named(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=reason):
        outputs(model_of(text), tmp_path)


def measured(name: str, folder: Path) -> Result:
    def write(_: Path) -> Path:
        onnx.save(perceptron(), folder / "perceptron.onnx")
        return folder / "perceptron.onnx"

    case = Case("perceptron", write, lambda: drawn(perceptron()))
    (result,) = measure_case(case, [OURS, PEER[name]], [1], seconds=0.01, memory=False, limit=300)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "torch-compiled", "tinygrad"])
def test_peers_run_a_perceptron(name: str, tmp_path: Path) -> None:
    if not PEER[name].installed:
        pytest.skip(f"{name} is not installed")
    result = measured(name, tmp_path)
    if name in result.failures:  # if there is no compiler, which it needs
        assert "compile" in result.failures[name].lower()
        pytest.skip(result.failures[name])
    assert result.errors[name] <= 1
    assert result.times[name].median > 0


def test_tinygrad_names_its_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(RuntimeError, match="tinygrad compiles with clang, which is not on this machine"):
        tinygrad.load(Path("model.onnx"), 1)
