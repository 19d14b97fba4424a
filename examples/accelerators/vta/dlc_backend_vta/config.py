"""The machine's parameters: shape of the product unit, sizes of the memories, speed of the bus.

They are the options of the target.  Any configuration within the limits works; another one is an error that
names the option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dlc_core.diag import TargetError
from dlc_core.target import Option

INP, WGT, ACC, UOP = range(4)
"""The memories: blocks of inputs, of weights, of accumulators; micro-operations."""
MEMORIES = ("inp", "wgt", "acc", "uop")
UOP_BYTES = 8
INSTRUCTION_BYTES = 64
MOST_ENTRIES = 1 << 16
"""Entries that an address of a memory reaches."""

OPTIONS = (
    Option("batch", "int", 1, "rows of a block of inputs and of results"),
    Option("block-in", "int", 16, "input channels of a block"),
    Option("block-out", "int", 16, "output channels of a block"),
    Option("inp-kb", "int", 32, "KiB of memory for inputs"),
    Option("wgt-kb", "int", 256, "KiB of memory for weights"),
    Option("acc-kb", "int", 128, "KiB of memory for accumulators"),
    Option("uop-kb", "int", 32, "KiB of memory for micro-operations"),
    Option("alu-lanes", "int", 16, "elements that the vector unit takes in a cycle"),
    Option("bus-bytes", "int", 16, "bytes that a transfer moves in a cycle"),
    Option("latency", "int", 32, "cycles before the first byte of a transfer"),
    Option("queue", "int", 32, "instructions that wait in front of a unit"),
    Option("dram-mb", "int", 1024, "MiB of memory of the card"),
)
LIMITS = {
    "batch": (1, 256),
    "block-in": (1, 256),
    "block-out": (1, 256),
    "alu-lanes": (1, 65536),
    "bus-bytes": (1, 1024),
    "latency": (0, 10_000),
    "queue": (2, 4096),
    "dram-mb": (1, 4096),
}


@dataclass(frozen=True)
class Config:
    """One machine.  Sizes in elements, KiB, bytes and cycles; see `OPTIONS`."""

    batch: int = 1
    block_in: int = 16
    block_out: int = 16
    inp_kb: int = 32
    wgt_kb: int = 256
    acc_kb: int = 128
    uop_kb: int = 32
    alu_lanes: int = 16
    bus_bytes: int = 16
    latency: int = 32
    queue: int = 32
    dram_mb: int = 1024

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name.replace("-", "_"))
            if not low <= value <= high:
                raise TargetError(f"target option -{name}={value}", hint=f"from {low} to {high}")
        for memory, name in enumerate(MEMORIES):
            size = getattr(self, f"{name}_kb")
            least, most = self._entry_bytes[memory] * _LEAST[memory], self._entry_bytes[memory] * MOST_ENTRIES
            if not least <= size * 1024 <= most:
                raise TargetError(
                    f"target option -{name}-kb={size}",
                    why=f"a block of {name} has {self._entry_bytes[memory]} bytes, and there must be "
                    f"{_LEAST[memory]} to {MOST_ENTRIES} of them",
                    hint=f"from {-(-least // 1024)} to {most // 1024}",
                )

    @staticmethod
    def of(options: Mapping[str, Any]) -> Config:
        """The machine of a target's options."""
        return Config(**{name.replace("-", "_"): value for name, value in options.items()})

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of an entry of each memory."""
        return (
            (self.batch, self.block_in),
            (self.block_out, self.block_in),
            (self.batch, self.block_out),
            (1, UOP_BYTES),
        )

    @cached_property
    def _entry_bytes(self) -> tuple[int, ...]:
        sizes = (1, 1, 4, 1)
        return tuple(rows * columns * size for (rows, columns), size in zip(self.shapes, sizes))

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """How many entries each memory has."""
        sizes = (self.inp_kb, self.wgt_kb, self.acc_kb, self.uop_kb)
        return tuple(kb * 1024 // size for kb, size in zip(sizes, self._entry_bytes))

    @cached_property
    def alu_beat(self) -> int:
        """Cycles of the vector unit for an entry of accumulators."""
        return -(-self.batch * self.block_out // self.alu_lanes)

    @cached_property
    def fetch(self) -> int:
        """Cycles between two instructions that are fetched."""
        return -(-INSTRUCTION_BYTES // self.bus_bytes)


_LEAST = (2, 2, 16, 16)
"""Entries of each memory without which the smallest tile does not fit."""

__all__ = [
    "ACC",
    "INP",
    "INSTRUCTION_BYTES",
    "MEMORIES",
    "OPTIONS",
    "UOP",
    "UOP_BYTES",
    "WGT",
    "Config",
]
