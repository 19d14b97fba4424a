"""Handles to parts of a scheduled program.  They stay valid while primitives rebuild the tree around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import overload

from dlc_core.ir.expr import Var


@dataclass(frozen=True)
class BlockRV:
    """A block, by its name: a Schedule keeps the names of blocks unique."""

    name: str

    def __repr__(self) -> str:
        return f"BlockRV({self.name!r})"


@dataclass(frozen=True)
class LoopRV:
    """A loop, by the identity of its variable."""

    var: Var

    @property
    def name(self) -> str:
        return self.var.name

    def __repr__(self) -> str:
        return f"LoopRV({self.var.name!r})"


@dataclass(frozen=True)
class Copy:
    """One of the consecutive loops that a loop was partitioned into.

    `copy[handle]` is what a block or a loop inside the partitioned loop is called in this copy; handles to
    anything outside stand for themselves.
    """

    loop: LoopRV
    loops: Mapping[LoopRV, LoopRV] = field(default_factory=dict)
    blocks: Mapping[BlockRV, BlockRV] = field(default_factory=dict)

    @overload
    def __getitem__(self, handle: LoopRV) -> LoopRV: ...
    @overload
    def __getitem__(self, handle: BlockRV) -> BlockRV: ...
    def __getitem__(self, handle: LoopRV | BlockRV) -> LoopRV | BlockRV:
        if isinstance(handle, LoopRV):
            return self.loops.get(handle, handle)
        return self.blocks.get(handle, handle)


class Loops(tuple[LoopRV, ...]):
    """The loops that a split made, outer to inner.

    `tail` is the loop over what full tiles leave, with the names its copies go by; None where nothing is left
    or nothing was partitioned.
    """

    tail: Copy | None

    def __new__(cls, loops: Iterable[LoopRV], tail: Copy | None = None) -> Loops:
        self = super().__new__(cls, tuple(loops))
        self.tail = tail
        return self


__all__ = ["BlockRV", "Copy", "LoopRV", "Loops"]
