"""Tensor programs on the card: a schedule whose blocks are the machine's intrinsics becomes a stream.

    artifact = compile_schedule(schedule, target)       # dlc_backend_vta.device runs it

The loops of a program are known at compile time, so that it is run once, by the interpreter of dlc, with
functions that note what they are called for instead of doing it.  What was noted becomes instructions:

- each memory that the program allocates gets a place on the chip for as long as it is in use; the next one
  goes behind the last, so that loads of a round run during the computation of the one before, where both fit;
- calls that follow each other with constant steps are one instruction;
- a token is put wherever an instruction needs what another unit did, unless one before it tells already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np

from dlc_backend_vta.config import ACC, INP, MEMORIES, UOP, UOP_BYTES, WGT, Config
from dlc_backend_vta.intrinsics import GEMM, LOAD_INP, LOAD_WGT, STORE, ZERO
from dlc_backend_vta.isa import Alu, Gemm, Instruction, Load, Op, Store, Unit, encode_all
from dlc_backend_vta.lowering import ALIGN, CONSTANTS, FIRST
from dlc_backend_vta.program import FORMAT, listing
from dlc_core.backend.scratchpad.allocation import Request, place_next
from dlc_core.backend.scratchpad.tokens import Task, tokens_for
from dlc_core.diag import UnsupportedError
from dlc_core.schedule import Schedule
from dlc_core.target import Artifact, Target
from dlc_core.tir import PrimFunc, interpreter
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Store as PlainStore

NDArray = np.ndarray[Any, Any]
UNITS = {LOAD_INP: Unit.LOAD, LOAD_WGT: Unit.LOAD, GEMM: Unit.COMPUTE, ZERO: Unit.COMPUTE, STORE: Unit.STORE}


@dataclass(frozen=True)
class Block:
    """An entry of a memory that the program allocated: which one, and its number there."""

    memory: int
    owner: int
    entry: int


@dataclass(frozen=True)
class Call:
    """One call: the blocks that are written and read, and where on the card the block of a transfer is."""

    name: str
    writes: tuple[Block, ...]
    reads: tuple[Block, ...]
    base: int = 0
    offset: int = 0


def compile_schedule(schedule: Schedule, target: Target) -> Artifact:
    """The artefact of a tensorised program, whose entry has the program's name and takes its buffers.

    UnsupportedError for a program that has more than calls of the intrinsics, or that does not fit.
    """
    func, config = schedule.func, Config.of(target.values())
    arrays = _arrays(func)
    calls, sizes = _traced(func, arrays, config)
    addresses = _allocated(calls, sizes, config)
    table = _Uops(config)
    code: list[Instruction] = []
    touched: list[tuple[set[tuple[int, int]], set[tuple[int, int]]]] = []
    for name, group in groupby(calls, key=lambda call: call.name):
        for part, made in _instructions(name, list(group), addresses, table, config):
            code.append(made)
            touched.append(_touches(part, addresses))
    uops = table.bytes()
    start = Load(memory=UOP, base=CONSTANTS, x=len(uops) // UOP_BYTES, xs=UOP_BYTES, b=UOP_BYTES, bs=1)
    everything = {(UOP, 0)}
    code, touched = [start, *code], [(everything, set()), *touched]
    for one, (_, reads) in zip(code[1:], touched[1:]):
        if one.unit is Unit.COMPUTE:
            reads.update(everything)
    synchronise(code, touched)
    constants = uops + bytes(-len(uops) % ALIGN)
    metadata = {
        "config": asdict(config),
        "constants": len(constants),
        "scratch": 0,
        "buffers": [array.nbytes for array in arrays],
        "layers": [],
    }
    return Artifact(
        FORMAT, constants + encode_all(code), str(target), (func.name,), {"vta": listing(code)}, metadata
    )


# What the program calls


def _arrays(func: PrimFunc) -> list[NDArray]:
    """Memory for the parameters of a program."""
    found = []
    for buffer in func.buffers:
        shape = buffer.static_shape()
        if shape is None:
            raise UnsupportedError(f"{func.name}: the dims of {buffer.name} are not known at compile time")
        found.append(np.zeros(shape, buffer.dtype.numpy))
    return found


def _traced(func: PrimFunc, arrays: Sequence[NDArray], config: Config) -> tuple[list[Call], dict[int, int]]:
    """The calls of a program in order, and the entries of each memory that it allocates."""
    plain = next((stmt for stmt in stmts(func.body) if isinstance(stmt, PlainStore)), None)
    if plain is not None:
        raise UnsupportedError(
            f"{func.name} stores to {plain.buffer.name} by itself",
            why="the card has blocks alone",
            hint="tensorize every block with an intrinsic of the machine",
        )
    notes = _Notes(arrays, config)
    interpreter.run(func, *arrays, externs=notes.externs())
    return notes.calls, notes.sizes


class _Notes:
    """The recorded calls; memory is identified by its address in this process."""

    def __init__(self, arrays: Sequence[NDArray], config: Config) -> None:
        self.config = config
        self.calls: list[Call] = []
        self.sizes: dict[int, int] = {}
        self._params = [(_address(array), array.nbytes) for array in arrays]
        self._owners: dict[int, int] = {}
        self._kept: list[Any] = []

    def externs(self) -> dict[str, Callable[..., int]]:
        return {
            GEMM: lambda c, a, w: self._note(GEMM, [(ACC, c)], [(ACC, c), (INP, a), (WGT, w)]),
            ZERO: lambda c: self._note(ZERO, [(ACC, c)], []),
            LOAD_INP: lambda d, s: self._note(LOAD_INP, [(INP, d)], [], s),
            LOAD_WGT: lambda d, s: self._note(LOAD_WGT, [(WGT, d)], [], s),
            STORE: lambda d, s: self._note(STORE, [], [(ACC, s)], d),
        }

    def _note(
        self,
        name: str,
        writes: list[tuple[int, NDArray]],
        reads: list[tuple[int, NDArray]],
        card: NDArray | None = None,
    ) -> int:
        base = offset = 0
        if card is not None:
            base, offset = self._on_card(card)
        blocks = [tuple(self._block(*each) for each in some) for some in (writes, reads)]
        self.calls.append(Call(name, blocks[0], blocks[1], base, offset))
        return 0

    def _on_card(self, array: NDArray) -> tuple[int, int]:
        at = _address(array)
        for number, (start, size) in enumerate(self._params):
            if start <= at < start + size:
                return FIRST + number, at - start
        raise UnsupportedError("a transfer between memories on the chip")

    def _block(self, memory: int, array: NDArray) -> Block:
        owner = array.base.obj if isinstance(array.base, memoryview) else array
        start, size = _address(owner), owner.nbytes
        if any(start == known for known, _ in self._params):
            raise UnsupportedError(f"a block of {MEMORIES[memory]} that is on the card")
        if id(owner) not in self._owners:
            self._owners[id(owner)] = len(self._owners)
            self._kept.append(owner)  # so that no other memory gets its identity
        number = self._owners[id(owner)]
        rows, columns = self.config.shapes[memory]
        bytes_ = rows * columns * (4 if memory == ACC else 1)
        self.sizes[number] = -(-size // bytes_)
        entry, rest = divmod(_address(array) - start, bytes_)
        if rest:
            raise UnsupportedError(f"blocks of {MEMORIES[memory]} that are not contiguous")
        return Block(memory, number, entry)


def _address(array: NDArray) -> int:
    return int(array.__array_interface__["data"][0])


# Where it is on the chip


def _allocated(calls: Sequence[Call], sizes: dict[int, int], config: Config) -> dict[int, int]:
    """The first entry of each allocated memory; those that are in use at once are disjoint."""
    lives: dict[int, tuple[int, int, int]] = {}
    for number, call in enumerate(calls):
        for block in (*call.writes, *call.reads):
            _, first, _ = lives.get(block.owner, (0, number, 0))
            lives[block.owner] = (block.memory, first, number)
    found: dict[int, int] = {}
    for memory, name in enumerate(MEMORIES):
        own = sorted((life[1], owner) for owner, life in lives.items() if life[0] == memory)
        requests = [Request(name, sizes[owner], first, lives[owner][2]) for first, owner in own]
        offsets = place_next(requests, config.entries[memory])
        if isinstance(offsets, Request):
            raise UnsupportedError(
                f"{offsets.size} entries of {name} at once, of {config.entries[memory]}",
                hint=f"smaller tiles, or a larger -{name}-kb",
            )
        found.update((owner, offset) for (_, owner), offset in zip(own, offsets, strict=True))
    return found


# Instructions


class _Uops:
    """The table of micro-operations; sequences that it has already are used again."""

    def __init__(self, config: Config) -> None:
        self.rows: list[tuple[int, int, int]] = []
        self.known: dict[tuple[tuple[int, int, int], ...], int] = {}
        self.limit = config.entries[UOP]

    def begin(self, rows: tuple[tuple[int, int, int], ...]) -> int:
        """Where some micro-operations begin."""
        at = self.known.get(rows)
        if at is None:
            at = self.known[rows] = len(self.rows)
            self.rows += rows
            if len(self.rows) > self.limit:
                raise UnsupportedError(
                    f"more than {self.limit} micro-operations", hint="smaller tiles, or a larger -uop-kb"
                )
        return at

    def bytes(self) -> bytes:
        return np.array([(*row, 0) for row in self.rows], np.uint16).tobytes()


Row = tuple[int, int, int]


def _instructions(
    name: str, calls: list[Call], addresses: dict[int, int], table: _Uops, config: Config
) -> list[tuple[list[Call], Instruction]]:
    """The instructions of calls of one function that follow each other."""
    if UNITS[name] is Unit.COMPUTE:
        return [(calls, _computation(name, calls, addresses, table))]
    found = []
    while calls:
        count, one = _transfer(calls, addresses, config)
        found.append((calls[:count], one))
        calls = calls[count:]
    return found


def _at(block: Block, addresses: dict[int, int]) -> int:
    return addresses[block.owner] + block.entry


def _computation(name: str, calls: list[Call], addresses: dict[int, int], table: _Uops) -> Instruction:
    """One instruction of all calls: repetitions with constant steps are its loops."""
    rows: list[Row] = []
    for call in calls:
        acc, inp, wgt = call.reads if name == GEMM else call.writes * 3
        rows.append((_at(acc, addresses), _at(inp, addresses), _at(wgt, addresses)))
    base = tuple(min(column) for column in zip(*rows))
    relative = [(a - base[0], b - base[1], c - base[2]) for a, b, c in rows]
    outer, step, body = _repeated(relative)
    inner, small, body = _repeated(body)
    begin = table.begin(tuple(body))
    if name == ZERO:
        return Alu(
            op=Op.MOV,
            immediate=True,
            begin=begin,
            end=begin + len(body),
            outer=outer,
            inner=inner,
            acc=base[0],
            acc_i=step[0],
            acc_j=small[0],
        )
    return Gemm(
        begin=begin,
        end=begin + len(body),
        outer=outer,
        inner=inner,
        acc=base[0],
        acc_i=step[0],
        acc_j=small[0],
        inp=base[1],
        inp_i=step[1],
        inp_j=small[1],
        wgt=base[2],
        wgt_i=step[2],
        wgt_j=small[2],
    )


def _repeated(rows: list[Row]) -> tuple[int, Row, list[Row]]:
    """The fewest rows that give all by repetition with a constant step, and how often."""
    table = np.array(rows)
    for period in range(1, len(rows) // 2 + 1):
        if len(rows) % period:
            continue
        steps = table[period:] - table[:-period]
        if (steps == steps[0]).all() and steps[0].min() >= 0:
            a, b, c = (int(step) for step in steps[0])
            return len(rows) // period, (a, b, c), rows[:period]
    return 1, (0, 0, 0), rows


def _transfer(calls: list[Call], addresses: dict[int, int], config: Config) -> tuple[int, Instruction]:
    """A transfer of as many of the first calls as have constant steps, and how many these are."""
    name = calls[0].name
    rows = [(_at((call.writes or call.reads)[0], addresses), call.offset) for call in calls]
    same = next((i for i, call in enumerate(calls) if call.base != calls[0].base), len(calls))

    def reach(start: int, unit: int, steps: tuple[int, int]) -> int:
        """How many units of so many calls follow each other with these steps."""
        count = 1
        while start + (count + 1) * unit <= same and all(
            rows[start + count * unit + k][axis] - rows[start + k][axis] == count * steps[axis]
            for k in range(unit)
            for axis in (0, 1)
        ):
            count += 1
        return count

    def step(unit: int) -> tuple[int, int]:
        if unit >= same:
            return (1, 0)
        return rows[unit][0] - rows[0][0], rows[unit][1] - rows[0][1]

    across = step(1)
    x = reach(0, 1, across) if across[0] == 1 and across[1] >= 0 else 1
    down = step(x)
    y = reach(0, x, down) if min(down) >= 0 else 1
    memory = (calls[0].writes or calls[0].reads)[0].memory
    height, width = config.shapes[memory]
    size = 4 if memory == ACC else 1
    made = (Store if name == STORE else Load)(
        memory=memory,
        wide=size == 4,
        base=calls[0].base,
        sram=rows[0][0],
        offset=rows[0][1],
        y=y,
        x=x,
        a=height,
        b=width,
        ys=down[1] if y > 1 else 0,
        xs=across[1] if x > 1 else 0,
        as_=width * size,
        bs=size,
        y_pitch=down[0] if y > 1 else 0,
    )
    return x * y, made


# Tokens


Touched = set[tuple[int, int]]


def _touches(calls: Sequence[Call], addresses: dict[int, int]) -> tuple[Touched, Touched]:
    """The entries that calls write and read."""
    writes = {(b.memory, _at(b, addresses)) for call in calls for b in call.writes}
    return writes, {(b.memory, _at(b, addresses)) for call in calls for b in call.reads}


def synchronise(code: Sequence[Instruction], touched: Sequence[tuple[Touched, Touched]]) -> None:
    """Put the tokens that order what instructions of neighbouring units do to the same entries.

    `touched` has what each one writes and reads on the chip.
    """
    tasks = []
    for one, (writes, reads) in zip(code, touched, strict=True):
        entries = [(memory, entry, entry + 1, True) for memory, entry in sorted(writes)]
        entries += [(memory, entry, entry + 1, False) for memory, entry in sorted(reads)]
        tasks.append(Task(one.unit.name.lower(), entries, text=one))
    names = [unit.name.lower() for unit in Unit]
    made = tokens_for(tasks, lambda a, b: abs(names.index(a) - names.index(b)) == 1)
    for one, (pops, pushes) in zip(code, made, strict=True):
        before, behind = (names[one.unit + k] if 0 <= one.unit + k < len(names) else "" for k in (-1, 1))
        one.pop_prev, one.pop_next = before in pops, behind in pops
        one.push_prev, one.push_next = before in pushes, behind in pushes


__all__ = ["compile_schedule", "synchronise"]
