"""Artefacts: the output of code generators and the input of devices.

    Codegen.emit(module, target) -> Artifact      pure; needs no hardware
    Device.load(artifact) -> Loaded               needs the hardware (or a simulator)

`Artifact.format` connects the two. A package may add a code generator for a device of another package, or a
device for another package's code generator.
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
"""The key of an artefact's metadata for statistics of a device's compiler: by symbol, numbers by names such
as "registers"."""

FLAGS = "flags"
"""The key of an artefact's metadata for the options of the compiler that reads its text."""

GENERATED, CONFINED, REFUSED = "generated", "confined", "refused"
"""How a compiler of this machine may read source text of an artefact: as it reads what this process has
generated; as text of a file, which may include known headers only, with known options; or not at all."""

Source = str | Callable[[], str]
"""Readable code, or a function that makes it on request."""


@record(frozen=True)
class Artifact:
    """Generated code.

    `code` is the payload that `Device.load` takes. `symbols` are its entry points. `sources` are readable
    forms by name. `metadata` is JSON data with everything else that the device needs, such as the processor
    features that the code uses. `reading` is for artefacts of files: GENERATED, CONFINED or REFUSED.
    """

    format: str
    code: bytes
    target: str
    symbols: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    reading: str = GENERATED


@runtime_checkable
class Codegen(Protocol):
    """A code generator. `kinds` are the target kinds that it serves; `format` is the format of its artefacts.

    Several PrimFuncs of a module may have the attribute `entry`. A code generator that supports only one
    entry sets `one_entry`. These members are optional:

    - `emit_part(func, target)` returns the code of one PrimFunc as bytes, in a form of its own. `emit(module,
      target, parts)` then takes such code by function name, also of functions that had another name, and the
      bodies of these functions may be missing. This allows compiles by several processes, and kernels from
      the cache.
    - `supports(node)` or `supports(node, target)` returns True for a node of the graph that it takes, or the
      reason why not as text. Then it takes only these nodes, and the others go to the next target. Nodes are
      those after constant folding; nodes in bodies of control flow are asked for too. Without it a code
      generator takes all nodes that have a lowering, in dtypes of the description.
    - `cost(node, target)` predicts the seconds of a node, for placement by cost; without it the cost model
      predicts them from the description.
    - `export(executable, path) -> list[Path]` writes files that run without Python.
    - `library(executable) -> bytes` returns a shared library without the weights. A saved file contains it
      for runtimes without Python (`exe.save(path, library=True)`).
    - `exports_programs = True` says that `export` and `library` write models with regions on devices too, by
      `dlc_core.backend.deploy.HostProgram`.
    - `formats` are the formats of its artefacts if there are several.
    - `source_formats` are the rules of formats that a compiler of this machine reads, as for devices.
    - `forms` are the names of all `sources` that `emit` returns.
    - `source(artifact, form) -> str | None` makes a readable form that an artefact does not contain from
      those that it contains.
    - `release()` frees memory that the code generator needs only during a compile. It is called after the
      compile of a model.
    """

    name: str
    kinds: tuple[str, ...]
    format: str

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """The code of every PrimFunc of the module. Raises CodegenError for unsupported programs."""
        ...


__all__ = [
    "COMPILED",
    "CONFINED",
    "FLAGS",
    "GENERATED",
    "REFUSED",
    "Artifact",
    "Codegen",
    "Source",
]
