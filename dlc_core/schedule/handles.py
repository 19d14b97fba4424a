"""Handles to loops and blocks of a scheduled program. They stay valid while primitives rebuild the
program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from dlc_core.ir.expr import Var
from dlc_core.support.record import record


@dataclass(frozen=True)
class BlockRV:
    """A block, identified by its name, which is unique in its function.

    `func` is the name of the function if the Schedule is of a module, else empty.
    """

    name: str
    func: str = ""

    def __repr__(self) -> str:
        return f"BlockRV({self.name!r})" if not self.func else f"BlockRV({self.name!r}, {self.func!r})"


@dataclass(frozen=True)
class LoopRV:
    """A loop, identified by its variable."""

    var: Var

    @property
    def name(self) -> str:
        return self.var.name

    def __repr__(self) -> str:
        return f"LoopRV({self.var.name!r})"


@record(frozen=True)
class Copy:
    """One of the consecutive loops that a partition made of a loop.

    `copy[handle]` is this copy's handle of a block or loop inside the partitioned loop.  Other handles are
    returned as they are.
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

    `tail` is the loop over the tail after the full tiles, with the handles of its copies; None if there is no
    tail or the loop was not partitioned.
    """

    tail: Copy | None

    def __new__(cls, loops: Iterable[LoopRV], tail: Copy | None = None) -> Loops:
        self = super().__new__(cls, tuple(loops))
        self.tail = tail
        return self


class Drawn(int):
    """A number that a sampling primitive drew.

    Pass it to other primitives directly, not as a part of an expression: then replaying the trace with
    another decision replaces it there too.
    """

    __slots__ = ()


Handle = BlockRV | LoopRV


def flat(result: Any) -> Iterator[Handle]:
    """The handles in a primitive's result, in a fixed order."""
    if isinstance(result, (BlockRV, LoopRV)):
        yield result
    elif isinstance(result, Copy):
        yield from result.loops.values() if result.loops else (result.loop,)
        yield from result.blocks.values()
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from flat(item)
        if isinstance(result, Loops):
            yield from flat(result.tail)


def with_handles(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to every element of the containers in a primitive's argument or result."""
    if isinstance(value, Loops):
        return Loops((change(v) for v in value), with_handles(value.tail, change))
    if isinstance(value, Copy):
        loops = {k: change(v) for k, v in value.loops.items()}
        blocks = {change(k): change(v) for k, v in value.blocks.items()}
        return Copy(change(value.loop), loops, blocks)
    if isinstance(value, (list, tuple)):
        items = [with_handles(v, change) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    return change(value)


__all__ = ["BlockRV", "Copy", "Drawn", "Handle", "LoopRV", "Loops", "flat", "with_handles"]
