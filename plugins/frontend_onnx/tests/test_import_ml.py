"""Operators of ai.onnx.ml, and the optimizers of the preview of training."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.compare import check, main_of, parse, run
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dlc_core.diag import DlcError, UnsupportedError

RNG = np.random.default_rng(3)
KINDS = {
    "object": TensorProto.STRING,
    "string": TensorProto.STRING,
    "float32": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "float64": TensorProto.DOUBLE,
}


def model_of(op, feeds, outputs=("float32",), domain="ai.onnx.ml", version=5, **attrs):
    names = [f"y{index}" for index in range(len(outputs))]
    node = helper.make_node(op, list(feeds), names, domain=domain, **attrs)
    inputs = [
        helper.make_tensor_value_info(name, KINDS[str(value.dtype)], value.shape)
        for name, value in feeds.items()
    ]
    results = [helper.make_tensor_value_info(n, KINDS[kind], None) for n, kind in zip(names, outputs)]
    graph = helper.make_graph([node], "g", inputs, results)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(domain, version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def x_of(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Binarizer", {"threshold": 0.25}),
        ("Scaler", {"offset": [0.5, 1.0, -1.0], "scale": [2.0]}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Normalizer", {"norm": "MAX"}),
        (
            "LinearRegressor",
            {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.0], "intercepts": [1.0, 2.0], "targets": 2},
        ),
        ("FeatureVectorizer", {"inputdimensions": [3]}),
        ("Imputer", {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": 1.0}),
        ("Imputer", {"imputed_value_floats": [7.0], "replaced_value_float": float("nan")}),
    ],
)
def test_operators_on_rows(op, attrs):
    x = np.abs(x_of(4, 3))
    x[1, 1], x[2, 0] = 1.0, np.nan if op == "Imputer" else 0.0
    check(model_of(op, {"x": x}, version=1, **attrs), {"x": x})


def test_negative_rows_are_divided_by_their_greatest_value():
    x = np.array([[-4.0, -2.0], [0.0, 0.0]], np.float32)
    (found,) = run(model_of("Normalizer", {"x": x}, version=1, norm="MAX"), {"x": x})
    np.testing.assert_array_equal(found, [[2, 1], [0, 0]])


def test_labels_are_looked_up():
    x = np.array([[3, 5], [4, 3]])
    model = model_of(
        "LabelEncoder", {"x": x}, version=2, keys_int64s=[3, 4], values_floats=[0.5, 1.5], default_float=9.0
    )
    (found,) = run(model, {"x": x})
    assert found.tolist() == [[0.5, 9.0], [1.5, 0.5]]
    y = np.array([np.nan, 1.0], np.float32)
    model = model_of(
        "LabelEncoder", {"x": y}, ("int64",), version=2, keys_floats=[float("nan"), 2.0], values_int64s=[7, 8]
    )
    assert run(model, {"x": y})[0].tolist() == [7, -1]


@pytest.mark.parametrize(
    ("x", "attrs", "why"),
    [
        ([1.0], {"keys_strings": ["a"], "values_strings": ["b"]}, "keys of string for elements of float64"),
        (["1"], {"keys_int64s": [1], "values_int64s": [2]}, "keys of int64 for elements of string"),
        ([1], {"keys_floats": [1.5], "values_int64s": [2]}, "keys of float32 for elements of int64"),
        (
            [1],
            {"keys_int64s": [1], "values_int64s": [2], "default_tensor": np.array(["?"], object)},
            "a default of 1 elements of object for values of int64",
        ),
        (
            [1],
            {"keys_int64s": [1], "values_int64s": [2], "default_tensor": np.zeros(0, np.int64)},
            "a default of 0 elements",
        ),
        (
            [1],
            {"keys_int64s": [1], "values_tensor": np.array([2], np.int8), "default_int64": 300},
            "a constant of int8 cannot hold its values",
        ),
    ],
)
def test_invalid_label_encoders_are_refused(x, attrs, why):
    array = np.array(x, object if isinstance(x[0], str) else None)
    given = {n: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for n, v in attrs.items()}
    model = model_of("LabelEncoder", {"x": array}, ("int64",), version=4, **given)
    with pytest.raises(DlcError, match=why):
        main_of(model)


def test_categories_become_one_and_zeros():
    x = np.array([[2], [9]])
    (found,) = run(model_of("OneHotEncoder", {"x": x}, version=1, cats_int64s=[1, 2]), {"x": x})
    assert found.tolist() == [[[0, 1]], [[0, 0]]]


@pytest.mark.parametrize("kind", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifiers_of_three_classes(kind):
    x = x_of(5, 2)
    attrs = {"coefficients": x_of(6).tolist(), "intercepts": x_of(3).tolist(), "classlabels_ints": [4, 7, 9]}
    check(
        model_of("LinearClassifier", {"x": x}, ("int64", "float32"), version=1, post_transform=kind, **attrs),
        {"x": x},
    )


def test_one_score_for_two_classes():
    x = x_of(6, 2)
    model = model_of(
        "LinearClassifier", {"x": x}, ("int64", "float32"), version=1,
        coefficients=[1.0, -1.0], intercepts=[0.1], classlabels_ints=[0, 1], post_transform="LOGISTIC",
    )  # fmt: skip
    labels, scores = run(model, {"x": x})
    likely = 1 / (1 + np.exp(-(x[:, 0] - x[:, 1] + 0.1)))
    np.testing.assert_allclose(scores, np.stack([1 - likely, likely], 1), rtol=1e-5)
    assert labels.tolist() == (likely > 0.5).astype(int).tolist()


# Two trees over three features; the second is deeper.
NODES = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
    "nodes_featureids": [0, 0, 0, 1, 2, 0, 0, 0],
    "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.3, 0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0, 1, 3, 0, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 4, 0, 0, 0],
    "nodes_missing_value_tracks_true": [1, 0, 0, 0, 1, 0, 0, 0],
}
LEAVES = ([0, 0, 1, 1, 1, 1], [1, 2, 2, 3, 4, 4], [0, 1, 0, 1, 0, 1], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def weights_of(prefix):
    trees, nodes, targets, weights = LEAVES
    names = (f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids", f"{prefix}_weights")
    return dict(zip(names, (trees, nodes, targets, weights)))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
def test_regressions_by_trees(aggregate):
    x = x_of(20, 3)
    attrs = {**NODES, **weights_of("target"), "n_targets": 2, "base_values": [0.5, 0.25]}
    model = model_of("TreeEnsembleRegressor", {"x": x}, version=3, aggregate_function=aggregate, **attrs)
    check(model, {"x": x})


def test_missing_values_follow_the_nodes_attribute():
    x = np.array([[np.nan, 0.0, 0.0], [1.0, -1.0, np.nan], [1.0, np.nan, 0.0]], np.float32)
    model = model_of(
        "TreeEnsembleRegressor", {"x": x}, version=3, n_targets=2, **NODES, **weights_of("target")
    )
    assert run(model, {"x": x})[0].tolist() == [[1 + 4, 0], [0, 2 + 8], [4, 2]]


@pytest.mark.parametrize("kind", ["NONE", "SOFTMAX"])
def test_classes_by_trees(kind):
    x = x_of(20, 3)
    attrs = {**NODES, **weights_of("class"), "classlabels_int64s": [5, 6], "post_transform": kind}
    check(model_of("TreeEnsembleClassifier", {"x": x}, ("int64", "float32"), version=3, **attrs), {"x": x})


@pytest.mark.parametrize("modes", [[0, 4], [3, 6], [1, 2]])
@pytest.mark.parametrize(("aggregate", "number"), [("SUM", 1), ("MIN", 2), ("MAX", 3), ("AVERAGE", 0)])
def test_trees_of_the_newer_operator(modes, aggregate, number):
    x = np.round(x_of(30, 2) * 2)
    splits = np.where(np.equal(modes, 6), np.nan, [0, 1]).astype(np.float32)
    attrs = {
        "nodes_featureids": [0, 1], "nodes_truenodeids": [0, 1], "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2], "nodes_falseleafs": [0, 1], "leaf_targetids": [0, 1, 0],
        "tree_roots": [0, 1], "n_targets": 2, "aggregate_function": number,
        "nodes_modes": onnx.numpy_helper.from_array(np.array(modes, np.uint8), "m"),
        "nodes_splits": onnx.numpy_helper.from_array(splits, "s"),
        "leaf_weights": onnx.numpy_helper.from_array(np.array([1.5, 2.5, -3.5], np.float32), "w"),
    }  # fmt: skip
    if 6 in modes:
        members = np.array([-1, 2, 3, np.nan], np.float32)
        attrs["membership_values"] = onnx.numpy_helper.from_array(members, "v")
    model = model_of("TreeEnsemble", {"x": x}, version=5, **attrs)
    (found,) = run(model, {"x": x})
    members = np.array([-1, 2, 3])
    compare = {
        0: x <= [0, 1], 1: x < [0, 1], 2: x >= [0, 1], 3: x > [0, 1], 4: x == [0, 1], 6: np.isin(x, members),
    }  # fmt: skip
    for row, first, second in zip(found, compare[modes[0]][:, 0], compare[modes[1]][:, 1]):
        inner = (1, 2.5) if second else (0, -3.5)
        reached = [(0, 1.5) if first else inner, inner]
        fold = {"SUM": sum, "MIN": min, "MAX": max, "AVERAGE": lambda v: sum(v) / 2}[aggregate]
        info = np.finfo(np.float32)
        nothing = {"MIN": info.max, "MAX": info.min}.get(aggregate, 0)
        expected = [
            fold(v) if (v := [w for t, w in reached if t == target]) else nothing for target in (0, 1)
        ]
        assert row.tolist() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [0] * 8}, "form a cycle"),
        ({"nodes_featureids": [3] * 8}, "feature 3"),
        ({"target_nodeids": [0] * 6}, "no leaf"),
        ({"target_ids": [2] * 6}, "target 2 of 2"),
        ({"nodes_values": [0.0]}, "differ in length"),
    ],
)
def test_trees_that_contradict_themselves_are_refused(change, message):
    attrs = {**NODES, **weights_of("target"), "n_targets": 2, **change}
    with pytest.raises(DlcError, match=message):
        main_of(model_of("TreeEnsembleRegressor", {"x": x_of(2, 3)}, version=3, **attrs))


def test_classes_may_be_texts():
    attrs = {**NODES, **weights_of("class"), "classlabels_strings": ["a", "b"]}
    feeds = {"x": x_of(2, 3)}
    model = model_of("TreeEnsembleClassifier", feeds, ("string", "float32"), version=3, **attrs)
    labels, scores = run(model, feeds)
    assert labels.tolist() == [["a", "b"][position] for position in scores.argmax(1)]


@pytest.mark.parametrize(
    ("op", "kinds", "attrs"),
    [
        ("Momentum", 3, {"alpha": 0.9, "beta": 0.7, "mode": "standard", "norm_coefficient": 0.1}),
        ("Momentum", 3, {"alpha": 0.9, "beta": 0.7, "mode": "nesterov", "norm_coefficient": 0.0}),
        ("Adagrad", 3, {"decay_factor": 0.1, "norm_coefficient": 0.01}),
        ("Adam", 4, {"norm_coefficient": 0.01, "norm_coefficient_post": 0.1}),
    ],
)
@pytest.mark.parametrize("step", [0, 3])
def test_steps_of_optimizers_on_two_tensors(op, kinds, attrs, step):
    feeds = {"r": np.array(0.1, np.float32), "t": np.array(step)}
    for kind in range(kinds):
        for index, shape in enumerate(((2, 3), (4,))):
            feeds[f"v{kind}_{index}"] = np.abs(x_of(*shape)) if kind == kinds - 1 else x_of(*shape)
    outputs = ("float32",) * (2 * (kinds - 1))
    model = model_of(op, feeds, outputs, "ai.onnx.preview.training", 1, **attrs)
    expected = ReferenceEvaluator(model).run(None, feeds)
    for a, b in zip(run(model, feeds), expected):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_gradients_match_finite_differences():
    text = """g (double[2,3] x, double[3,2] w, double[2] b)
        => (double[2,3] dx, double[3,2] dw, double[2] db) {
        p = MatMul(x, w)
        h = Add(p, b)
        t = Tanh(h)
        half = Constant <value = double {0.5}> ()
        u = Mul(t, half)
        e = Exp(u)
        s = Softmax <axis = 1> (h)
        q = Div(s, e)
        r = Transpose(q)
        m = Max(r, half)
        y = ReduceMean <keepdims = 0> (m)
        dx, dw, db = ai.onnx.preview.training.Gradient <xs = ["x", "w", "b"], y = "y"> (x, w, b)
    }"""
    model = parse(text, domains=', "ai.onnx.preview.training" : 1')
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(2, 3)), "w": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}

    def y(values):
        h = values["x"] @ values["w"] + values["b"]
        s = np.exp(h - h.max(1, keepdims=True))
        q = s / s.sum(1, keepdims=True) / np.exp(np.tanh(h) * 0.5)
        return np.maximum(q.T, 0.5).mean()

    for name, found in zip(feeds, run(model, feeds), strict=True):
        for position in np.ndindex(feeds[name].shape):
            near = []
            for step in (1e-6, -1e-6):
                moved = {key: value.copy() for key, value in feeds.items()}
                moved[name][position] += step
                near.append(y(moved))
            np.testing.assert_allclose(found[position], (near[0] - near[1]) / 2e-6, rtol=1e-5, atol=1e-8)


def test_an_op_without_a_derivative_is_named():
    text = """g (float[3] x) => (float[3] d) {
        y = Mod <fmod = 1> (x, x)
        d = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x)
    }"""
    with pytest.raises(UnsupportedError, match="derivative of the op fmod"):
        main_of(parse(text, domains=', "ai.onnx.preview.training" : 1'))
