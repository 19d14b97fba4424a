"""dlc as an ONNX backend, and models with data-dependent sizes."""

from __future__ import annotations

import unittest

import dlc_frontend_onnx.backend as dlc_backend
import numpy as np
import pytest
from dlc_frontend_onnx.specialized import MAX_SPECIALIZATIONS, CallableModel
from dlc_frontend_onnx.testing import suite
from dlc_frontend_onnx.testing.compare import parse
from onnx import helper, numpy_helper
from onnx.backend.base import Backend
from onnx.reference import ReferenceEvaluator

from dlc_core.diag import DlcError, ModelError, UnsupportedError, UsageError

ADD = "g (float[n] x, float[n] y) => (float[n] z) { z = Add(x, y) }"
RESHAPE = (
    "g (float[a,b] x, int64[k] shape, int64 one) => (float[] y) { r = Reshape(x, shape)  y = Identity(r) }"
)


@pytest.fixture(autouse=True)
def on_the_reference(monkeypatch):
    monkeypatch.setenv("DLC_ONNX_TARGET", "reference")


def floats(*values):
    return np.array(values, np.float32)


def reshaping():
    model = parse(RESHAPE)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def test_a_model_is_prepared_once_and_run_often():
    rep = dlc_backend.prepare(parse(ADD))
    for n in (1, 3):
        x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
        for inputs in ([x, y], (x, y), {"y": y, "x": x}):
            (z,) = rep.run(inputs)
            np.testing.assert_array_equal(z, x + y)
    with pytest.raises(UsageError, match="3 inputs given, 2 needed"):
        rep.run([x, x, x])


def test_the_module_and_the_class_are_the_same_backend():
    assert issubclass(dlc_backend.DlcBackend, Backend)
    x = floats(1, 2)
    for backend in (dlc_backend, dlc_backend.DlcBackend):
        assert backend.is_compatible(parse(ADD))
        (z,) = backend.run_model(parse(ADD), [x, x])
        np.testing.assert_array_equal(z, 2 * x)


def test_devices_are_targets():
    for device in ("CPU", "reference", "REFERENCE:0"):
        assert dlc_backend.supports_device(device), device
    for device in ("TPU", "reference:1", "nonsense -x=1"):
        assert not dlc_backend.supports_device(device), device
    with pytest.raises(UsageError, match="no device 'TPU'"):
        dlc_backend.prepare(parse(ADD), "TPU")
    rep = dlc_backend.prepare(parse(ADD), "CPU", target="reference", opt_level=0, rtol=1e-3)
    assert rep.model.whole.target.kind.name == "reference"
    with pytest.raises(UsageError, match="no option 'speed'"):
        dlc_backend.prepare(parse(ADD), speed=1)


def test_cpu_is_the_best_target_by_default(monkeypatch):
    import dlc_core as dlc

    monkeypatch.delenv("DLC_ONNX_TARGET")
    rep = dlc_backend.prepare(parse(ADD))
    best = max((kind for kind in dlc.targets().values() if not kind.problem()), key=lambda k: k.host_rank)
    assert rep.model.whole.target.kind is best


def test_run_node():
    x = floats(3, 1, 2)
    values, indices = dlc_backend.run_node(
        helper.make_node("TopK", ["x", "k"], ["v", "i"]), [x, np.array([2])]
    )
    assert values.tolist() == [3, 2]
    assert indices.tolist() == [0, 2]
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    (y,) = dlc_backend.run_node(node, {"x": x, "high": np.float32(2)})
    assert y.tolist() == [2, 1, 2]
    old = helper.make_node("Softmax", ["x"], ["y"])
    (y,) = dlc_backend.run_node(old, [np.ones((2, 2, 2), np.float32)], opset_version=9)
    np.testing.assert_allclose(y, np.full((2, 2, 2), 0.25))
    fused = helper.make_node("FusedMatMul", ["a", "a"], ["y"], domain="com.microsoft", alpha=2.0)
    (y,) = dlc_backend.run_node(fused, [np.eye(2, dtype=np.float32)])
    assert y.tolist() == [[2, 0], [0, 2]]
    with pytest.raises(UsageError, match="1 inputs given, the node has 2"):
        dlc_backend.run_node(fused_pair(), [x])


def fused_pair():
    return helper.make_node("Add", ["a", "b"], ["y"])


def test_unsupported_models_are_errors_not_skips():
    unknown = parse("g (float[n] x) => (float[n] y) { y = acme.Gelu(x) }", domains=', "acme" : 1')
    assert not dlc_backend.is_compatible(unknown)
    with pytest.raises(UnsupportedError) as caught:
        dlc_backend.prepare(unknown)
    assert not isinstance(caught.value, unittest.SkipTest)
    assert not dlc_backend.is_compatible(b"no model")
    with pytest.raises(ModelError):
        dlc_backend.prepare(b"no model")


