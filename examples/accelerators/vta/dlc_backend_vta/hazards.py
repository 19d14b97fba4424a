"""Whether tokens order what they must: the checker of streams, by the core's library.

A read needs the write of what it reads, and that there was one on the chip. A write needs the earlier writes
and reads of what it overwrites. On the chip these are entries, on the card the bytes from the first to the
last one that a transfer touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dlc_backend_vta.config import ACC, INP, MEMORIES, UOP, WGT, Config
from dlc_backend_vta.isa import TWO, Alu, Gemm, Instruction, Load, Op, Store, takes_and_gives
from dlc_backend_vta.machine import Machine
from dlc_backend_vta.transfer import on_chip, reach
from dlc_core.backend.scratchpad.tokens import Task, check_tasks
from dlc_core.diag import RuntimeFailure

NDArray = np.ndarray[Any, Any]
Touched = tuple[int, NDArray, bool]
"""A memory on the chip, its entries, and whether they are written."""


class Hazard(RuntimeFailure):
    """Two instructions touch the same memory, and no token orders them."""


def check(program: Iterable[Instruction], config: Config, card: Sequence[NDArray]) -> None:
    """Raise Hazard for the first instruction that tokens do not order behind what it needs.

    `card` is the memory of the card, which stays as it is; its bytes count as written before the stream.
    """
    try:
        check_tasks(_tasks(program, config, card))
    except Hazard:
        raise
    except RuntimeFailure as error:
        raise Hazard(error.what, why=error.why) from error


def _tasks(program: Iterable[Instruction], config: Config, card: Sequence[NDArray]) -> Iterator[Task]:
    machine = Machine(config)  # for the micro-operations, which say what is touched
    written = [np.zeros(count, bool) for count in config.entries]
    for one in program:
        touched: list[tuple[object, int, int, bool]] = []
        for memory, entries, writes in _on_chip(one, config, machine):
            if not writes and not written[memory][entries].all():
                raise Hazard(f"{one} reads what was never written, in {MEMORIES[memory]}")
            written[memory][entries] |= writes
            touched += [(memory, *run, writes) for run in _runs(entries)]
        if isinstance(one, (Load, Store)):
            touched.append((("card", one.base), one.offset, reach(one), isinstance(one, Store)))
        if isinstance(one, Load) and one.memory == UOP:
            machine.step(one, card)
        yield Task(one.unit.name.lower(), touched, *takes_and_gives(one), one)


def _on_chip(one: Instruction, config: Config, machine: Machine) -> list[Touched]:
    """The entries that an instruction reads, and then those that it writes."""
    if isinstance(one, Load):
        return [(one.memory, on_chip(one, config), True)]
    if isinstance(one, Store):
        return [(ACC, on_chip(one, config), False)]
    assert isinstance(one, (Gemm, Alu))
    acc, *others = machine.indices(one)
    found: list[Touched] = [(UOP, np.arange(one.begin, one.end), False)]
    if isinstance(one, Gemm):
        found += [(INP, others[0], False), (WGT, others[1], False)]
    elif not one.immediate:
        found.append((ACC, others[0], False))
        if Op(one.op) in TWO:
            found.append((ACC, others[0] + 1, False))
    fresh = one.fresh if isinstance(one, Gemm) else Op(one.op) is Op.MOV
    return [*found, *([] if fresh else [(ACC, acc, False)]), (ACC, acc, True)]


def _runs(entries: NDArray) -> list[tuple[int, int]]:
    """Entries as intervals without gaps."""
    flat = np.unique(entries)
    ends = np.flatnonzero(np.diff(flat) != 1)
    firsts, lasts = np.append(0, ends + 1), np.append(ends, flat.size - 1)
    return [(int(flat[a]), int(flat[b]) + 1) for a, b in zip(firsts, lasts)] if flat.size else []


__all__ = ["Hazard", "check"]
