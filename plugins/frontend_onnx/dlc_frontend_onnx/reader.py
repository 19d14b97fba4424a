"""Reading ONNX models safely.

    model = read_model("resnet50.onnx")        # or bytes, or an onnx.ModelProto (base_dir= for external data)
    for node in model.graph.nodes:             # sorted; name, op, domain, inputs, outputs, attrs, ...
        ...
    model.graph.initializers["w"].to_numpy()   # read-only, a view of the memory-mapped file

The data structures are those of `model` (Model, Graph, NodeDef, FunctionDef, ValueInfo, ValueType, AttrRef)
and `tensors` (Tensor, SparseTensor).  What has been read has passed `check`: names are defined once and
before use, there are no cycles, attributes have the types they claim, tensors have exactly the bytes their
shapes need.  An error of the importer about a node is `node.place.error(...)`.

Whatever the input, nothing is executed, no file outside the model's folder is opened, memory stays within a
small multiple of the model's size, and the only exceptions are `ModelError` (malformed, inconsistent, unsafe,
unreadable) and `UnsupportedError` (valid, but not for this version).  `onnx.checker` and `onnx.load` are
never used: they may follow external data by rules of their own.

Files are memory-mapped: weights are paged in when touched and never copied, so the file must not be
overwritten in place while the model or arrays from it are in use.
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
from dlc_frontend_onnx.location import Place, shorten
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
    """Read and check the model at a path, in bytes, or in a `ModelProto`.

    External data are looked for in `base_dir`; for a path this is the file's own folder unless said
    otherwise, for bytes and messages there is none, and external data are then an error.  `ModelError` for
    anything malformed, inconsistent, unsafe or unreadable, `UnsupportedError` for valid things this version
    cannot read, `UsageError` for a `source` of another type.
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
            raise Place(name, "the model").error("the model has a text that is not valid UTF-8") from None
        check_model(model)
        return model


def _view(source: bytes | bytearray | memoryview) -> memoryview:
    """The source itself where it cannot change while the model is in use, else a copy of it."""
    view = memoryview(source)
    return view if view.readonly and view.contiguous and view.format == "B" else memoryview(bytes(view))


def _parse(data: memoryview, name: str) -> tuple[onnx.ModelProto, Cuts]:
    place = Place(name, "the model")
    try:
        return parse(data)
    except DecodeError as error:
        raise place.error(
            f"{shorten(name)} is not an ONNX model", why=f"its bytes cannot be parsed: {shorten(str(error))}"
        ) from None
    except OverflowError:
        raise place.error(
            f"{shorten(name)} is too large",
            why="beside its weights it has more than 2 GiB, which protobuf cannot parse",
            hint="save the model with external data",
        ) from None


def _file(name: str) -> memoryview:
    """The bytes of a regular file, memory-mapped unless small."""
    place = Place(name, "the model")
    flags = os.O_RDONLY
    for extra in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY", "O_NOINHERIT"):
        flags |= getattr(os, extra, 0)
    try:
        file = os.open(name, flags)
        with os.fdopen(file, "rb", closefd=True) as stream:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise place.error(f"{shorten(name)} is not a file")
            if status.st_size < MAP_FROM:
                return memoryview(stream.read(status.st_size))
            return memoryview(mmap.mmap(file, status.st_size, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "the path is not valid"
        raise place.error(f"{shorten(name)} cannot be read", why=why.lower()) from None


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
