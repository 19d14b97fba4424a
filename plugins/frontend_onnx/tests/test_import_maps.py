"""Maps of ai.onnx.ml as dicts, and the first version of LabelEncoder, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dlc_frontend_onnx.specialized import CallableModel
from onnx import TensorProto, TypeProto, helper

import dlc_core as dlc
from dlc_core.diag import DlcError, UsageError

ort: Any = pytest.importorskip("onnxruntime")
ML = "ai.onnx.ml"
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def tensor(number, *shape):
    return helper.make_tensor_type_proto(number, shape or None)


def map_of(key, value):
    made = TypeProto()
    made.map_type.key_type = key
    made.map_type.value_type.CopyFrom(helper.make_tensor_type_proto(value, None))
    return made


def model_of(op, given, result, **attributes):
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain=ML, **attributes)],
        "g",
        [helper.make_value_info("x", given)],
        [helper.make_value_info("y", result)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def both(model, x):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (found,) = CallableModel(model)({"x": x})
    return found, expected


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [7, -2, 3]}, {"classlabels_strings": ["c", "a", "b"]}]
)
@pytest.mark.parametrize("rows", [1, 4])
def test_zip_map(labels, rows):
    key = INT64 if "classlabels_int64s" in labels else STRING
    result = helper.make_sequence_type_proto(map_of(key, FLOAT))
    model = model_of("ZipMap", tensor(FLOAT, "n", 3), result, **labels)
    x = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    found, expected = both(model, x)
    assert found == expected
    assert len(found) == rows


@pytest.mark.parametrize("x", [{"b": 2.5, "z": 9.0, "a": 1.5}, {"q": 1.0}])
def test_dicts_of_texts_become_rows(x):
    model = model_of(
        "DictVectorizer", map_of(STRING, FLOAT), tensor(FLOAT), string_vocabulary=["a", "c", "b"]
    )
    found, expected = both(model, x)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_dicts_of_numbers_become_rows():
    # ONNX Runtime's Python interface does not accept maps from numbers to strings.
    model = model_of("DictVectorizer", map_of(INT64, STRING), tensor(STRING), int64_vocabulary=[8, 2, 3])
    called = CallableModel(model)
    assert called({"x": {3: "u", -1: "v", 8: "w"}})[0].tolist() == [["w", "", "u"]]
    assert called({"x": {5: "z"}})[0].tolist() == [["", "", ""]]
    assert called({"x": {}})[0].tolist() == [["", "", ""]]


@pytest.mark.parametrize("form", [{}, {"map_form": "SPARSE", "max_map": 6}])
@pytest.mark.parametrize(("to", "x"), [(FLOAT, {5: 2.5, 1: -1.5}), (INT64, {5: 2.0, 1: -1.0, 3: 7.0})])
def test_dicts_are_cast(form, to, x):
    name = {FLOAT: "TO_FLOAT", INT64: "TO_INT64"}[to]
    found, expected = both(model_of("CastMap", map_of(INT64, FLOAT), tensor(to), cast_to=name, **form), x)
    assert (found.dtype, found.shape, found.tolist()) == (expected.dtype, expected.shape, expected.tolist())


def test_dicts_of_texts_are_cast():
    for to, name, x, expected in (
        (FLOAT, "TO_FLOAT", {2: "2.5", 0: "-4"}, [[-4.0, 2.5]]),
        (STRING, "TO_STRING", {2: "b", 0: "a"}, [["a", "b"]]),
    ):
        model = model_of("CastMap", map_of(INT64, STRING), tensor(to), cast_to=name)
        assert CallableModel(model)({"x": x})[0].tolist() == expected


def test_dicts_of_numbers_are_cast_to_texts():
    model = model_of("CastMap", map_of(INT64, FLOAT), tensor(STRING), cast_to="TO_STRING")
    assert CallableModel(model)({"x": {3: 2.5, 1: -7.0}})[0].tolist() == [["-7.0", "2.5"]]
    sparse = model_of(
        "CastMap", map_of(INT64, FLOAT), tensor(STRING), cast_to="TO_STRING", map_form="SPARSE", max_map=4
    )
    with pytest.raises(DlcError, match="missing keys have no string"):
        CallableModel(sparse)({"x": {1: 2.5}})


def test_compiled_models_return_keys_and_values():
    result = helper.make_sequence_type_proto(map_of(INT64, FLOAT))
    exe = dlc.compile(model_of("ZipMap", tensor(FLOAT, None, 3), result, classlabels_int64s=[4, 5, 7]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = exe.run({"x": x})
    assert {name: array.tolist() for name, array in found.items()} == {"y[0]": [4, 5, 7], "y[1]": x.tolist()}
    exe = dlc.compile(model_of("CastMap", map_of(INT64, FLOAT), tensor(FLOAT)))
    for count in (2, 3):
        feeds = {"x[0]": np.arange(count), "x[1]": np.arange(count, dtype=np.float32) / 2}
        assert exe.run(feeds)["y"].tolist() == [feeds["x[1]"].tolist()]


@pytest.mark.parametrize("x", [["a", "?"], "not a dict", {"a": "b"}, {1: 1.0}])
def test_other_values_than_maps_are_refused(x):
    model = model_of("DictVectorizer", map_of(STRING, FLOAT), tensor(FLOAT), string_vocabulary=["a"])
    with pytest.raises(UsageError, match="input 'x' is"):
        CallableModel(model)({"x": x})


def test_the_number_of_labels_must_match():
    result = helper.make_sequence_type_proto(map_of(INT64, FLOAT))
    with pytest.raises(DlcError, match="2 labels for rows of 3 elements"):
        CallableModel(model_of("ZipMap", tensor(FLOAT, 2, 3), result, classlabels_int64s=[1, 2]))


def test_labels_of_the_first_version():
    flags = {"classes_strings": ["x", "y", "z"], "default_int64": 40, "default_string": "none"}
    model = model_of("LabelEncoder", tensor(STRING, 2, 2), tensor(INT64, 2, 2), **flags)
    found, expected = both(model, np.array([["y", "?"], ["z", "x"]], object))
    assert found.tolist() == expected.tolist() == [[1, 40], [2, 0]]
    model = model_of("LabelEncoder", tensor(INT64, 4), tensor(STRING, 4), **flags)
    found, expected = both(model, np.array([2, -1, 3, 0]))
    assert found.tolist() == expected.tolist() == ["z", "none", "none", "x"]
