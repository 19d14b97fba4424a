"""Schedules of a layer: tiles, what stays on the chip, double buffering; which of them fit.

The loops over tiles of a product, the reduction innermost since sums stay on the chip:

    resident "none", "input"       for tile of rows and columns, for tile of channels, for chunk of inputs
    resident "weight"              for tile of channels, for tile of rows and columns, for chunk of inputs

A resident operand is loaded with all its input channels, once for each round of the outer loop; the others
are loaded for each step.  With two `slots` every memory has two halves, and the load of a step runs during
the computation of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dlc_backend_vta.config import ACC, INP, UOP, WGT, Config
from dlc_backend_vta.layers import Layer

RESIDENT: tuple[str, ...] = ("none", "input", "weight")


@dataclass(frozen=True)
class Tiling:
    """A schedule: rows and columns of results, blocks of output and of input channels in a tile."""

    rows: int
    columns: int
    outputs: int
    inputs: int = 1
    resident: str = "none"
    slots: int = 2

    def __str__(self) -> str:
        keep = "" if self.resident == "none" else f", keeps {self.resident}s"
        tile = f"{self.rows}x{self.columns} by {self.outputs} by {self.inputs}"
        return tile + keep + (", double" if self.slots == 2 else ", single")

    @property
    def label(self) -> str:
        """Its sizes and slots without a space, as texts of decisions have them: `7x28x1x1-double`."""
        sizes = f"{self.rows}x{self.columns}x{self.outputs}x{self.inputs}"
        return f"{sizes}-{'double' if self.slots == 2 else 'single'}"


@dataclass(frozen=True)
class Plan:
    """A schedule of a layer on a machine: counts of tiles, and where everything lies on the chip.

    Pitches are those of whole tiles, so that micro-operations fit tiles at the edge too.
    """

    layer: Layer
    tiling: Tiling
    config: Config

    def __post_init__(self) -> None:
        layer, tile = self.layer, self.tiling
        images, outputs, inputs = layer.blocks(self.config)
        put = object.__setattr__
        put(self, "blocks", (images, outputs, inputs))
        put(self, "tiles", (images, -(-layer.rows // tile.rows), -(-layer.columns // tile.columns)))
        put(self, "spatial", self.tiles[0] * self.tiles[1] * self.tiles[2])
        put(self, "outputs", -(-outputs // tile.outputs))
        put(self, "chunks", -(-inputs // tile.inputs))
        kernel, stride, dilation = layer.kernel, layer.stride, layer.dilation
        put(self, "in_rows", (tile.rows - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1)
        put(self, "in_columns", (tile.columns - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1)
        put(self, "pixels", tile.rows * tile.columns)
        put(self, "in_pixels", self.in_rows * self.in_columns)
        steps = self.spatial * self.outputs * self.chunks
        put(self, "steps", steps)
        slots = tile.slots
        put(self, "streams", min(slots, steps))
        outer = self.outputs if tile.resident == "weight" else self.spatial
        put(self, "rounds", min(slots, outer))
        put(self, "results", min(slots, self.spatial * self.outputs))
        put(self, "vector_slots", min(slots, self.outputs) if layer.vector_count else 0)
        put(self, "inp_depth", inputs if tile.resident == "input" else tile.inputs)
        put(self, "inp_size", self.inp_depth * self.in_pixels * (tile.outputs if layer.starts else 1))
        put(self, "wgt_depth", inputs if tile.resident == "weight" else tile.inputs)
        result = tile.outputs * self.pixels
        put(self, "result_size", result)
        put(self, "tensor_at", self.results * result)
        put(self, "vector_at", self.tensor_at + self.results * result * len(layer.tensors))
        put(self, "source_at", self.vector_at + self.vector_slots * tile.outputs * layer.vector_count)

    blocks: tuple[int, int, int] = (0, 0, 0)
    tiles: tuple[int, int, int] = (0, 0, 0)
    spatial: int = 0
    outputs: int = 0
    chunks: int = 0
    in_rows: int = 0
    in_columns: int = 0
    pixels: int = 0
    in_pixels: int = 0
    steps: int = 0
    streams: int = 0
    """Halves that operands use which change in every step."""
    rounds: int = 0
    """Halves of a resident operand."""
    results: int = 0
    """Halves of the accumulators."""
    vector_slots: int = 0
    inp_depth: int = 0
    inp_size: int = 0
    """Entries of inputs in a half: with groups each block of results has its own."""
    wgt_depth: int = 0
    result_size: int = 0
    tensor_at: int = 0
    vector_at: int = 0
    source_at: int = 0

    @property
    def input_slots(self) -> int:
        return self.rounds if self.tiling.resident == "input" else self.streams

    @property
    def weight_slots(self) -> int:
        return self.rounds if self.tiling.resident == "weight" else self.streams

    @property
    def product_sets(self) -> list[tuple[int, int]]:
        """The sizes of tiles, in blocks of outputs and inputs, that need micro-operations of their own."""
        _, outputs, inputs = self.blocks
        tile = self.tiling
        found = {
            (min(tile.outputs, outputs), min(tile.inputs, inputs)),
            (outputs - (self.outputs - 1) * tile.outputs, min(tile.inputs, inputs)),
            (min(tile.outputs, outputs), inputs - (self.chunks - 1) * tile.inputs),
            (outputs - (self.outputs - 1) * tile.outputs, inputs - (self.chunks - 1) * tile.inputs),
        }
        return sorted(found, reverse=True)

    def needs(self) -> dict[int, int]:
        """Entries of each memory that the schedule takes."""
        tile, layer = self.tiling, self.layer
        found = {UOP: 2 * tile.outputs, INP: 0, WGT: 0, ACC: self.source_at}
        if layer.kind == "gemm":
            found[INP] = self.input_slots * self.inp_size
            found[WGT] = self.weight_slots * tile.outputs * self.wgt_depth * layer.taps
            found[UOP] += sum(a * b for a, b in self.product_sets) * layer.taps
        else:
            found[ACC] += self.results * tile.outputs * self.in_pixels
            found[UOP] += layer.taps * tile.outputs
        return found

    def problem(self) -> str | None:
        """Why the schedule does not fit, or None."""
        names = {INP: "inputs", WGT: "weights", ACC: "accumulators", UOP: "micro-operations"}
        for memory, needed in self.needs().items():
            if needed > self.config.entries[memory]:
                return f"{needed} entries of {names[memory]}, of {self.config.entries[memory]}"
        return None


def smallest(layer: Layer) -> Tiling:
    """The naive schedule: the smallest tiles, one half of each memory."""
    return Tiling(1, 1, 1, 1, "none", 1)


def halves(size: int) -> list[int]:
    """size, and what it is when halved, rounded up, down to 1."""
    found = [size]
    while found[-1] > 1:
        found.append(-(-found[-1] // 2))
    return found


def parts(layer: Layer, config: Config) -> dict[str, Sequence[Any]]:
    """The options of each part of a tiling: halves of each size, what is resident, one or two slots."""
    _, outputs, inputs = layer.blocks(config)
    residents = RESIDENT if layer.kind == "gemm" else RESIDENT[:1]
    if layer.starts:  # each block of results has inputs of its own
        residents = tuple(one for one in residents if one != "input")
    return {
        "rows": halves(layer.rows),
        "columns": halves(layer.columns),
        "outputs": halves(outputs),
        "inputs": halves(inputs),
        "resident": residents,
        "slots": (2, 1),
    }


def tilings(layer: Layer, config: Config) -> Iterator[Plan]:
    """All schedules of the space that fit."""
    for chosen in product(*parts(layer, config).values()):
        plan = Plan(layer, Tiling(*chosen), config)
        if plan.problem() is None:
            yield plan


__all__ = ["RESIDENT", "Plan", "Tiling", "halves", "parts", "smallest", "tilings"]
