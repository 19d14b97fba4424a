"""Commands: the instructions of units, as values.

A command is a nest of loops over strided operands. The first operand is the target.

    LOAD, STORE    target[i] = source[i]                         elements outside of `inside` are `value`
    PRODUCT        target[i] (+)= left[i] * right[i]             summed over loops in which target is still
    VECTOR         target[i] = value(sources[i])                 `value` is a postfix program

A stream is the list of all commands in program order. The queue of each unit has the commands of that unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc_core.diag import ArtifactError
from dlc_core.ir.dtype import dtype
from dlc_core.support.record import record
from dlc_core.target.units import LOAD, PRODUCT, STORE, VECTOR, MemoryScope, Unit

MAIN = ""
"""The space of main memory: `Operand.memory` is the number of a buffer of the entry point."""


@record(frozen=True)
class Operand:
    """The elements of a memory that a command accesses.

    `space` is MAIN or a memory scope. `memory` is the buffer of the entry point in main memory; on the chip
    it is the number of the tile, whose address `offset` includes once tiles are placed. `offset` and
    `strides` are bytes; there is one stride for each loop.
    """

    space: str
    memory: int
    offset: int
    strides: tuple[int, ...]
    dtype: str

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return dtype(self.dtype).itemsize

    def interval(self, inside: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """The first byte of the elements in a box of iterations, and the byte after the last."""
        ends = [
            (stride * begin, stride * (end - 1))
            for stride, (begin, end) in zip(self.strides, inside, strict=True)
        ]
        low, high = (self.offset + sum(choose(pair) for pair in ends) for choose in (min, max))
        return low, high + self.itemsize


@record(frozen=True)
class Command:
    """One instruction. `pops` are the units whose tokens it waits for, `pushes` those that it gives one."""

    unit: str
    work: str
    extents: tuple[int, ...]
    operands: tuple[Operand, ...]
    value: tuple[str, ...] = ()
    inside: tuple[tuple[int, int], ...] = ()
    """For a copy with a border: the iterations of each loop that read the source. Empty: all."""
    fresh: bool = False
    """Whether a product overwrites its target."""
    pops: tuple[str, ...] = ()
    pushes: tuple[str, ...] = ()

    @property
    def target(self) -> Operand:
        return self.operands[0]

    @property
    def sources(self) -> tuple[Operand, ...]:
        return self.operands[1:]

    @property
    def whole(self) -> tuple[tuple[int, int], ...]:
        """All iterations, as a box."""
        return tuple((0, extent) for extent in self.extents)

    @property
    def is_empty(self) -> bool:
        """Whether it has no iteration."""
        return 0 in self.extents

    def reads(self) -> list[tuple[Operand, tuple[int, int]]]:
        """The operands that it reads, with their bytes."""
        if self.inside:
            if any(begin >= end for begin, end in self.inside):
                return []
            return [(each, each.interval(self.inside)) for each in self.sources]
        read = self.sources if self.work != PRODUCT or self.fresh else self.operands
        return [(each, each.interval(self.whole)) for each in read]

    def writes(self) -> tuple[Operand, tuple[int, int]]:
        """The target, with its bytes."""
        return self.target, self.target.interval(self.whole)

    def __str__(self) -> str:
        names = [f"{o.space or 'main'}{o.memory}[{o.offset}]" for o in self.operands]
        what = f"{self.unit}: {self.work} {names[0]} <- {', '.join(names[1:]) or ' '.join(self.value)}"
        size = "x".join(map(str, self.extents)) or "1"
        tokens = "".join(f", after {unit}" for unit in self.pops) + "".join(
            f", then {unit}" for unit in self.pushes
        )
        return f"{what} ({size}{tokens})"


def matrix_sizes(command: Command) -> tuple[int, int, int]:
    """The sizes M, N and K of a product [M, K] by [K, N]. M are the dims of the first source."""
    target, left, right = command.operands
    sizes = [1, 1, 1]
    for number, extent in enumerate(command.extents):
        moves = [operand.strides[number] != 0 for operand in (target, left, right)]
        kind = 2 if not moves[0] else 0 if moves[1] else 1
        sizes[kind] *= extent
    return sizes[0], sizes[1], sizes[2]


NEAR = 16
"""Elements at most so many bytes apart are one run: a copy fetches the bytes between them too."""


def runs(extents: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The number of runs of bytes in a strided box, and the bytes of each."""
    size, count = itemsize, 1
    for stride, extent in sorted(zip((abs(s) for s in strides), extents, strict=True)):
        if extent == 1 or stride == 0:  # an element that is read once and spread is moved once
            continue
        if stride == size and count == 1:
            size *= extent
        elif size == itemsize and count == 1 and stride <= NEAR:
            size += stride * (extent - 1)
        else:
            count *= extent
    return count, size


