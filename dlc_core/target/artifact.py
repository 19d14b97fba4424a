"""Artefacts: the output of code generators and the input of devices.

    Codegen.emit(module, target) -> Artifact      pure; needs no hardware
    Device.load(artifact) -> Loaded               needs the hardware (or a simulator)

`Artifact.format` connects them: a third party may add a codegen for a device of ours, or a device for a
codegen of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from dlc_core.ir.module import IRModule
from dlc_core.support.record import record
from dlc_core.target.target import Target

COMPILED = "compiled"
"""Where an artefact's metadata has what a device's compiler says of the functions it made: by symbol, numbers
by names such as "registers"."""

Source = str | Callable[[], str]
"""Readable code, or what makes it when it is asked for."""


@record(frozen=True)
class Artifact:
    """Generated code.

    `code` is the payload that `Device.load` takes, `symbols` its entry points, `sources` readable forms by
    name. `metadata` is what the device needs to know besides, such as the features that the code uses: plain
    JSON data.
    """

    format: str
    code: bytes
    target: str
    symbols: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@runtime_checkable
class Codegen(Protocol):
    """A code generator.  `kinds` are the target kinds it serves; `format` what it emits.

    Several PrimFuncs may have the attribute `entry`; one that takes a single entry says so by `one_entry`.
    It may also have `emit_part(func, target)`, the code of one PrimFunc as plain data that `pickle` takes;
    `emit(module, target, parts)` then takes such code, by the names of functions, whose bodies may be left
    out: compiles may make it in several processes.
    It may have `export(executable, path) -> list[Path]`, which writes what runs without Python; `forms`, the
    names of all `sources` that `emit` gives; and `source(artifact, form) -> str | None`, which makes a
    readable form of an artefact that has not kept it, from those that it has.
    """

    name: str
    kinds: tuple[str, ...]
    format: str

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Code of every PrimFunc of the module; raises CodegenError for what cannot be expressed."""
        ...


__all__ = ["COMPILED", "Artifact", "Codegen", "Source"]
