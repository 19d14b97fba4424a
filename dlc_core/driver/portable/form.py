"""The file of a portable model (see `runtime.artefact.container`).

    header       core (the version that wrote it), dtypes (declared dtypes), arrays
    graph        the module as JSON of the IR (see `script.json`)
    constants    small arrays, each at a multiple of 64 bytes
    weights.N    one large array

An entry of `arrays` is [dtype, shape, section, offset, repeated]. A repeated array has one element in the
file, and all of its elements are equal. Nothing in the file is executed, imported or used as a path.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dlc_core.diag import ArtifactError, DlcError
from dlc_core.driver.portable.check import EXPRS, check_portable
from dlc_core.graph.json import graph_kinds
from dlc_core.graph.node import GraphContext, using_context
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.json import EXPR_KINDS, Kind, decode, encode
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType
from dlc_core.limits import check_bytes, check_nodes
from dlc_core.op.lookup import registered_ops
from dlc_core.runtime.artefact.container import PORTABLE, Opened, read_container
from dlc_core.runtime.artefact.dtypes import check_dtypes, used_dtypes
from dlc_core.runtime.artefact.marks import mark
from dlc_core.runtime.artefact.writing import write_container
from dlc_core.runtime.interface.untrusted import boolean, decoding, integer, items, malformed, text
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.support.record import record
from dlc_core.version import __version__

Host = np.ndarray[Any, Any]
GRAPH, _CONSTANTS, _WEIGHTS = "graph", "constants", "weights."
_LARGE = 1 << 16
"""Bytes from which an array has a section of its own, so that writing does not copy it."""
_ALIGN = 64
_RECORDS_PER_NODE = 16
"""The most records for each node that a model may have: the node, its type, dims, and constants."""
_CHARACTERS_PER_RECORD = 64
"""The characters of the graph that are accepted for each record that is."""
_WRONG_DATA = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
)
"""What wrong data raise in inference, besides errors of dlc."""
_DIGITS = 20
"""The most characters of an integer: those of a 64-bit number."""


@record(frozen=True, eq=False)
class PortableModel:
    """A file whose checksums are right. `digest` names its contents, seals excluded."""

    path: Path
    digest: str
    opened: Opened

    def module(self) -> IRModule:
        """The graphs. The arrays are read-only views of the file's copy in memory.

        Raises a DlcError unless the module is well formed and obeys the rules of portable models.
        """
        try:
            check_dtypes(self.path, self.opened.header.get("dtypes", {}))
            made = self._decoded()
            check_portable(made)
        except DlcError:
            raise
        except _WRONG_DATA as error:
            raise ArtifactError(
                f"the portable model {self.path} is malformed",
                why=f"{type(error).__name__}: {error}",
                hint="write the file again",
            ) from error
        return made

    def _decoded(self) -> IRModule:
        graph = bytes(self.opened.sections[GRAPH])
        _check_size(graph)
        try:
            data = json.loads(graph, parse_int=_integer, parse_float=_no_number, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"the graph of {self.path} is not JSON", why=str(error)) from None
        records = data.get("records") if isinstance(data, dict) else None
        if isinstance(records, list):
            check_nodes(len(records) // _RECORDS_PER_NODE)
            check_nodes(sum(isinstance(one, dict) and one.get("k") == "node" for one in records))
        with using_context(GraphContext()):
            made = decode(data, _kinds(), self._arrays())
        if not isinstance(made, IRModule):
            raise ArtifactError(f"{self.path} has no module", why=f"it has a {type(made).__name__}")
        return made

    def _arrays(self) -> list[Host]:
        listed = self.opened.header.get("arrays")
        if not isinstance(listed, list):
            raise ArtifactError(f"{self.path} lists no arrays", hint="write the file again")
        return [self._array(*_entry(self.path, entry)) for entry in listed]

    def _array(self, type_: DType, shape: tuple[int, ...], section: str, offset: int, repeated: bool) -> Host:
        data = self.opened.sections.get(section)
        size = type_.numpy.itemsize * (1 if repeated else math.prod(shape))
        if section == GRAPH or data is None or offset + size > data.nbytes:
            raise ArtifactError(
                f"an array of {self.path} is outside of its section",
                why=f"{size} bytes at {offset} of {section!r}",
                hint="write the file again",
            )
        check_bytes(type_.numpy.itemsize * math.prod(shape), "an array")
        raw = np.frombuffer(data, np.uint8, size, offset)
        bits = 1 if type_.is_bool else type_.bits
        if raw.size and bits < 8 and int(raw.max()) >> bits:
            raise ArtifactError(f"an array of {type_} in {self.path} has elements that are none")
        return np.broadcast_to(raw.view(type_.numpy)[0], shape) if repeated else _shaped(raw, type_, shape)


def read_portable(path: Path) -> PortableModel:
    """Read a portable model, and compare all sections with their checksums. It is not decoded yet.

    Raises ArtifactError for a file that is damaged, of another format version, or of another form.
    """
    opened = read_container(path)
    if not opened.envelope.portable:
        raise ArtifactError(
            f"{path} is compiled already",
            hint="dlc.open opens it; give dlc.compile the model from which it was made",
        )
    if GRAPH not in opened.sections:
        raise ArtifactError(f"{path} has no graph", hint="write the file again")
    opened.verify(*opened.sections)
    return PortableModel(path, opened.envelope.prefix[-32:].hex(), opened)


def write_portable(module: IRModule, path: Path) -> None:
    """Write a module. Raises the errors of `check_portable`, and ArtifactError if the file cannot be written.

    The names of model files in positions of the source are kept, their folders are not.
    """
    check_portable(module)
    arrays: list[Host] = []
    data = encode(_without_folder(module), _kinds(), arrays)
    for one in data["records"]:
        for span in one.get("spans", ()):
            span[0] = _file_name(span[0])
    sections, listed = _sections(arrays)
    graph = json.dumps(data, separators=(",", ":")).encode()
    _check_size(graph)
    header: dict[str, Any] = {"core": __version__, "arrays": listed}
    found = used_dtypes([graph, json.dumps(listed).encode()])
    if found:
        header["dtypes"] = found
    write_container(path, header, [(GRAPH, graph), *sections], seal=mark, magic=PORTABLE)


def _sections(arrays: Sequence[Host]) -> tuple[list[tuple[str, memoryview | bytes]], list[list[Any]]]:
    """The sections with arrays, and the entry of each array."""
    small = bytearray()
    large: list[tuple[str, memoryview | bytes]] = []
    listed: list[list[Any]] = []
    for array in arrays:
        type_, shape = DType.of(array.dtype), list(array.shape)
        repeated = array.size > 1 and not any(array.strides)
        data = bytes_of(np.ascontiguousarray(array.ravel()[:1] if repeated else array))
        if len(data) >= _LARGE:
            name = f"{_WEIGHTS}{len(large)}"
            large.append((name, data))
            listed.append([type_.name, shape, name, 0, False])
            continue
        small += bytes(-len(small) % _ALIGN)
        listed.append([type_.name, shape, _CONSTANTS, len(small), repeated])
        small += data
    return [(_CONSTANTS, bytes(small)), *large], listed


def _entry(path: Path, entry: Any) -> tuple[DType, tuple[int, ...], str, int, bool]:
    with decoding(f"the list of arrays of {path}"):
        name, shape, section, offset, repeated = items(entry)
        type_ = dtype(text(name))
        if type_.lanes != 1 or type_.kind in ("handle", "string"):
            malformed(f"no array has elements of {type_}")
        sizes = tuple(integer(size) for size in items(shape))
        return type_, sizes, text(section), integer(offset), boolean(repeated)


def _shaped(raw: Host, type_: DType, shape: tuple[int, ...]) -> Host:
    made: Host = raw.view(type_.numpy).reshape(shape)
    return made


def _kinds() -> tuple[Kind, ...]:
    """The kinds of records that a portable model may have."""
    kept = (*EXPRS, TensorType, TupleType, np.ndarray, IRModule)
    return (*(kind for kind in EXPR_KINDS if kind.type in kept), *graph_kinds(registered_ops()))


def _check_size(graph: bytes) -> None:
    check_nodes(len(graph) // (_RECORDS_PER_NODE * _CHARACTERS_PER_RECORD))


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _no_number(digits: str) -> NoReturn:
    raise ValueError(f"the number {digits[:_DIGITS]}")


def _without_folder(module: IRModule) -> IRModule:
    named: Mapping[str, Any] = {n: _file_name(v) if n == "source" else v for n, v in module.attrs.items()}
    return IRModule(module.functions, named, module.entry)


def _file_name(source: str) -> str:
    return source.replace("\\", "/").rpartition("/")[2] or source


__all__ = ["GRAPH", "PortableModel", "read_portable", "write_portable"]
