"""Strings, random numbers and data-dependent sizes, which are computed on the host."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx import backend
from dlc_frontend_onnx.ops.images import IMAGE_DECODE
from dlc_frontend_onnx.testing.compare import parse, run
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dlc_core.diag import DlcError, RuntimeFailure, UsageError
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType
from dlc_core.op.reference import apply


def texts(*values):
    made = np.empty(len(values), object)
    made[:] = values
    return made


def check(text, feeds, *, opset=20, domains=""):
    model = parse(text, opset=opset, domains=domains)
    expected = ReferenceEvaluator(model).run(None, feeds)
    for found in (run(model, feeds), backend.run_model(model, feeds)):
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape
            assert a.tolist() == b.tolist()


def test_texts_and_numbers_in_one_model():
    text = """g (string[n] t, float[n] x) => (string[2,n] y, float[n] z, int64[n] k, string[?,?] p) {
        w = Constant <value_strings = ["a", "b"]> ()
        e = Constant <value_string = "b,c"> ()
        same = Equal(t, e)
        u = Exp(x)
        z = Where(same, x, u)
        j = StringConcat(t, e)
        two = Constant <value_ints = [1, -1]> ()
        r = Reshape(j, two)
        y = Concat <axis = 0> (r, r)
        p, k = StringSplit <delimiter = ","> (t)
    }"""
    feeds = {"t": texts("a", "b,c", ""), "x": np.float32([0, 1, 2])}
    joined = ["ab,c", "b,cb,c", "b,c"]
    parts = [["a", ""], ["b", "c"], ["", ""]]
    for found in (run(parse(text, opset=20), feeds), backend.run_model(parse(text, opset=20), feeds)):
        assert [found[k].tolist() for k in (0, 2, 3)] == [[joined, joined], [1, 2, 1], parts]
        np.testing.assert_allclose(found[1], [1, 1, np.exp(2)], rtol=1e-6)


def test_casts_from_and_to_texts():
    text = """g (string[3] t, int32[3] x) => (float[3] y, string[3] z) {
        y = Cast <to = 1> (t)
        z = Cast <to = 8> (x)
    }"""
    found = backend.run_model(parse(text), {"t": texts("1.5", "-INF", "NaN"), "x": np.int32([1, -2, 3])})
    np.testing.assert_array_equal(found[0], np.float32([1.5, -np.inf, np.nan]))
    assert found[1].tolist() == ["1", "-2", "3"]
    with pytest.raises(RuntimeFailure, match="is no float32"):
        backend.run_model(parse(text), {"t": texts("1", "2", "x"), "x": np.int32([1, 2, 3])})


def test_invalid_strings_are_refused():
    model = parse("g (string[n] t) => (string[n] y) { y = StringConcat(t, t) }", opset=20)
    rep = backend.prepare(model)
    assert rep.run([np.array(["a", "b"])])[0].tolist() == ["aa", "bb"]
    for wrong in (np.array([1, 2]), np.array(["a", 1], object)):
        with pytest.raises(UsageError, match="strings are needed"):
            rep.run([wrong])


def test_an_invalid_regular_expression_is_refused():
    with pytest.raises(DlcError, match="regular expression"):
        run(parse('g (string[n] t) => (bool[n] y) { y = RegexFullMatch <pattern = "("> (t) }', opset=20), {})


def test_seeded_draws_equal_the_reference():
    text = "g () => (float[3,2] y) { y = RandomNormal <shape = [3, 2], seed = 4.0, mean = 1.0> () }"
    (expected,) = ReferenceEvaluator(parse(text)).run(None, {})
    np.testing.assert_allclose(backend.run_model(parse(text), {})[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["RandomUniform <low = 2.0, high = 4.0, {}>", "RandomNormal <mean = 3.0, {}>"])
def test_draws_without_a_seed_differ(op):
    rep = backend.prepare(parse(f"g () => (float[4096] y) {{ y = {op.format('shape = [4096]')} () }}"))
    (first,), (second,) = rep.run([]), rep.run([])
    assert first.dtype == np.float32
    assert abs(first.mean() - 3) < 0.1
    assert (first != second).any()


def test_draws_of_classes_follow_their_probabilities():
    rep = backend.prepare(
        parse("g (float[2,3] x) => (int32[2,4096] y) { y = Multinomial <sample_size = 4096> (x) }")
    )
    (found,) = rep.run([np.float32([[0, np.log(2), np.log(5)], [0, -np.inf, -np.inf]])])
    assert found.dtype == np.int32
    np.testing.assert_allclose(np.bincount(found[0], minlength=3) / 4096, [0.125, 0.25, 0.625], atol=0.04)
    assert (found[1] == 0).all()


def test_dropout_in_training_drops_and_scales():
    text = """g (float[1000] x, bool t) => (float[1000] y, bool[1000] m) {
        r = Constant <value_float = 0.25> ()
        y, m = Dropout <seed = 3> (x, r, t)
    }"""
    rep = backend.prepare(parse(text))
    x = np.ones(1000, np.float32)
    y, m = rep.run([x, np.array(True)])
    assert 0.65 < m.mean() < 0.85
    np.testing.assert_allclose(y, m * np.float32(4 / 3), rtol=1e-6)
    y, m = rep.run([x, np.array(False)])
    assert m.all()
    assert (y == x).all()


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] x) => (int64[2,n] y) { y = NonZero(x) }",
        """g (float[2,3] x, bool[3] c) => (float[2,n] y) {
            d = Relu(x)  z = Compress <axis = 1> (d, c)  y = Add(z, z)
        }""",
        """g (float[2,3] x) => (float[n] y, int64[n] a, int64[m] b, int64[n] c) {
            d = Relu(x)  s = Shape <start = 1, end = 1> (x)  one = Constant <value_ints = [-1]> ()
            f = Reshape(d, one)  y, a, b, c = Unique <sorted = 0> (f)
        }""",
    ],
)
def test_data_dependent_results(text):
    x = np.float32([[0, 1, 1], [-1, 2, 0]])
    check(text, {"x": x, "c": np.array([True, False, True])} if "bool[3] c" in text else {"x": x}, opset=18)


def test_string_labels():
    text = """g (string[3] t) => (int64[3] y) {
        y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [4, 5], default_int64 = 9> (t)
    }"""
    check(text, {"t": texts("b", "z", "a")}, domains=', "ai.onnx.ml" : 4')


def test_invalid_images_are_refused():
    pytest.importorskip("PIL")
    given = np.frombuffer(b"no picture", np.uint8)
    with pytest.raises(RuntimeFailure, match="cannot be decoded"):
        apply(IMAGE_DECODE, [given], {"pixels": "RGB"}, TensorType((1, 1, 3), DType("uint8")))


def test_strings_in_all_interfaces():
    node = helper.make_node("StringConcat", ["a", "b"], ["c"])
    (found,) = backend.run_node(node, [texts("x"), np.array(["y"])])
    assert found.tolist() == ["xy"]
    text = "g (string[2] a, string[2] w) => (string[2] y) { y = StringConcat(a, w) }"
    model = parse(text, opset=20)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.STRING, [2], [b"1", b"2"]))
    rep = backend.prepare(model)
    assert rep.run([texts("a", "b")])[0].tolist() == ["a1", "b2"]
    for more in ("3", "5", "3"):
        assert rep.run([texts("a", "b"), texts(more, "4")])[0].tolist() == ["a" + more, "b4"]
    items = "g (seq(string[2]) s) => (string[4] y) { y = ConcatFromSequence <axis = 0> (s) }"
    assert backend.run_model(parse(items), {"s": [texts("a", "b"), texts("c", "d")]})[0].tolist() == [*"abcd"]
