"""Reading ONNX models safely.

    model = read_model("resnet50.onnx")        # or bytes, or an onnx.ModelProto (base_dir= for external data)
    for node in model.graph.nodes:             # sorted; name, op, domain, inputs, outputs, attrs, ...
        ...
    model.graph.initializers["w"].to_numpy()   # read-only, a view of the memory-mapped file

The data structures are those of `definitions`, `model` (Model) and `tensors` (Tensor, SparseTensor). A model
that has been read has passed `check`: names are defined once and before use, there are no cycles, attributes
have their declared types, tensors have exactly the bytes of their shapes. The importer reports an error about
a node by `node.loc.error(...)`.

For any input, no code is executed, no file outside the model's folder is opened, and memory stays within a
small multiple of the model's size. The only exceptions are `ModelError` (malformed, inconsistent, unsafe,
unreadable) and `UnsupportedError` (valid, but not supported by this version). `onnx.checker` and `onnx.load`
are never used, because they follow external data by their own rules.

Files are memory-mapped, so weights are loaded at their first access and never copied. A file must not be
overwritten in place while the model or its arrays are in use.
"""

from __future__ import annotations

import mmap
import os
import stat
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError

from dlc_core.diag import UsageError
from dlc_frontend_onnx.check import check_model
from dlc_frontend_onnx.convert import Converter
from dlc_frontend_onnx.external import MAP_FROM, Folder
from dlc_frontend_onnx.location import Location, shorten
from dlc_frontend_onnx.model import (
    AttrRef,
    AttrValue,
    FunctionDef,
    Graph,
    Model,
    NodeDef,
    Shape,
    ValueInfo,
    ValueType,
)
from dlc_frontend_onnx.tensors import SparseTensor, Tensor
from dlc_frontend_onnx.wire import Cuts, parse

Source: TypeAlias = "str | PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"


def read_model(source: Source, *, base_dir: str | PathLike[str] | None = None) -> Model:
    """Read and check a model from a path, bytes, or a `ModelProto`.

    `base_dir` is the folder of external data. It defaults to the folder of the file. Bytes and messages have
    no default, and external data are then an error. Raises `ModelError` if the model is malformed,
    inconsistent, unsafe or unreadable, `UnsupportedError` if it is valid but not supported by this version,
    and `UsageError` if `source` has another type.
    """
    folder = os.fspath(base_dir) if base_dir is not None else None
    cuts: Cuts | None = None
    if isinstance(source, onnx.ModelProto):
        name, stem, message = "<ModelProto>", "model", source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        name, stem = "<bytes>", "model"
        message, cuts = _parse(_view(source), name)
    elif isinstance(source, (str, PathLike)):
        name = os.fspath(source)
        if not isinstance(name, str):
            raise UsageError("a model's path must be text, not bytes")
        stem = Path(name).stem
        folder = folder if folder is not None else str(Path(name).parent)
        message, cuts = _parse(_file(name), name)
    else:
        raise UsageError(
            f"a model cannot be read from {type(source).__name__}",
            hint="give a path, the bytes of a file, or an onnx.ModelProto",
        )
    with Folder(folder) as opened:
        try:
            model = Converter(name, opened, cuts).model(message, stem)
        except UnicodeDecodeError:
            raise Location(name, "the model").error("the model has a text that is not valid UTF-8") from None
        check_model(model)
        return model


def _view(source: bytes | bytearray | memoryview) -> memoryview:
    """The source itself if it is immutable, else a copy."""
    view = memoryview(source)
    return view if view.readonly and view.contiguous and view.format == "B" else memoryview(bytes(view))


def _parse(data: memoryview, name: str) -> tuple[onnx.ModelProto, Cuts]:
    loc = Location(name, "the model")
    try:
        return parse(data)
    except DecodeError as error:
        raise loc.error(
            f"{shorten(name)} is not an ONNX model", why=f"its bytes cannot be parsed: {shorten(str(error))}"
        ) from None
    except OverflowError:
        raise loc.error(
            f"{shorten(name)} is too large",
            why="without its weights it has more than 2 GiB, which protobuf cannot parse",
            hint="save the model with external data",
        ) from None


def _file(name: str) -> memoryview:
    """The bytes of a regular file, memory-mapped unless small."""
    loc = Location(name, "the model")
    flags = os.O_RDONLY
    for extra in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY", "O_NOINHERIT"):
        flags |= getattr(os, extra, 0)
    try:
        file = os.open(name, flags)
        with os.fdopen(file, "rb", closefd=True) as stream:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise loc.error(f"{shorten(name)} is not a file")
            if status.st_size < MAP_FROM:
                return memoryview(stream.read(status.st_size))
            return memoryview(mmap.mmap(file, status.st_size, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "the path is not valid"
        raise loc.error(f"{shorten(name)} cannot be read", why=why.lower()) from None


__all__ = [
    "AttrRef",
    "AttrValue",
    "FunctionDef",
    "Graph",
    "Model",
    "NodeDef",
    "Shape",
    "Source",
    "SparseTensor",
    "Tensor",
    "ValueInfo",
    "ValueType",
    "read_model",
]