def duration(command: Command, unit: Unit, scope: MemoryScope | None = None) -> int:
    """The cycles that a unit takes for a command, by the description. `scope` is that of the memory on the
    chip.
    """
    if command.work in (LOAD, STORE):
        box = command.inside or command.whole
        extents = [max(0, end - begin) for begin, end in box]
        main = next((o for o in command.operands if o.space == MAIN), command.target)
        count, size = runs(extents, main.strides, main.itemsize)
        return unit.copy_cycles(count if math.prod(extents) else 0, size, scope)
    if command.work == PRODUCT:
        return unit.product_cycles(*matrix_sizes(command))
    operations = sum(not word.startswith(("x", "#")) for word in command.value)
    return unit.vector_cycles(math.prod(command.extents), operations)


def normal(command: Command) -> Command:
    """The command with as few loops as possible: those of one iteration are removed, and joined are those
    that together walk with a constant stride.
    """
    rows = [
        (extent, tuple(o.strides[i] for o in command.operands), command.inside[i] if command.inside else None)
        for i, extent in enumerate(command.extents)
        if extent != 1 or (command.inside and command.inside[i] != (0, 1))
    ]
    joined: list[tuple[int, tuple[int, ...], tuple[int, int] | None]] = []
    for extent, strides, box in rows:
        if joined:
            outer, outer_strides, outer_box = joined[-1]
            full = box is None or box == (0, extent)
            if full and all(a == b * extent for a, b in zip(outer_strides, strides, strict=True)):
                span = None if outer_box is None else (outer_box[0] * extent, outer_box[1] * extent)
                joined[-1] = (outer * extent, strides, span)
                continue
        joined.append((extent, strides, box))
    operands = tuple(
        Operand(o.space, o.memory, o.offset, tuple(row[1][n] for row in joined), o.dtype)
        for n, o in enumerate(command.operands)
    )
    inside = tuple(row[2] or (0, row[0]) for row in joined) if command.inside else ()
    if all(span == (0, row[0]) for span, row in zip(inside, joined, strict=False)):
        inside = ()
    extents = tuple(row[0] for row in joined)
    return Command(
        command.unit, command.work, extents, operands, command.value, inside, command.fresh, command.pops,
        command.pushes,
    )  # fmt: skip


def to_data(command: Command) -> list[Any]:
    """The command as JSON data."""
    operands = [[o.space, o.memory, o.offset, list(o.strides), o.dtype] for o in command.operands]
    rest = [list(command.value), [list(pair) for pair in command.inside], command.fresh]
    return [
        command.unit, command.work, list(command.extents), operands, *rest, list(command.pops),
        list(command.pushes),
    ]  # fmt: skip


def from_data(data: Any) -> Command:
    """The inverse of `to_data`. Raises ArtifactError for other data."""
    try:
        unit, work, extents, operands, value, inside, fresh, pops, pushes = data
        made = tuple(
            Operand(s, int(m), int(o), tuple(map(int, st)), dtype(d).name) for s, m, o, st, d in operands
        )
        command = Command(
            unit, work, tuple(map(int, extents)), made, tuple(value), tuple((int(a), int(b)) for a, b in
            inside), bool(fresh), tuple(pops), tuple(pushes),
        )  # fmt: skip
        wrong = work not in (LOAD, STORE, PRODUCT, VECTOR) or any(
            len(o.strides) != len(extents) for o in made
        )
        wrong = wrong or (work == PRODUCT and len(made) != 3) or min(extents, default=0) < 0
    except (TypeError, ValueError, KeyError) as error:
        raise ArtifactError("the artefact has a malformed command", why=f"{error!r}") from None
    if wrong:
        raise ArtifactError("the artefact has a malformed command", why=str(data)[:200])
    return command


__all__ = [
    "MAIN",
    "Command",
    "Operand",
    "duration",
    "from_data",
    "matrix_sizes",
    "normal",
    "runs",
    "to_data",
]
