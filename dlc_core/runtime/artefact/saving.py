"""Executables as files.

    save(exe, path)                   `exe.save`
    read(path, ...) -> Saved          the checked parts of an executable; no code is run

A saved executable has the sections `code`, `weights`, `about` (JSON data for profiles and explanations),
`program` if parts of it run on the host, and `source:<form>` for each kept source. Each region of another
target is a separate executable: its sections have its name and "/" as a prefix, and its header is under
`regions` in the header of the file. Parts, functions that were compiled separately, are kept in the same way
under `parts`, with the prefix "part:", the name and "/". A part may have regions; neither has parts. The
section `library` is for runtimes without Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dlc_core.diag import ArtifactError
from dlc_core.runtime.artefact.compiled import CompiledModel
from dlc_core.runtime.artefact.container import Accept, Opened, read_container
from dlc_core.runtime.artefact.contract import CODE
from dlc_core.runtime.artefact.dtypes import check_dtypes, used_dtypes
from dlc_core.runtime.artefact.marks import mark
from dlc_core.runtime.artefact.seals import Seal
from dlc_core.runtime.artefact.writing import write_container
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.memory.host import NDArray, bytes_of
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record
from dlc_core.target import Artifact
from dlc_core.version import __version__

if TYPE_CHECKING:
    from dlc_core.runtime.host_program import program as hosted
else:
    hosted = lazy("dlc_core.runtime.host_program.program")


MADE_FROM = "made_from"
"""The key of the header with the parts of the cache's key."""
KEY = "key"
"""The key of the header with the cache's key."""
LIBRARY = "library"
"""The section with a shared library; Python does not use it."""
_PART = "part:"
"""The beginning of the names of a part's sections."""


@record(frozen=True)
class Saved:
    """The contents of a file.

    `target` and `plugins` are texts; the opener checks whether they exist here.
    """

    signature: Signature
    artifact: Artifact
    weights: NDArray
    """A read-only view of the mapped file."""
    about: Mapping[str, Any]
    program: hosted.Program | None
    entry: str
    target: str
    device: str
    codegen: str
    regions: Mapping[str, Saved]
    """The parts for other targets, by name."""
    parts: Mapping[str, Saved]
    """Functions that were compiled separately, by name."""
    core: str
    """The version of dlc-core that wrote it."""
    key: str | None = None
    """The key of the cache under which it was stored; None for a file that is not of the cache."""


def save(
    exe: CompiledModel,
    path: Path,
    sources: Iterable[str] = (),
    *,
    durable: bool = True,
    made_from: Mapping[str, Any] | None = None,
    key: str | None = None,
    library: bytes | None = None,
    folder: int | None = None,
    private: bool = False,
    seal: Callable[[bytes], Seal | None] | None = mark,
) -> None:
    """Write an executable. Raises ArtifactError if the file cannot be written. `made_from` and `key` are
    stored in the header. `library` is a shared library of the same functions, for runtimes without Python.
    `folder` is the descriptor of the path's folder, if it is open. No other user can read a `private` file.
    `seal` makes the seal for the prefix of the file: by default this user's mark.
    """
    header = {"core": __version__, **_header(exe)}
    if made_from is not None:
        header[MADE_FROM] = dict(made_from)
    if key is not None:
        header[KEY] = key
    extra = [] if library is None else [(LIBRARY, library)]
    write_container(
        path,
        header,
        [*extra, *_sections(exe, "", sources)],
        durable=durable,
        folder=folder,
        private=private,
        seal=seal,
    )


def _header(exe: CompiledModel) -> dict[str, Any]:
    artifact = exe.artifact
    header: dict[str, Any] = {
        "target": str(exe.target),
        "codegen": exe.target.codegen,
        "device": exe.target.kind.device,
        "format": artifact.format,
        "entry": exe.entry,
        "symbols": list(artifact.symbols),
        "metadata": dict(artifact.metadata),
        "signature": encode_signature(exe.signature),
    }
    texts = [json.dumps(header["signature"]).encode(), artifact.code]
    found = used_dtypes(texts if exe.program is None else [*texts, exe.program.encode()])
    if found:
        header["dtypes"] = found
    if exe.regions:
        header["regions"] = {name: _header(region) for name, region in exe.regions.items()}
    if exe.parts:
        header["parts"] = {name: _header(part) for name, part in exe.parts.items()}
    return header


def _sections(
    exe: CompiledModel, prefix: str, sources: Iterable[str] = ()
) -> list[tuple[str, memoryview | bytes]]:
    about = json.dumps(dict(exe.about), separators=(",", ":")).encode()
    own: list[tuple[str, memoryview | bytes]] = [
        (CODE, exe.artifact.code),
        *[(f"source:{form}", exe.source(form).encode()) for form in sources],
        *([] if exe.program is None else [("program", exe.program.encode())]),
        ("about", about),
    ]
    sections = [(prefix + name, data) for name, data in own]
    for name, region in exe.regions.items():
        sections += _sections(region, f"{prefix}{name}/")
    for name, part in exe.parts.items():
        sections += _sections(part, f"{_PART}{name}/")
    # The weights are last, so that the sections that are read at once are contiguous.
    return [*sections, (f"{prefix}weights", bytes_of(exe.weights))]


