"""The steps of a host program in C, and the memory that they use."""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.ir.expr import Expr


@dataclass(frozen=True)
class HostPlace:
    """Memory of the host: an input, an output, a constant (by its offset in the weights), or a slot of the
    workspace.
    """

    kind: str
    index: int


@dataclass(frozen=True)
class DevicePlace:
    """Memory of a device: a slot of the frame, or a constant by its index."""

    kind: str
    index: int


@dataclass(frozen=True)
class Native:
    """A call of a native segment."""

    symbol: str
    inputs: tuple[HostPlace, ...]
    outputs: tuple[HostPlace, ...]
    arena: int | None
    """A slot of the workspace."""
    scalars: tuple[Expr, ...]
    sites: int | None
    """The number of the first of its kernels with checks; None without checks."""


@dataclass(frozen=True)
class Launch:
    """A launch of a region, by its number."""

    region: int
    inputs: tuple[DevicePlace, ...]
    outputs: tuple[DevicePlace, ...]
    arena: int | None
    """A slot of the frame."""
    scalars: tuple[Expr, ...]
    sites: int | None


@dataclass(frozen=True)
class Reserve:
    """Make a slot of the frame large enough."""

    slot: int
    size: Expr


@dataclass(frozen=True)
class Write:
    """Copy from the host to a slot of the frame."""

    slot: int
    source: HostPlace
    size: Expr


@dataclass(frozen=True)
class Read:
    """Copy from a slot of the frame to the host."""

    to: HostPlace
    slot: int
    size: Expr


@dataclass(frozen=True)
class Move:
    """Copy between devices, if need be through the host."""

    to: int
    slot: int
    buffer: HostPlace
    size: Expr


@dataclass(frozen=True)
class Copy:
    """Copy on the host."""

    to: HostPlace
    source: HostPlace
    size: Expr


@dataclass(frozen=True)
class Branch:
    """One of two lists of steps. `condition` is a bool."""

    condition: HostPlace
    then: tuple[Step, ...]
    orelse: tuple[Step, ...]


@dataclass(frozen=True)
class Loop:
    """Steps that are repeated while `condition`, a bool that the first list computes, holds."""

    before: tuple[Step, ...]
    condition: HostPlace
    body: tuple[Step, ...]


Step = Branch | Loop | Native | Launch | Reserve | Write | Read | Move | Copy

__all__ = [
    "Branch",
    "Copy",
    "DevicePlace",
    "HostPlace",
    "Launch",
    "Loop",
    "Move",
    "Native",
    "Read",
    "Reserve",
    "Step",
    "Write",
]
