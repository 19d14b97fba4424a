"""Models with stored inputs and outputs: one folder each, laid out as the tests of the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

DATA = "test_data_set_0"
_PROTOS = {"tensor_type": TensorProto, "sequence_type": SequenceProto, "optional_type": OptionalProto}


def save(
    folder: Path, model: bytes, feeds: Mapping[str, Any] | None, outputs: Sequence[Any] | None = None
) -> None:
    """Write a model and, if they are known, the values of its inputs and outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / DATA
    graph = onnx.load_from_string(model).graph
    declared = {info.name: info for info in graph.input}
    given = [("input", name, declared.get(name), value) for name, value in (feeds or {}).items()]
    made = [("output", "", info, value) for info, value in zip(graph.output, outputs or ())]
    for values in (given, made):
        for index, (kind, label, info, value) in enumerate(values):
            data.mkdir(exist_ok=True)
            type_ = None if info is None else info.type.WhichOneof("value")
            (data / f"{kind}_{index}.pb").write_bytes(_proto(value, label, type_).SerializeToString())
    if feeds is not None:
        data.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model)


def _proto(value: Any, name: str, type_: str | None) -> Any:
    if value is None or type_ == "optional_type":
        return numpy_helper.from_optional(value, name)
    if type_ == "sequence_type" and not len(value):
        return numpy_helper.from_list([], name, SequenceProto.TENSOR)
    if isinstance(value, (list, tuple)) and any(isinstance(item, (np.ndarray, np.generic)) for item in value):
        return numpy_helper.from_list([np.asarray(item) for item in value], name)
    array = np.asarray(value)
    return numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, name)


def stored(path: Path, model: onnx.ModelProto) -> tuple[dict[str, Any] | None, list[Any] | None]:
    """The stored inputs by name, and the stored outputs. None where nothing is stored."""
    arrays = path.with_suffix(".npz")
    if arrays.exists():
        with np.load(arrays, allow_pickle=False) as saved:
            texts = {name: _objects(saved[name]) for name in saved.files}
        outputs = [texts[f"out_{k}"] for k in range(len(texts)) if f"out_{k}" in texts]
        return {name[3:]: a for name, a in texts.items() if name.startswith("in_")}, outputs or None
    folder = path.parent / DATA
    if not folder.is_dir() or len(list(path.parent.glob("*.onnx"))) > 1:
        return None, None
    constants = {each.name for each in model.graph.initializer}
    declared = [info for info in model.graph.input if info.name not in constants]
    every = {info.name: info for info in model.graph.input}
    feeds: dict[str, Any] = {}
    for index, file in enumerate(_files(folder, "input")):
        content = file.read_bytes()
        info = every.get(_name_of(content)) or declared[index]
        feeds[info.name] = _value(content, info)
    results = [_value(f.read_bytes(), i) for f, i in zip(_files(folder, "output"), model.graph.output)]
    return feeds, results or None


def _objects(array: Any) -> Any:
    return array.astype(object) if array.dtype.kind == "U" else array


def _files(folder: Path, kind: str) -> Sequence[Path]:
    return sorted(folder.glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.split("_")[1]))


def _name_of(content: bytes) -> str:
    """The name in a message. The number of its field differs between the three kinds."""
    for kind in (TensorProto, SequenceProto, OptionalProto):
        message = kind()
        try:
            message.ParseFromString(content)
        except Exception:  # noqa: BLE001  (protobuf's decode errors differ by implementation)
            continue
        if message.name:
            return str(message.name)
    return ""


def _value(content: bytes, info: Any) -> Any:
    kind = info.type.WhichOneof("value") or "tensor_type"
    message = _PROTOS[kind]()
    message.ParseFromString(content)
    if kind == "sequence_type":
        return numpy_helper.to_list(message)
    if kind == "optional_type":
        return numpy_helper.to_optional(message)
    return numpy_helper.to_array(message)
