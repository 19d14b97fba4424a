"""Kinds of accelerators for tests of the kit. Each takes a part of a model.

`Unit` has no code generator: its regions are matched by patterns and evaluated. `Compiled` has one that
supports some operations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from dlc_core.backend import RegionPattern, SimulatedDevice, SourceCodegen
from dlc_core.graph.node import Node
from dlc_core.hooks import hookimpl
from dlc_core.rewrite import Match, match_any
from dlc_core.target import Description, Option, Target, TargetKind
from dlc_core.testing.card import LIMIT, Card, CardPlugin


def products() -> tuple[RegionPattern, ...]:
    """matmul and conv, of any values."""
    return (
        RegionPattern("matmul", match_any("matmul")),
        RegionPattern("conv", match_any("conv")),
    )


def bytes_only() -> tuple[RegionPattern, ...]:
    """Each op in int8 with sums in int32; a predicate refuses other dtypes, with a reason."""

    def accepts(found: Match, target: Target) -> bool | str:
        names = {arg.tensor_type.dtype.name for arg in (found.root, *found.root.args)}
        return names <= {"int8", "int32"} or f"it does not compute in {', '.join(sorted(names))}"

    ops = ("matmul", "conv", "relu", "add")
    return tuple(RegionPattern(name, match_any(name), accepts) for name in ops)


class Unit(CardPlugin):
    """A unit without a code generator: its regions are evaluated in its own memory, behind a queue."""

    def __init__(
        self,
        name: str = "unit",
        patterns: Sequence[RegionPattern] = (),
        device: type[Card] = Card,
        dtypes: Sequence[str] = (),
    ) -> None:
        super().__init__(name, patterns=tuple(patterns) or products())
        self.card = device(name)
        self.dtypes = tuple(dtypes)

    @hookimpl
    def dlc_targets(self) -> list[TargetKind]:
        limit = Option("limit", "int", LIMIT, "the maximum number of weights of one GEMM")

        def describe(options: Any) -> Description:
            return Description(parallel=False, dtypes=self.dtypes)

        return [TargetKind(self.name, "a unit", "", self.name, options=(limit,), describe=describe)]

    @hookimpl
    def dlc_devices(self) -> list[Card]:
        return [self.card]


SUPPORTED = ("matmul", "relu", "add")


class UnitCodegen(SourceCodegen):
    """A code generator for some operations."""

    name, kinds, format = "unit", ("unit",), "unit-source"

    def supports(self, n: Node) -> bool | str:
        return n.op.name in SUPPORTED or f"the unit has no {n.op.name}"


class UnitDevice(SimulatedDevice):
    """A simulated device that counts its launches."""

    name, formats = "unit", ("unit-source",)
    memory_bytes = 1 << 26
    launches = 0

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        self.launches += 1
        super().launch(entry, buffers, scalars, threads)


class Compiled:
    """A unit with a code generator that supports some operations."""

    DLC_API = "0.1"

    def __init__(self) -> None:
        self.device = UnitDevice()

    @hookimpl
    def dlc_targets(self) -> list[TargetKind]:
        def describe(options: Any) -> Description:
            return Description(vector_bits=128, parallel=False)

        return [TargetKind("unit", "a unit", "unit", "unit", describe=describe)]

    @hookimpl
    def dlc_codegens(self) -> list[UnitCodegen]:
        return [UnitCodegen()]

    @hookimpl
    def dlc_devices(self) -> list[UnitDevice]:
        return [self.device]


class LargeCard(Card):
    """A card with memory for the weights of large networks."""

    memory_bytes = 1 << 31


class WrongCard(Card):
    """A card whose regions have wrong results."""

    def run(self, entry: Any, blocks: Any, scalars: Any, threads: int) -> None:
        super().run(entry, blocks, scalars, threads)
        blocks[len(entry.params)][3:4] ^= 0x40  # a bit of the exponent of the first result


class CrashingCard(Card):
    """A card whose second launch reads an illegal address."""

    def run(self, entry: Any, blocks: Any, scalars: Any, threads: int) -> None:
        super().run(entry, blocks, scalars, threads)
        if sum(name.startswith("region") for name in self.log) == 2:
            ctypes.string_at(0)


class HangingCard(Card):
    """A card whose second launch never ends, in native code."""

    def run(self, entry: Any, blocks: Any, scalars: Any, threads: int) -> None:
        super().run(entry, blocks, scalars, threads)
        if sum(name.startswith("region") for name in self.log) == 2:
            ctypes.PyDLL(None).pause()  # it holds the interpreter's lock


__all__ = [
    "Compiled",
    "CrashingCard",
    "HangingCard",
    "LargeCard",
    "Unit",
    "WrongCard",
    "bytes_only",
    "products",
]