def read(
    path: Path,
    *,
    verify: bool = False,
    file: BinaryIO | None = None,
    mapped: bool = False,
    accept: Accept | None = None,
) -> Saved:
    """Read and check a file. With `verify` the checksum of the weights is checked too, which reads all of
    them. `file` is the file of the path, if it is open. `mapped` and `accept` are as for `read_container`.

    Raises ArtifactError for a file that is damaged, malformed or of another format version.
    """
    opened = read_container(path, file, mapped=mapped, accept=accept)
    if opened.envelope.portable:
        raise ArtifactError(
            f"{path} is a portable model, and has no code", hint="dlc.open or dlc.compile compiles it"
        )
    _check_complete(path, opened, "")
    unverified = () if verify or opened.strict else ("weights", LIBRARY)
    opened.verify(*(name for name in opened.sections if name.rpartition("/")[2] not in unverified))
    opened.check_contract()
    return _saved(path, opened, opened.header, "", _text(path, opened.header.get("core")))


def _check_complete(path: Path, opened: Opened, prefix: str) -> None:
    for name in (CODE, "about", "weights"):
        if prefix + name not in opened.sections:
            raise ArtifactError(f"{path} has no section {prefix + name!r}", hint="compile the model again")


def _saved(path: Path, opened: Opened, header: Mapping[str, Any], prefix: str, core: str) -> Saved:
    """The executable whose sections have the name prefix `prefix`."""
    check_dtypes(path, header.get("dtypes", {}))
    signature = decode_signature(header.get("signature"))
    weights = np.frombuffer(opened.sections[f"{prefix}weights"], np.uint8)
    if weights.nbytes != signature.weights_size:
        why = f"they are {weights.nbytes} bytes, and the signature says {signature.weights_size}"
        raise ArtifactError(f"the weights of {path} have the wrong size", why=why)
    texts: dict[str, str] = {"core": core}
    for key in ("format", "entry", "target", "device", "codegen"):
        texts[key] = _text(path, header.get(key))
    symbols, metadata = header.get("symbols"), header.get("metadata")
    if not isinstance(symbols, list) or not isinstance(metadata, dict):
        raise _malformed(path)
    artifact = Artifact(
        format=texts.pop("format"),
        code=bytes(opened.sections[f"{prefix}{CODE}"]) if prefix else opened.code(),
        target=texts["target"],
        symbols=tuple(_text(path, symbol) for symbol in symbols),
        sources=_sources(opened, prefix),
        metadata=MappingProxyType(metadata),
    )
    program = None
    if f"{prefix}program" in opened.sections:
        program = hosted.Program.decode(bytes(opened.sections[f"{prefix}program"]))
    if header.get("regions") and program is None:
        raise _malformed(path)

    stored_as = header.get(KEY)

    def inner(kind: str, start: str, without: Sequence[str]) -> dict[str, Saved]:
        return {
            name: _inner(path, opened, data, f"{start}{name}/", core, without)
            for name, data in _named(path, header.get(kind, {}))
        }

    return Saved(
        signature,
        artifact,
        weights,
        _about(opened, prefix),
        program,
        # Regions belong to the host program of a model, parts to the file: neither contains its own kind.
        regions=inner("regions", prefix, ("regions", "parts")),
        parts=inner("parts", _PART, ("parts",)),
        key=stored_as if isinstance(stored_as, str) else None,
        **texts,
    )


def _named(path: Path, listed: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(listed, dict):
        raise _malformed(path)
    return listed.items()


def _inner(path: Path, opened: Opened, header: Any, prefix: str, core: str, without: Sequence[str]) -> Saved:
    """A region or a part, whose header does not have the keys `without`."""
    _check_complete(path, opened, prefix)
    if not isinstance(header, dict) or any(key in header for key in without):
        raise _malformed(path)
    return _saved(path, opened, header, prefix, core)


def _text(path: Path, value: Any) -> str:
    if not isinstance(value, str):
        raise _malformed(path)
    return value


def _malformed(path: Path) -> ArtifactError:
    return ArtifactError(f"the header of {path} is malformed", hint="compile the model again")


def _sources(opened: Opened, prefix: str) -> Mapping[str, Any]:
    def text(name: str) -> str:
        return bytes(opened.sections[name]).decode("utf-8", "replace")

    start = f"{prefix}source:"
    return {
        name.removeprefix(start): lambda name=name: text(name)
        for name in opened.sections
        if name.startswith(start)
    }


def _about(opened: Opened, prefix: str) -> Mapping[str, Any]:
    try:
        about = json.loads(bytes(opened.sections[f"{prefix}about"]))
    except (ValueError, RecursionError) as error:
        raise ArtifactError("the artefact's description is not JSON", why=str(error)) from None
    if not isinstance(about, dict):
        raise ArtifactError("the artefact's description is not a JSON object")
    return about


__all__ = ["KEY", "LIBRARY", "MADE_FROM", "Saved", "read", "save"]
