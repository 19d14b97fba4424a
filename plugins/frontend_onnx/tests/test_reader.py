"""Reading models: the data of valid ones, and the errors for invalid ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx import wire
from dlc_frontend_onnx.reader import (
    Graph,
    Model,
    SparseTensor,
    Tensor,
    ValueInfo,
    ValueType,
    read_model,
)
from dlc_frontend_onnx.testing.build import graph_of, model_of, node, tensor, value
from onnx import (
    AttributeProto,
    ModelProto,
    TensorProto,
    helper,
    numpy_helper,
)

from dlc_core.diag import DlcError, ModelError, UnsupportedError, UsageError

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def refused(model: ModelProto, match: str, kind: type[DlcError] = ModelError) -> str:
    """The message about `model`, the same whether it comes as an object or as bytes."""
    with pytest.raises(kind, match=match) as caught:
        read_model(model)
    with pytest.raises(kind, match=match):
        read_model(model.SerializeToString())
    return str(caught.value)


# --- sources ---


def test_path_bytes_and_message_read_the_same(tmp_path: Path) -> None:
    model = model_of(node("Relu", ["x"], ["y"], name="relu"), name="tiny")
    data = model.SerializeToString()
    path = tmp_path / "file.onnx"
    path.write_bytes(data)
    for source in (model, data, bytearray(data), memoryview(data), path, str(path)):
        read = read_model(source)
        assert (read.name, read.ir_version, read.opsets) == ("tiny", 10, {"": 20, "local": 1})
        assert (read.producer, read.metadata) == ("tests", {})
        (relu,) = read.graph.nodes
        assert (relu.name, relu.op, relu.domain, relu.inputs, relu.outputs) == (
            "relu",
            "Relu",
            "",
            ("x",),
            ("y",),
        )
        assert (relu.index, relu.attrs, relu.captures) == (0, {}, ())
        assert read.graph.inputs == [ValueInfo("x", ValueType("tensor", "float32", (4,)))]
    assert read_model(path).source == str(path)


def test_unnamed_model_is_called_after_its_file(tmp_path: Path) -> None:
    model = model_of(node("Relu", ["x"], ["y"]))
    model.graph.ClearField("name")
    (tmp_path / "net.v2.onnx").write_bytes(model.SerializeToString())
    assert read_model(tmp_path / "net.v2.onnx").name == "net.v2"


def test_metadata() -> None:
    model = model_of(node("Relu", ["x"], ["y"]))
    helper.set_model_props(model, {"author": "a", "licence": "b"})
    assert read_model(model).metadata == {"author": "a", "licence": "b"}


@pytest.mark.parametrize("source", [None, 3, object(), ["a"], ["m", "onnx"]], ids=lambda s: type(s).__name__)
def test_other_sources(source: Any) -> None:
    with pytest.raises(UsageError, match="cannot be read from"):
        read_model(source)


@pytest.mark.parametrize("name", ["absent.onnx", ".", "a\0b", "x" * 5000, "m.onnx/x", ""])
def test_unreadable_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(b"")
    with pytest.raises(ModelError):
        read_model(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipe_as_model_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="is not a file"):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x08", b"hello, world", b"PK\x03\x04", b"\x08\x07", b"\x00" * 64]
)
def test_bytes_that_are_not_a_model(data: bytes) -> None:
    with pytest.raises(ModelError, match="is not an ONNX model"):
        read_model(data)


@pytest.mark.parametrize("name", [path.stem for path in sorted(LIGHT.glob("*.onnx"))])
def test_light_models(name: str) -> None:
    proto = onnx.load(LIGHT / f"{name}.onnx")
    model = read_model(LIGHT / f"{name}.onnx")
    assert [item.outputs for item in model.graph.nodes] == [tuple(item.output) for item in proto.graph.node]
    assert set(model.graph.initializers) == {item.name for item in proto.graph.initializer}
    for item in proto.graph.initializer:
        assert np.array_equal(model.graph.initializers[item.name].to_numpy(), numpy_helper.to_array(item))


# --- weights are not copied ---


def big_model(count: int = 1 << 18) -> tuple[ModelProto, dict[str, Any]]:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(count, np.float32) for name in ("w", "v", "c", "d")}
    inner = graph_of(
        node("Add", ["x", "d"], ["i"]), inputs="", outputs="i", initializer=[tensor("d", arrays["d"])]
    )
    nodes = [
        node("Constant", [], ["c"], value=numpy_helper.from_array(arrays["c"])),
        node("Use", ["x", "w", "v", "c"], ["y"], domain="local", body=inner),
    ]
    return model_of(*nodes, initializer=[tensor("w", arrays["w"]), tensor("v", arrays["v"])]), arrays


def constants(model: Model) -> dict[str, Any]:
    first, use = model.graph.nodes
    body, constant = use.attrs["body"], first.attrs["value"]
    assert isinstance(body, Graph)
    assert isinstance(constant, Tensor)
    return {**model.graph.initializers, **body.initializers, "c": constant}


def test_large_weights_are_views_of_the_file(tmp_path: Path) -> None:
    proto, arrays = big_model()
    data = proto.SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    whole = np.frombuffer(data, np.uint8)
    for name, constant in constants(read_model(data)).items():
        assert np.shares_memory(constant.to_numpy(), whole), name
        assert np.array_equal(constant.to_numpy(), arrays[name])
    for name, constant in constants(read_model(tmp_path / "m.onnx")).items():
        assert not constant.to_numpy().flags.owndata, name
        assert np.array_equal(constant.to_numpy(), arrays[name])


def test_changed_bytearray_changes_no_weights() -> None:
    proto, arrays = big_model()
    data = bytearray(proto.SerializeToString())
    model = read_model(data)
    data[:] = bytes(len(data))
    assert np.array_equal(constants(model)["w"].to_numpy(), arrays["w"])


def test_forged_markers_are_plain_data() -> None:
    proto, _ = big_model()
    forged = np.frombuffer(bytes(24), np.uint8)
    proto.graph.initializer.append(tensor("forged", forged))
    assert np.array_equal(
        read_model(proto.SerializeToString()).graph.initializers["forged"].to_numpy(), forged
    )


def test_repeated_fields_merge_like_protobuf() -> None:
    """The last `raw_data` wins, and graphs in two parts are joined, also when weights are cut out."""
    first, second = np.full(1 << 18, 1, np.float32), np.full(1 << 18, 2, np.float32)
    model = model_of(node("Relu", ["x"], ["y"]), initializer=[])
    weights = [
        TensorProto(name="w", data_type=1, dims=[1 << 18], raw_data=item.tobytes())
        for item in (first, second)
    ]
    twice = weights[0].SerializeToString() + TensorProto(raw_data=weights[1].raw_data).SerializeToString()
    part = b"\x2a" + varint(len(twice)) + twice
    data = model.SerializeToString() + b"\x3a" + varint(len(part)) + part
    assert np.array_equal(ModelProto.FromString(data).graph.initializer[0].raw_data, second.tobytes())
    assert np.array_equal(read_model(data).graph.initializers["w"].to_numpy(), second)


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_reading_stops_after_too_many_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    proto, arrays = big_model(1 << 16)
    monkeypatch.setattr(wire, "MAX_FIELDS", 3)
    assert np.array_equal(constants(read_model(proto.SerializeToString()))["v"].to_numpy(), arrays["v"])


def test_too_large_without_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    proto, _ = big_model(1 << 16)
    monkeypatch.setattr(wire, "MAX_PARSE", 5000)
    assert read_model(proto.SerializeToString()).graph.nodes
    proto.doc_string = "x" * 5000
    with pytest.raises(ModelError, match="too large"):
        read_model(proto.SerializeToString())


# --- attributes ---


def test_every_kind_of_attribute() -> None:
    weights, kind = (
        tensor("t", np.ones(3, np.int64)),
        helper.make_tensor_type_proto(TensorProto.FLOAT16, [2, "n"]),
    )
    body = graph_of(node("Neg", ["x"], ["n"]), inputs="", outputs="n", name="body")
    sparse = helper.make_sparse_tensor(
        tensor("", np.ones(1, np.float32)), tensor("", np.zeros(1, np.int64)), [4]
    )
    values: dict[str, Any] = {"f": 1.5, "i": -3, "s": "é", "t": weights, "g": body, "tp": kind, "sp": sparse}
    values |= {"fs": [0.5], "is": [1, 2], "ss": ["a", ""], "ts": [weights], "gs": [body, body], "tps": [kind]}
    item = node("Odd", ["x"], ["y"], **values)
    item.attribute.add(name="bytes", type=AttributeProto.STRING, s=b"\xff\xfe")
    for name, number in (
        ("no_ints", AttributeProto.INTS),
        ("zero", AttributeProto.INT),
        ("nil", AttributeProto.STRING),
    ):
        item.attribute.add(name=name, type=number)
    attrs = read_model(model_of(item)).graph.nodes[0].attrs
    half = ValueType("tensor", "float16", (2, "n"))
    plain = {name: attrs[name] for name in ("f", "i", "s", "fs", "is", "ss", "tp", "tps")}
    assert plain == {
        "f": 1.5,
        "i": -3,
        "s": "é",
        "fs": (0.5,),
        "is": (1, 2),
        "ss": ("a", ""),
        "tp": half,
        "tps": (half,),
    }
    assert (attrs["bytes"], attrs["no_ints"], attrs["zero"], attrs["nil"]) == (b"\xff\xfe", (), 0, "")
    assert isinstance(attrs["t"], Tensor)
    assert attrs["t"].to_numpy().tolist() == [1, 1, 1]
    assert isinstance(attrs["sp"], SparseTensor)
    assert [type(item) for item in (attrs["g"], *attrs["gs"])] == [Graph] * 3  # type: ignore[misc]
    assert [name for name, _ in read_model(model_of(item)).graph.nodes[0].subgraphs()] == ["g", "gs", "gs"]


def with_attribute(**fields: Any) -> ModelProto:
    item = node("Odd", ["x"], ["y"], name="odd")
    item.attribute.add(**fields)
    return model_of(item)


def test_attribute_of_the_first_format_has_no_type() -> None:
    attrs = read_model(with_attribute(name="axis", i=3)).graph.nodes[0].attrs
    assert attrs == {"axis": 3}


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        (
            {"name": "a", "type": AttributeProto.INT, "f": 1.0},
            "is of type INT, but has a value of type FLOAT",
        ),
        ({"name": "a", "type": AttributeProto.INTS, "i": 1}, "is of type INTS, but has a value of type INT"),
        ({"name": "a", "type": AttributeProto.INT, "i": 1, "f": 1.0}, "several values at once"),
        ({"name": "a", "type": AttributeProto.TENSOR}, "is of type TENSOR, but has no value"),
        ({"name": "a", "type": AttributeProto.GRAPH}, "is of type GRAPH, but has no value"),
        ({"name": "a"}, "no type and no value"),
        ({"name": "", "type": AttributeProto.INT, "i": 1}, "has no name"),
        (
            {"name": "a", "type": AttributeProto.INT, "ref_attr_name": "b"},
            "only nodes of a function may do so",
        ),
        ({"name": "a", "i": 1, "ref_attr_name": "b"}, "has a value of its own"),
    ],
)
def test_bad_attributes(fields: dict[str, Any], match: str) -> None:
    text = refused(with_attribute(**fields), match)
    assert "node 0 'odd', operator 'Odd' of domain 'ai.onnx'" in text


def test_attribute_given_twice() -> None:
    model = model_of(node("Odd", ["x"], ["y"], axis=1))
    model.graph.node[0].attribute.add().CopyFrom(model.graph.node[0].attribute[0])
    refused(model, "attribute 'axis' is given twice")


# --- types ---


def test_types_of_values() -> None:
    model = model_of(node("Odd", ["x"], ["y"]))
    inner = helper.make_tensor_type_proto(TensorProto.INT4, ["n", None, 3])
    sequence = helper.make_sequence_type_proto(inner)
    typed = {
        "q": sequence,
        "o": helper.make_optional_type_proto(sequence),
        "m": helper.make_map_type_proto(8, inner),
    }
    typed["sp"] = helper.make_sparse_tensor_type_proto(TensorProto.DOUBLE, [2])
    for name, kind in typed.items():
        model.graph.input.append(helper.make_value_info(name, kind))
    model.graph.value_info.append(onnx.ValueInfoProto(name="untyped"))
    model.graph.value_info.append(value("rankless", None, TensorProto.BFLOAT16))
    model.graph.value_info.append(value("dynamic", [-1, 0]))
    graph = read_model(model).graph
    q, o, m, sp = graph.inputs[1:]
    assert (q.kind, q.dtype, q.shape) == ("sequence", "int4", ("n", None, 3))
    assert (o.kind, o.dtype) == ("optional", "int4")
    assert o.type is not None
    assert o.type.elem == q.type
    assert (m.kind, m.type and m.type.key) == ("map", "string")
    assert (sp.kind, sp.dtype, sp.shape) == ("sparse_tensor", "float64", (2,))
    infos = graph.value_infos
    assert (infos["untyped"].kind, infos["untyped"].dtype, infos["untyped"].shape) == ("", None, None)
    assert (infos["rankless"].dtype, infos["rankless"].shape) == ("bfloat16", None)
    assert infos["dynamic"].shape == (None, 0)


def test_bad_types() -> None:
    model = model_of(node("Relu", ["x"], ["y"]))
    model.graph.input[0].type.tensor_type.elem_type = 99
    refused(model, "element type 99", UnsupportedError)
    model = model_of(node("Relu", ["x"], ["y"]))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -2
    refused(model, "negative dimension: -2")


def test_deep_types() -> None:
    model = model_of(node("Relu", ["x"], ["y"]))
    kind = model.graph.input.add(name="deep").type
    for _ in range(200):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(ModelError, match="nested deeper than 64"):
        read_model(model)
    with pytest.raises(ModelError, match="cannot be parsed"):
        read_model(model.SerializeToString())


def test_two_types_of_one_value() -> None:
    model = model_of(node("Relu", ["x"], ["y"]), value_info=[value("h"), value("h")])
    assert list(read_model(model).graph.value_infos) == ["h"]
    model.graph.value_info.append(value("h", [5]))
    refused(model, "'h' is declared with two types")
