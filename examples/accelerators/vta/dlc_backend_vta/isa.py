"""The instruction set: four instructions as values, and as 64 bytes each.

    Load    memory of the card -> a memory on the chip      unit load
    Gemm    products of blocks, summed                      unit compute
    Alu     vector arithmetic on accumulators               unit compute
    Store   accumulators -> memory of the card              unit store

Every instruction may wait for tokens of the neighbouring units (`pop`) before it begins, and gives them
tokens (`push`) when it is done; load, compute and store stand in this order, so that the previous one of
compute is load and the next one is store.

A transfer walks five loops: blocks of channels z, rows y, columns x, and inside of an entry rows a and
columns b.  Element (z, y, x, a, b) is at byte `offset + z zs + y ys + x xs + a as + b bs` behind the address
in base register `base`; its entry is `sram + z z_pitch + (y + top) y_pitch + x + left`.  The border of `top`,
`bottom`, `left` and `right` entries, and the rest of entries that are not full, take the value `fill`.

Gemm and Alu walk two loops and a range of micro-operations, which name entries:

    for i < outer, j < inner, u in uops[begin:end]:
        acc = base_acc + u.acc + i acc_i + j acc_j          inp and wgt alike
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar

from dlc_backend_vta.config import ACC, INSTRUCTION_BYTES, MEMORIES
from dlc_core.diag import ArtifactError, UsageError


class Unit(IntEnum):
    """The units, each with a queue of instructions of its own."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Op(IntEnum):
    """Operations of the vector unit on accumulators d, with operands s (a second one r) or immediates.

    All of it in int32, wrapping around, but for the two at the end, whose results are limited to int32.
    """

    MOV = 0
    """s"""
    ADD = 1
    """d + s"""
    MUL = 2
    """d s"""
    MAX = 3
    MIN = 4
    SHR = 5
    """d 2^-s, rounded down"""
    RSHR = 6
    """d 2^-s, rounded to the nearest, halves up"""
    CLIP = 7
    """d limited to s..r"""
    FIXED = 8
    """d s 2^-r of the exact product, rounded to the nearest, ties to even; 0 <= s, 0 <= r <= 62"""
    SCALE = 9
    """d times the float32 whose bits are s, in float32, rounded to the nearest integer, ties to even"""


TWO = (Op.CLIP, Op.FIXED)
"""Operations with two operands; as vectors the second one is the entry behind the first."""


def _bits(width: int, signed: bool = False, default: Any = 0) -> Any:
    return field(default=default, metadata={"bits": width, "signed": signed})


@dataclass(slots=True)
class Instruction:
    """The common fields of instructions."""

    code: ClassVar[int]
    unit: ClassVar[Unit]
    pop_prev: bool = _bits(1, default=False)
    pop_next: bool = _bits(1, default=False)
    push_prev: bool = _bits(1, default=False)
    push_next: bool = _bits(1, default=False)

    def __str__(self) -> str:
        tokens = [name for name in ("pop_prev", "pop_next", "push_prev", "push_next") if getattr(self, name)]
        return " ".join([type(self).__name__.lower(), *tokens])


def takes_and_gives(one: Instruction) -> tuple[list[str], list[str]]:
    """The units whose tokens an instruction takes, and those that it gives one to."""
    found: tuple[list[str], list[str]] = ([], [])
    flags = ((one.pop_prev, one.pop_next), (one.push_prev, one.push_next))
    for names, sides in zip(found, flags):
        for wanted, number in zip(sides, (one.unit - 1, one.unit + 1)):
            if wanted:
                names.append(Unit(number).name.lower() if 0 <= number < len(Unit) else "no unit")
    return found


@dataclass(slots=True)
class Transfer(Instruction):
    """A transfer; sizes count entries and elements, strides bytes, pitches entries.

    `wide` elements of the card have 4 bytes, others 1; `flip` turns the sign bit of bytes on the way, so
    that unsigned numbers become signed ones less 128.
    """

    memory: int = _bits(2)
    wide: bool = _bits(1, default=False)
    flip: bool = _bits(1, default=False)
    base: int = _bits(8)
    sram: int = _bits(16)
    offset: int = _bits(32)
    z: int = _bits(16, default=1)
    y: int = _bits(16, default=1)
    x: int = _bits(16, default=1)
    a: int = _bits(10, default=1)
    b: int = _bits(10, default=1)
    zs: int = _bits(32)
    ys: int = _bits(32)
    xs: int = _bits(32)
    as_: int = _bits(32)
    bs: int = _bits(32)
    z_pitch: int = _bits(16)
    y_pitch: int = _bits(16)
    top: int = _bits(8)
    bottom: int = _bits(8)
    left: int = _bits(8)
    right: int = _bits(8)
    fill: int = _bits(32, signed=True)