def test_data_dependent_sizes_are_compiled_once_per_rank():
    model = CallableModel(reshaping(), "reference")
    assert model.whole is None
    x, one = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(1)
    first = model({"x": x, "shape": np.array([3, -1]), "one": one})[0]
    np.testing.assert_array_equal(first, x.reshape(3, 2))
    assert model.decisive == ()
    made = model.latest
    assert model({"x": x, "shape": np.array([2, -1]), "one": one})[0].shape == (2, 3)
    with pytest.raises(UsageError, match="the inputs do not fit"):
        model({"x": x, "shape": np.array([4, -1]), "one": one})
    np.testing.assert_array_equal(model({"x": x, "shape": np.array([-1, 6]), "one": one})[0], x.reshape(1, 6))
    assert model.latest is made
    assert model({"x": 2 * x, "shape": np.array([3, -1]), "one": one + 1})[0].tolist() == [
        [0, 2],
        [4, 6],
        [8, 10],
    ]
    assert model.latest is made
    np.testing.assert_array_equal(model({"x": x, "shape": np.array([6]), "one": one})[0], x.ravel())
    assert model.latest is not made
    model({"x": x, "shape": np.array([3, -1]), "one": one})
    assert model.latest is made
    assert dlc_backend.is_compatible(reshaping())


SIZED = {
    "Reshape": ("y = Reshape(x, k)", [[6, 4], [2, 12], [24, 1]]),
    "Expand": ("z = Reshape(x, one) y = Expand(z, k)", [[2, 3], [5, 1]]),
    "Tile": ("y = Tile(x, k)", [[2, 3], [1, 2]]),
    "Slice": ("s = Constant <value_ints = [0, 1]> () y = Slice(x, s, k)", [[2, 3], [3, 9], [1, 2]]),
    "Pad": ("y = Pad(x, k)", [[1, 2, 3, 4], [4, 3, 2, 1]]),
    "TopK": ("y, i = TopK(x, k)", [[1], [4]]),
    "ConstantOfShape": ("y = ConstantOfShape(k)", [[2, 3], [4, 5]]),
    "Resize": ('y = Resize <mode = "nearest"> (x, , , k)', [[6, 8], [12, 4], [2, 3]]),
    "Split": ("y, z = Split(x, k)", [[2, 4], [5, 1]]),
}


@pytest.mark.parametrize("op", SIZED)
def test_one_compilation_serves_all_sizes(op):
    body, values = SIZED[op]
    rows = 4 if op != "Split" else 6
    proto = parse(f"""g (float[{rows}, {24 // rows}] x, int64[{len(values[0])}] k) => (float[a, b] y)
        <int64[2] one = {{-1, 1}}> {{ {body} }}""")
    if op == "Expand":
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
        proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    model = CallableModel(proto)
    assert model.whole is not None
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    x = np.random.default_rng(0).random([dim.dim_value for dim in dims], np.float32)
    for value in values:
        feeds = {"x": x, "k": np.array(value)}
        (expected, *_) = ReferenceEvaluator(proto).run(None, feeds)
        np.testing.assert_array_equal(model(feeds)[0], expected)
    assert model.latest is model.whole


def test_k_larger_than_the_axis_is_refused():
    model = CallableModel(parse("g (float[4] x, int64[1] k) => (float[n] y) { y, i = TopK(x, k) }"))
    assert model({"x": floats(1, 2, 3, 4), "k": np.array([2])})[0].tolist() == [4, 3]
    with pytest.raises(DlcError):
        model({"x": floats(1, 2, 3, 4), "k": np.array([5])})


@pytest.mark.parametrize(
    ("body", "of_w", "shapes"),
    [
        (
            "float[1, c, n, n] x, float[4, c, 1, 1] w) => (float[a, b, n, n] y) { y = Conv(x, w) }",
            (4, 2, 1, 1),
            [(1, 2, 5, 5), (1, 2, 3, 3)],
        ),
        (
            "float[n, 2] x, float[2, 3] w) => (float[n, 3] y) <float[2, 1] z = {1, 2}> { y = Gemm(x, w, z) }",
            (2, 3),
            [(2, 2)],
        ),
        ("float[n] x, float[m] w) => (float[a] y) { y = Add(x, w) }", (3,), [(3,), (1,)]),
        (
            "float[1, 1, n, n] x, float[1, 4, 3, c] w) => (float[a, b, d, e] y) { y = GridSample(x, w) }",
            (1, 4, 3, 2),
            [(1, 1, 6, 6), (1, 1, 4, 4)],
        ),
    ],
    ids=["Conv", "Gemm", "Add", "GridSample"],
)
def test_dims_that_must_be_static_are_compiled_per_shape(body, of_w, shapes):
    proto = parse(f"g ({body}")
    assert dlc_backend.is_compatible(proto)
    model = CallableModel(proto, "reference")
    assert model.whole is None
    rng, made = np.random.default_rng(0), []
    w = rng.random(of_w, np.float32)
    for shape in (*shapes, shapes[0]):
        feeds = {"x": rng.random(shape, np.float32), "w": w}
        (expected,) = ReferenceEvaluator(proto).run(None, feeds)
        np.testing.assert_allclose(model(feeds)[0], expected, rtol=1e-4, atol=1e-5)
        made.append(model.latest)
    assert len(set(made)) == len(shapes)
    assert made[-1] is made[0]


