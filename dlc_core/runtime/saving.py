"""Executables as files.

    save(exe, path)                   `exe.save`
    read(path, ...) -> Saved          the parts of an executable, checked, nothing of it run

A saved executable has the sections `code`, `weights`, `about` (what profiles and explanations show: JSON),
`program` where parts of it run on the host, and `source:<form>` for each kept source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core.diag import ArtifactError
from dlc_core.lazy import lazy
from dlc_core.runtime.container import Opened, read_container, write_container
from dlc_core.runtime.encode import decode_signature, encode_signature
from dlc_core.runtime.memory import NDArray, bytes_of
from dlc_core.runtime.signature import Signature
from dlc_core.target import Artifact
from dlc_core.version import __version__

if TYPE_CHECKING:
    from dlc_core.runtime import hosted
    from dlc_core.runtime.executable import Executable
else:
    hosted = lazy("dlc_core.runtime.hosted")


@dataclass(frozen=True)
class Saved:
    """What a file holds.  `target` and `plugins` are texts: whether they exist here is for the
    opener to see.
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
    core: str
    """The version of dlc-core that wrote it."""


def save(
    exe: Executable,
    path: Path,
    sources: Iterable[str] = (),
    *,
    durable: bool = True,
    made_from: Mapping[str, Any] | None = None,
) -> None:
    """Write an executable; raises ArtifactError where the file cannot be written.

    `made_from` is kept in its header.
    """
    artifact = exe.artifact
    header = {
        "core": __version__,
        "target": str(exe.target),
        "codegen": exe.target.kind.codegen,
        "device": exe.target.kind.device,
        "format": artifact.format,
        "entry": exe.entry,
        "symbols": list(artifact.symbols),
        "metadata": dict(artifact.metadata),
        "signature": encode_signature(exe.signature),
        **({} if made_from is None else {"made_from": dict(made_from)}),
    }
    about = json.dumps(dict(exe.about), separators=(",", ":")).encode()
    texts = [(f"source:{form}", exe.source(form).encode()) for form in sources]
    sections: list[tuple[str, memoryview | bytes]] = [
        ("code", artifact.code),
        *texts,
        *([] if exe.program is None else [("program", exe.program.encode())]),
        ("about", about),
        ("weights", bytes_of(exe.weights)),
    ]
    write_container(path, header, sections, durable=durable)


def read(path: Path, *, verify: bool = False) -> Saved:
    """Read and check a file; `verify` compares the weights with their checksum too, which reads all of them.

    Raises ArtifactError for what is damaged, malformed or of another format version.
    """
    opened = read_container(path)
    missing = [name for name in ("code", "about", "weights") if name not in opened.sections]
    if missing:
        raise ArtifactError(f"{path} has no section {missing[0]!r}", hint="compile the model again")
    opened.verify(*(name for name in opened.sections if verify or name != "weights"))
    header = opened.header
    signature = decode_signature(header.get("signature"))
    weights = np.frombuffer(opened.sections["weights"], np.uint8)
    if weights.nbytes != signature.weights_size:
        why = f"they are {weights.nbytes} bytes, and the signature says {signature.weights_size}"
        raise ArtifactError(f"the weights of {path} do not fit", why=why)
    words: dict[str, str] = {}
    for key in ("format", "entry", "target", "device", "codegen", "core"):
        words[key] = _text(path, header.get(key))
    symbols, metadata = header.get("symbols"), header.get("metadata")
    if not isinstance(symbols, list) or not isinstance(metadata, dict):
        raise _malformed(path)
    artifact = Artifact(
        format=words.pop("format"),
        code=bytes(opened.sections["code"]),
        target=words["target"],
        symbols=tuple(_text(path, symbol) for symbol in symbols),
        sources=_sources(opened),
        metadata=MappingProxyType(metadata),
    )
    program = None
    if "program" in opened.sections:
        program = hosted.Program.decode(bytes(opened.sections["program"]))
    return Saved(signature, artifact, weights, _about(opened), program, **words)


def _text(path: Path, value: Any) -> str:
    if not isinstance(value, str):
        raise _malformed(path)
    return value


def _malformed(path: Path) -> ArtifactError:
    return ArtifactError(f"the header of {path} is malformed", hint="compile the model again")


def _sources(opened: Opened) -> Mapping[str, Any]:
    def text(name: str) -> str:
        return bytes(opened.sections[name]).decode("utf-8", "replace")

    return {
        name.removeprefix("source:"): lambda name=name: text(name)
        for name in opened.sections
        if name.startswith("source:")
    }


def _about(opened: Opened) -> Mapping[str, Any]:
    try:
        about = json.loads(bytes(opened.sections["about"]))
    except (ValueError, RecursionError) as error:
        raise ArtifactError("the artefact's description is no JSON", why=str(error)) from None
    if not isinstance(about, dict):
        raise ArtifactError("the artefact's description is no JSON object")
    return about


__all__ = ["Saved", "read", "save"]