@dataclass(slots=True)
class Load(Transfer):
    """To a memory on the chip."""

    code: ClassVar[int] = 1
    unit: ClassVar[Unit] = Unit.LOAD

    def __str__(self) -> str:
        return f"{Instruction.__str__(self)} {MEMORIES[self.memory]}[{self.sram}]"


@dataclass(slots=True)
class Store(Transfer):
    """From the accumulators, of which bytes keep the low 8 bits.  A store has no border."""

    code: ClassVar[int] = 2
    unit: ClassVar[Unit] = Unit.STORE
    memory: int = _bits(2, default=ACC)

    def __str__(self) -> str:
        return f"{Instruction.__str__(self)} {MEMORIES[self.memory]}[{self.sram}]"


@dataclass(slots=True)
class Gemm(Instruction):
    """acc += inp wgt^T for blocks; `fresh` writes the product instead."""

    code: ClassVar[int] = 3
    unit: ClassVar[Unit] = Unit.COMPUTE
    fresh: bool = _bits(1, default=False)
    begin: int = _bits(16)
    end: int = _bits(17)
    outer: int = _bits(16, default=1)
    inner: int = _bits(16, default=1)
    acc: int = _bits(16)
    acc_i: int = _bits(16)
    acc_j: int = _bits(16)
    inp: int = _bits(16)
    inp_i: int = _bits(16)
    inp_j: int = _bits(16)
    wgt: int = _bits(16)
    wgt_i: int = _bits(16)
    wgt_j: int = _bits(16)


@dataclass(slots=True)
class Alu(Instruction):
    """acc = op(acc, src); the micro-operations' fields are acc and, for src, inp."""

    code: ClassVar[int] = 4
    unit: ClassVar[Unit] = Unit.COMPUTE
    op: int = _bits(4)
    immediate: bool = _bits(1, default=False)
    begin: int = _bits(16)
    end: int = _bits(17)
    outer: int = _bits(16, default=1)
    inner: int = _bits(16, default=1)
    acc: int = _bits(16)
    acc_i: int = _bits(16)
    acc_j: int = _bits(16)
    src: int = _bits(16)
    src_i: int = _bits(16)
    src_j: int = _bits(16)
    first: int = _bits(32, signed=True)
    second: int = _bits(32, signed=True)

    def __str__(self) -> str:
        return f"{Instruction.__str__(self)} {Op(self.op).name.lower()}"


KINDS: dict[int, type[Instruction]] = {cls.code: cls for cls in (Load, Store, Gemm, Alu)}
_LAYOUTS = {
    cls: [(f.name, f.metadata["bits"], f.metadata["signed"]) for f in fields(cls)] for cls in KINDS.values()
}
_CODE_BITS = 4


def encode(one: Instruction) -> bytes:
    """The instruction's 64 bytes; UsageError, naming the field, for a number that has no place in it."""
    word, at = one.code, _CODE_BITS
    for name, bits, signed in _LAYOUTS[type(one)]:
        value = int(getattr(one, name))
        low = -(1 << (bits - 1)) if signed else 0
        if not low <= value < low + (1 << bits):
            raise UsageError(f"{type(one).__name__}.{name} = {value} does not fit into {bits} bits")
        word |= (value & ((1 << bits) - 1)) << at
        at += bits
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def decode(data: bytes) -> Instruction:
    """The instruction of 64 bytes; ArtifactError for bytes that are none."""
    word = int.from_bytes(data, "little")
    cls = KINDS.get(word & ((1 << _CODE_BITS) - 1))
    if cls is None or len(data) != INSTRUCTION_BYTES:
        raise ArtifactError(f"no instruction: {data[:4].hex()}… of {len(data)} bytes")
    word >>= _CODE_BITS
    values: dict[str, Any] = {}
    for name, bits, signed in _LAYOUTS[cls]:
        value = word & ((1 << bits) - 1)
        word >>= bits
        if signed and value >> (bits - 1):
            value -= 1 << bits
        values[name] = bool(value) if bits == 1 else value
    if word or values.get("op", 0) > max(Op):
        raise ArtifactError(f"no instruction: bits are set that {cls.__name__} does not have")
    return cls(**values)


def encode_all(program: list[Instruction]) -> bytes:
    """A stream of instructions."""
    return b"".join(map(encode, program))


def decode_all(data: bytes) -> list[Instruction]:
    """Decode the result of `encode_all`."""
    return [decode(data[at : at + INSTRUCTION_BYTES]) for at in range(0, len(data), INSTRUCTION_BYTES)]


__all__ = [
    "TWO",
    "Alu",
    "Gemm",
    "Instruction",
    "Load",
    "Op",
    "Store",
    "Transfer",
    "Unit",
    "decode",
    "decode_all",
    "encode",
    "encode_all",
    "takes_and_gives",
]
