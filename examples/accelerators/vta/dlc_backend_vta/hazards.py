"""Whether tokens order what they must: the checker of streams.

Tokens, and the order within each unit, say which instructions are done before another one begins, whatever
the times are.  Each instruction gets a clock: for every unit, how many of its instructions are done.  Then

    a read needs the write of what it reads        (also that there was one, on the chip)
    a write needs the earlier writes and reads of what it overwrites

to be among those done, for every entry on the chip and every byte on the card.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dlc_backend_vta.config import ACC, INP, MEMORIES, UOP, WGT, Config
from dlc_backend_vta.isa import TWO, Alu, Gemm, Instruction, Load, Op, Store, Transfer, Unit
from dlc_backend_vta.machine import Machine
from dlc_backend_vta.transfer import on_card, on_chip
from dlc_core.diag import RuntimeFailure

NDArray = np.ndarray[Any, Any]
NEVER = -1


class Hazard(RuntimeFailure):
    """Two instructions touch the same memory, and no token orders them."""


class _Stamps:
    """The last accesses of each item of a memory: the unit and number of its write, the numbers of reads."""

    def __init__(self, size: int) -> None:
        self.writer = np.full(size, NEVER, np.int8)
        self.written = np.full(size, NEVER, np.int32)
        self.read = [np.full(size, NEVER, np.int32) for _ in Unit]


def check(program: Iterable[Instruction], config: Config, card: Sequence[NDArray]) -> None:
    """Raise Hazard for the first instruction that tokens do not order behind what it needs.

    `card` is the memory of the card, which stays as it is; its bytes count as written before the stream.
    """
    _Checker(config, card).run(program)


class _Checker:
    def __init__(self, config: Config, card: Sequence[NDArray]) -> None:
        self.config = config
        self.machine = Machine(config)  # for the micro-operations, which say what is touched
        self.card = card
        self.chip = [_Stamps(count) for count in config.entries]
        self.bytes = [_Stamps(memory.shape[0]) for memory in card]
        self.done = [np.zeros(len(Unit), np.int64) for _ in Unit]
        self.tokens: dict[tuple[int, int], deque[NDArray]] = {}

    def run(self, program: Iterable[Instruction]) -> None:
        for one in program:
            clock = self.done[one.unit]
            for pops, other in ((one.pop_prev, one.unit - 1), (one.pop_next, one.unit + 1)):
                if pops:
                    queue = self.tokens.get((other, one.unit))
                    if not queue:
                        raise Hazard(f"{one} pops a token that no instruction before it in the stream pushes")
                    clock = np.maximum(clock, queue.popleft())
            self.touch(one, clock)
            clock = clock.copy()
            clock[one.unit] += 1
            self.done[one.unit] = clock
            for pushes, other in ((one.push_prev, one.unit - 1), (one.push_next, one.unit + 1)):
                if pushes:
                    self.tokens.setdefault((one.unit, other), deque()).append(clock)

    def touch(self, one: Instruction, clock: NDArray) -> None:
        if isinstance(one, Transfer):
            entries = on_chip(one, self.config)
            stamps = self.bytes[one.base]
            if isinstance(one, Load):
                self.read(one, clock, stamps, one, "the card")
                self.write(one, clock, self.chip[one.memory], entries, MEMORIES[one.memory])
                if one.memory == UOP:
                    self.machine.step(one, self.card)
            else:
                assert isinstance(one, Store)
                self.read(one, clock, self.chip[ACC], entries, "acc", needed=True)
                self.write(one, clock, stamps, one, "the card")
            return
        assert isinstance(one, (Gemm, Alu))
        uops = np.arange(one.begin, one.end)
        self.read(one, clock, self.chip[UOP], uops, "uop", needed=True)
        acc, *others = self.machine.indices(one)
        if isinstance(one, Gemm):
            self.read(one, clock, self.chip[INP], others[0], "inp", needed=True)
            self.read(one, clock, self.chip[WGT], others[1], "wgt", needed=True)
        elif not one.immediate:
            self.read(one, clock, self.chip[ACC], others[0], "acc", needed=True)
            if Op(one.op) in TWO:
                self.read(one, clock, self.chip[ACC], others[0] + 1, "acc", needed=True)
        fresh = one.fresh if isinstance(one, Gemm) else Op(one.op) is Op.MOV
        if not fresh:
            self.read(one, clock, self.chip[ACC], acc, "acc", needed=True)
        self.write(one, clock, self.chip[ACC], acc, "acc")

    def read(
        self, one: Instruction, clock: NDArray, stamps: _Stamps, where: Any, name: str, needed: bool = False
    ) -> None:
        writer = _at(stamps.writer, where)
        if needed and bool((writer == NEVER).any()):
            raise Hazard(f"{one} reads what was never written, in {name}")
        self._ordered(one, clock, writer, _at(stamps.written, where), name)
        _put(stamps.read[one.unit], where, int(self.done[one.unit][one.unit]))

    def write(self, one: Instruction, clock: NDArray, stamps: _Stamps, where: Any, name: str) -> None:
        self._ordered(one, clock, _at(stamps.writer, where), _at(stamps.written, where), name)
        for unit, numbers in enumerate(stamps.read):
            if unit != one.unit and bool((_at(numbers, where) >= clock[unit]).any()):
                raise _hazard(one, "read", unit, name)
        _put(stamps.writer, where, int(one.unit))
        _put(stamps.written, where, int(self.done[one.unit][one.unit]))

    def _ordered(self, one: Instruction, clock: NDArray, writer: NDArray, number: NDArray, name: str) -> None:
        """That writes are done: what was never written has the number -1, which every clock is behind."""
        late = number >= clock[writer]
        if bool(late.any()) and bool((late & (writer != one.unit)).any()):
            raise _hazard(one, "write", int(writer[late & (writer != one.unit)][0]), name)


def _hazard(one: Instruction, what: str, unit: int, name: str) -> Hazard:
    return Hazard(
        f"{one} is not ordered behind a {what} of {name} by the unit {Unit(unit).name.lower()}",
        hint="let that instruction push a token, and this one, or one before it in its unit, pop it",
    )


def _at(stamps: NDArray, where: Any) -> NDArray:
    return on_card(where, stamps, stamp=True) if isinstance(where, Transfer) else stamps[where]


def _put(stamps: NDArray, where: Any, value: int) -> None:
    if isinstance(where, Transfer):
        on_card(where, stamps, stamp=True)[...] = value
    else:
        stamps[where] = value


__all__ = ["Hazard", "check"]
