"""The border between the compile half and the run half: code generators emit artefacts, devices load them.

    Codegen.emit(module, target) -> Artifact      pure; needs no hardware
    Device.load(artifact) -> Loaded               needs the hardware (or a simulator)

They meet at `Artifact.format`: a third party may add a codegen for a device of ours, or a device for a codegen of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from dlc_core.ir.module import IRModule
from dlc_core.target.target import Target


@dataclass(frozen=True)
class Artifact:
    """Generated code.  `code` is the payload that `Device.load` takes; `sources` are readable forms by name."""

    format: str
    code: bytes
    target: str
    symbols: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@runtime_checkable
class Codegen(Protocol):
    """A code generator.  `kinds` are the target kinds it serves; `format` what it emits."""

    name: str
    kinds: tuple[str, ...]
    format: str

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Code of every PrimFunc of the module; raises CodegenError for what cannot be expressed."""
        ...


@runtime_checkable
class Loaded(Protocol):
    """Code ready to run on a device."""

    def entry(self, symbol: str) -> Any:
        """A handle of a function, for `Device.launch`."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Device(Protocol):
    """A place where artefacts run.  `formats` are the artefact formats it loads.

    Memory is named by opaque handles (integers: addresses, where the device has them).  Sizes are in bytes.
    """

    name: str
    formats: tuple[str, ...]

    def alloc(self, size: int, align: int = 64) -> int: ...

    def free(self, handle: int) -> None: ...

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None: ...

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None: ...

    def load(self, artifact: Artifact) -> Loaded: ...

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run a function on buffers (handles, in parameter order) and by-value integers.  May return early."""
        ...

    def sync(self) -> None:
        """Wait until everything launched has finished; raises RuntimeFailure for what failed."""
        ...