def test_a_refused_shape_does_not_affect_later_calls():
    model = CallableModel(parse("g (float[n] x, float[m] w) => (float[n] y) { y = Add(x, w) }"), "reference")
    with pytest.raises(ModelError, match="does not fit its inputs"):
        model({"x": floats(1, 2), "w": floats(1, 2, 3)})
    assert model({"x": floats(1, 2), "w": floats(1, 2)})[0].tolist() == [2, 4]


def test_invalid_feeds_are_refused_before_compiling():
    model = CallableModel(reshaping(), "reference")
    x, shape, one = np.ones((2, 3), np.float32), np.array([3, 2]), np.array(1)
    with pytest.raises(UsageError, match="'shape' is missing"):
        model({"x": x, "one": one})
    with pytest.raises(UsageError, match="unknown input 'z'"):
        model({"x": x, "shape": shape, "one": one, "z": x})
    with pytest.raises(UsageError, match="'shape' is int32, int64 is needed"):
        model({"x": x, "shape": shape.astype(np.int32), "one": one})
    with pytest.raises(UsageError, match=r"'shape' has shape \(1, 2\)"):
        model({"x": x, "shape": shape[None], "one": one})


def test_least_recently_used_forms_are_dropped():
    model = CallableModel(reshaping(), "reference")
    x, one = np.ones((1, MAX_SPECIALIZATIONS + 2), np.float32), np.array(1)
    for parts in range(MAX_SPECIALIZATIONS + 2):
        shape = np.ones(parts + 1, np.int64)
        shape[-1] = -1
        assert model({"x": x, "shape": shape, "one": one})[0].shape == (*shape[:-1], MAX_SPECIALIZATIONS + 2)
    assert len(model._made) == MAX_SPECIALIZATIONS


def test_an_initializer_among_the_inputs_may_be_fed():
    model = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(floats(2, 3), "w"))
    rep = dlc_backend.prepare(model)
    x = floats(1, 10)
    assert rep.run([x])[0].tolist() == [2, 30]
    assert rep.run([x, floats(4, 5)])[0].tolist() == [4, 50]
    assert rep.run([x])[0].tolist() == [2, 30]
    assert [info.name for info in rep.model.defaults] == ["w"]


def test_sequences_and_optionals_are_inputs_and_outputs():
    model = parse(
        """
        g (seq(float[n]) s, int64 at, optional(float[n]) o)
            => (seq(float[n]) longer, float[n] one, bool there) {
            one = SequenceAt(s, at)
            longer = SequenceInsert(s, one, at)
            there = OptionalHasElement(o)
        }
        """
    )
    rep = dlc_backend.prepare(model)
    a, b, c = floats(1, 2), floats(3), floats(4, 5, 6)
    longer, one, there = rep.run([[a, b, c], np.array(1), None])
    assert [item.tolist() for item in longer] == [[1, 2], [3], [3], [4, 5, 6]]
    assert one.tolist() == [3]
    assert not there
    made = rep.model.latest
    assert rep.run([[c[:2], b, c], np.array(1), None])[0][0].tolist() == [4, 5]
    assert rep.model.latest is made
    longer, one, there = rep.run([[a], np.array(-1), b])
    assert [item.tolist() for item in longer] == [[1, 2], [1, 2]]
    assert there
    assert dlc_backend.is_compatible(model)
    with pytest.raises(UsageError, match="input 's' is a ndarray"):
        rep.run([a, np.array(0), None])
    with pytest.raises(UsageError, match=r"input 's\[1\]' is float64, float32 is needed"):
        rep.run([[a, a.astype(float)], np.array(0), None])


def test_a_sequence_is_mapped():
    model = parse(
        """
        g (seq(float[n]) s, float[1] k) => (seq(float[n]) sums, seq(float[n]) products) {
            sums, products = SequenceMap <body = each (float[n] x, float[1] y) => (float[n] a, float[n] b) {
                a = Add(x, y)
                b = Mul(x, y)
            }> (s, k)
        }
        """
    )
    rep = dlc_backend.prepare(model)
    sums, products = rep.run([[floats(1, 2), floats(3)], floats(10)])
    assert [item.tolist() for item in sums] == [[11, 12], [13]]
    assert [item.tolist() for item in products] == [[10, 20], [30]]


def test_an_optional_output():
    empty = parse(
        "g (float[n] x, optional(float[n]) o) => (float[n] y, optional(float[n]) p)"
        "{ y = Abs(x) p = Identity(o) }"
    )
    x = floats(-1)
    assert dlc_backend.run_model(empty, [x, None])[1] is None
    assert dlc_backend.run_model(empty, [x, x])[1].tolist() == [-1]


def test_cases_of_onnx_run_by_its_backend_test():
    cases = suite.cases("relu", "add")
    assert len(cases) > 2
    for case in cases:
        rep = dlc_backend.prepare(case.model, "CPU")
        for inputs, outputs in case.data_sets:
            np.testing.assert_array_equal(rep.run(inputs)[0], outputs[0])
