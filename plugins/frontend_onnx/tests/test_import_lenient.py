"""Models that break the standard or leave it open, with the meaning that ONNX Runtime gives them."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.specialized import CallableModel
from dlc_frontend_onnx.testing.compare import parse, run

from dlc_core.diag import DlcError, UnsupportedError

X = np.float32([[-2, -1, 0], [0.5, 1, 3]])


def one(body, opset=18, x=X, result="float"):
    """The result of a graph of one input and one output."""
    kind = {"float32": "float", "int32": "int32", "int64": "int64"}[x.dtype.name]
    dims = ", ".join(map(str, x.shape))
    (found,) = run(parse(f"g ({kind}[{dims}] x) => ({result}[] y) {{ {body} }}", opset), {"x": x})
    return found


def gelu(x):
    from math import erf

    return np.array([v * (1 + erf(v / 2**0.5)) / 2 for v in x.ravel()]).reshape(x.shape)


def test_com_microsoft_needs_no_import():
    found = one("y = com.microsoft.Gelu(x)")
    np.testing.assert_allclose(found, gelu(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(DlcError, match="operator set is not imported"):
        one("y = com.other.Gelu(x)")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("alhpa", "rename it to 'alpha' or remove it"), ("zzz", "hint: remove it in the model")],
)
def test_an_unknown_attribute_has_a_hint(name, hint):
    with pytest.raises(DlcError, match=f"has no attribute '{name}'") as caught:
        one(f"y = Elu<{name} = 2.0>(x)")
    assert hint in str(caught.value)
    assert "it has: alpha" in str(caught.value)


def test_ai_onnx_ml_needs_no_import():
    np.testing.assert_array_equal(one("y = ai.onnx.ml.Binarizer<threshold = 0.5>(x)"), (X > 0.5).astype("f"))


@pytest.mark.parametrize("opset", [7, 14])
def test_layer_normalization_before_opset_17(opset):
    weight = "s = Constant<value_floats = [1.0, 2.0, 3.0]>()"
    if opset < 12:
        weight = "s = Constant<value = float[3] {1.0, 2.0, 3.0}>()"
    found = one(f"{weight} y = LayerNormalization<axis = -1>(x, s)", opset)
    centred = X - X.mean(1, keepdims=True)
    wanted = centred / np.sqrt(X.var(1, keepdims=True) + 1e-5) * np.float32([1, 2, 3])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_shrink_of_integers_computes_with_floats():
    x = np.int32([-3, -2, -1, 0, 1, 2, 3])
    found = one("y = Shrink<lambd = 1.4, bias = 1.5>(x)", x=x, result="int32")
    assert found.tolist() == [-1, 0, 0, 0, 0, 0, 1]


def test_the_mask_of_an_old_dropout_is_zero():
    text = "g (float[2, 3] x) => (float[2, 3] y, {kind}[2, 3] m) {{ y, m = Dropout(x) }}"
    for opset, kind, value in ((7, "float", 0), (10, "bool", False), (13, "bool", True)):
        y, mask = run(parse(text.format(kind=kind), opset), {"x": X})
        np.testing.assert_array_equal(y, X)
        np.testing.assert_array_equal(mask, np.full_like(mask, value))


def test_nearest_of_opset_10_rounds_up_where_an_axis_shrinks():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    scales = "s = Constant<value = float[2] {{{}, {}}}>()"
    found = one(scales.format(1, 0.6) + ' y = Resize<mode = "nearest">(x, s)', 10, x)
    np.testing.assert_array_equal(found, x[:, [0, 2]])
    found = one(scales.format(2, 0.6) + ' y = Resize<mode = "nearest">(x, s)', 10, x)
    np.testing.assert_array_equal(found, x[[0, 0, 1, 1]][:, [0, 2]])
    text = 'g (float[2, 4] x, float[2] s) => (float[n, m] y) { y = Resize<mode = "nearest">(x, s) }'
    model = CallableModel(parse(text, 10).SerializeToString(), "reference")
    for factor, columns in ((0.6, [0, 2]), (1.5, [0, 0, 1, 2, 2, 3])):
        (found,) = model({"x": x, "s": np.float32([1, factor])})
        np.testing.assert_array_equal(found, x[:, columns])


def test_an_axis_that_squeeze_names_twice_counts_once():
    x = X.reshape(1, 2, 1, 3)
    found = one("a = Constant<value_ints = [2, 0, -2]>() y = Squeeze(x, a)", x=x)
    np.testing.assert_array_equal(found, X)


def test_the_number_of_an_iteration_may_be_a_vector():
    body = """b (int64[1] i, bool[1] go, int64[1] s) => (bool[1] more, int64[1] sum, int64[1] all)
              { more = Identity(go) sum = Add(s, i) all = Mul(i, i) }"""
    text = f"""g (int64[1] k, int64[1] s) => (int64[1] sum, int64[n, 1] all)
               {{ sum, all = Loop<body = {body}>(k, , s) }}"""
    for trips in (0, 3):
        total, squares = run(parse(text), {"k": np.int64([trips]), "s": np.int64([10])})
        assert total.tolist() == [10 + sum(range(trips))]
        np.testing.assert_array_equal(squares, np.arange(trips).reshape(-1, 1) ** 2)


@pytest.mark.parametrize("fed", [False, True])
def test_a_loop_with_a_constant_number_of_iterations_takes_a_vector_too(fed):
    body = """b (int64[1] i, bool go, int64[1] s) => (bool more, int64[m] grown)
              { more = Identity(go) grown = Concat<axis = 0>(s, i) }"""
    text = f"""g (int64[1] s) => (int64[n] y)
               {{ k = Constant<value_ints = [3]>() y = Loop<body = {body}>(k, , s) }}"""
    (found,) = run(parse(text), {"s": np.int64([7])})
    assert found.tolist() == [7, 0, 1, 2]


def test_models_whose_only_outputs_are_empty():
    text = "g (float[2] x) => (seq(float[n]) s) { s = SequenceEmpty<dtype = 1>() }"
    assert CallableModel(parse(text).SerializeToString(), "reference")({"x": X[0, :2]}) == ([],)
    with pytest.raises(UnsupportedError, match="no output of the graph holds a tensor"):
        run(parse(text), {"x": X[0, :2]})


def test_reshape_by_an_attribute():
    np.testing.assert_array_equal(one("y = Reshape<shape = [0, -1, 1]>(x)", 1), X.reshape(2, 3, 1))


OLD = {
    "Affine<alpha = 2.0, beta = 1.0>": lambda x: 2 * x + 1,
    "ScaledTanh<alpha = 2.0, beta = 3.0>": lambda x: 2 * np.tanh(3 * x),
    "ParametricSoftplus<alpha = 2.0, beta = 3.0>": lambda x: 2 * np.log1p(np.exp(3 * x)),
    "ThresholdedRelu<alpha = 0.7>": lambda x: np.where(x > np.float32(0.7), x, 0),
}


@pytest.mark.parametrize("call", OLD)
def test_old_activations(call):
    name, _, attributes = call.partition("<")
    found = one(f"y = {name} <{attributes} (x)", 7)
    np.testing.assert_allclose(found, OLD[call](X), rtol=1e-5, atol=1e-6)


def test_image_scaler_and_crop():
    x = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
    found = one("y = ImageScaler<scale = 2.0, bias = [1.0, 2.0, 3.0]>(x)", 7, x)
    np.testing.assert_array_equal(found, 2 * x + np.float32([1, 2, 3]).reshape(3, 1, 1))
    np.testing.assert_array_equal(one("y = Crop<border = [1, 0, 2, 1]>(x)", 7, x), x[:, :, :3, 1:3])
    found = one("y = Crop<border = [1, 2, 0, 0], scale = [2, 3]>(x)", 7, x)
    np.testing.assert_array_equal(found, x[:, :, 2:4, 1:4])
    with pytest.raises(DlcError, match="the part lies in the image"):
        one("y = Crop<border = [1, 2, 0, 0], scale = [3, 3]>(x)", 7, x)


def test_products_with_empty_constants():
    """As a network with low-rank corrections of rank 0."""
    text = """g (float[2, 3] x) => (float[2, 3] y) <float[3, 0] a = {}, float[0, 3] b = {}>
              { l = MatMul(x, a) m = MatMul(l, b) y = Add(x, m) }"""
    (found,) = CallableModel(parse(text).SerializeToString(), "reference")({"x": X})
    np.testing.assert_array_equal(found, X)
