"""The choice of a schedule at compile time, and what it is worth: `python -m dlc_backend_vta.search`.

The search looks at all schedules of the space (`tiling.tilings`) through the cycle model alone.  The table
compares what it chose with the best of the same space by simulation of each, and with the naive schedule.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dlc_backend_vta.config import Config
from dlc_backend_vta.cycles import simulate_within
from dlc_backend_vta.generate import Generator, stream
from dlc_backend_vta.layers import Layer, View, Weights, matmul
from dlc_backend_vta.model import estimate, predict
from dlc_backend_vta.tiling import Plan, Tiling, smallest, tilings
from dlc_core.diag import UnsupportedError

REFINED = 24
"""How many schedules the recurrences rank, the best ones by the formula."""


def choose(layer: Layer, config: Config) -> Plan:
    """The schedule with the fewest cycles by the model; UnsupportedError where none fits."""
    return candidates(layer, config)[0][0]


def candidates(layer: Layer, config: Config) -> list[tuple[Plan, int]]:
    """The best schedules by the model and their cycles, the fastest first. UnsupportedError if none fits."""
    return [(Plan(layer, tiling, config), cycles) for tiling, cycles in _ranked(shape_of(layer), config)]


def shape_of(layer: Layer) -> Layer:
    """A layer without its name and its addresses, which do not change its cycles."""

    def moved(view: View) -> View:
        return replace(view, base=0, offset=0)

    tensors = tuple(map(moved, layer.tensors))
    return replace(layer, name="", source=moved(layer.source), target=moved(layer.target), tensors=tensors)


@lru_cache(maxsize=4096)
def _ranked(layer: Layer, config: Config) -> tuple[tuple[Tiling, int], ...]:
    ranked = sorted(tilings(layer, config), key=estimate)
    if not ranked:
        why = Plan(layer, smallest(layer), config).problem()
        raise UnsupportedError(f"no tile of {layer.name} fits", why=why or "", hint="take larger memories")
    refined = [(plan.tiling, predict(plan)) for plan in ranked[:REFINED]]
    return tuple(sorted(refined, key=lambda each: each[1]))


def simulated(plan: Plan, limit: int | None = None) -> int | None:
    """Cycles of the schedule's instructions by the simulator; None where they are more than `limit`."""
    timing = simulate_within(stream(Generator(plan)), plan.config, limit)
    return None if timing is None else timing.cycles


@dataclass(frozen=True)
class Row:
    """One layer on one machine: the chosen schedule, its cycles by the model and simulated, those of the best
    and of the naive one, and how many schedules were compared."""

    layer: Layer
    config: Config
    chosen: Plan
    predicted: int
    cycles: int
    best: Plan
    best_cycles: int
    naive_cycles: int
    count: int

    @property
    def behind(self) -> float:
        """How much longer than the best schedule the chosen one takes."""
        return self.cycles / self.best_cycles - 1.0

    @property
    def speedup(self) -> float:
        """How much longer than the chosen schedule the naive one takes."""
        return self.naive_cycles / self.cycles


def compare(layer: Layer, config: Config) -> Row:
    """Simulate every schedule of the space.  Those longer than the best so far are stopped there."""
    chosen = choose(layer, config)
    cycles = simulated(chosen)
    naive = simulated(Plan(layer, smallest(layer), config))
    assert cycles is not None
    assert naive is not None
    best, best_cycles, count = chosen, cycles, 0
    for plan in sorted(tilings(layer, config), key=estimate):
        count += 1
        found = simulated(plan, best_cycles)
        if found is not None and found < best_cycles:
            best, best_cycles = plan, found
    return Row(layer, config, chosen, predict(chosen), cycles, best, best_cycles, naive, count)


def convolution(
    name: str, inputs: int, size: int, outputs: int, kernel: int, stride: int, config: Config
) -> Layer:
    """A convolution of an image of `size` rows and columns with a border, its sums stored as they are."""
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    image, result = size * size, out * out
    return Layer(
        name,
        "gemm",
        1,
        outputs,
        out,
        out,
        View(0, 0, (inputs * image, image, size, 1)),
        View(2, 0, (outputs * result, result, out, 1)),
        inputs,
        size,
        size,
        (kernel, kernel),
        (stride, stride),
        pads=(pad, pad),
        weights=Weights(1, 0),
    )


def cases() -> list[tuple[Layer, Config]]:
    """The layers and machines of the table."""
    machines = (
        Config(),
        Config(inp_kb=8, wgt_kb=32, acc_kb=16),
        Config(batch=4, block_in=8, block_out=8, inp_kb=16, wgt_kb=64, acc_kb=32),
        Config(latency=128, bus_bytes=8, inp_kb=64),
        Config(inp_kb=2, wgt_kb=8, acc_kb=4, uop_kb=4, bus_bytes=4),
    )
    found: list[tuple[Layer, Config]] = []
    for config in machines:
        found += [
            (replace(matmul("matmul 128x256x256", 128, 256, 256, config), weights=Weights(1, 0)), config),
            (replace(matmul("matmul 16x1000x512", 16, 1000, 512, config), weights=Weights(1, 0)), config),
            (convolution("conv 64x28x28 3x3 64", 64, 28, 64, 3, 1, config), config),
            (convolution("conv 128x14x14 3x3/2 256", 128, 14, 256, 3, 2, config), config),
            (convolution("conv 256x14x14 1x1 64", 256, 14, 64, 1, 1, config), config),
        ]
    return found


def table(rows: Sequence[Row]) -> str:
    """The table as text in Markdown."""
    lines = [
        "| layer | machine | schedules | chosen | predicted | cycles | best | behind | naive | speedup |",
        "| --- | --- | --: | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        c = row.config
        machine = f"{c.batch}x{c.block_in}x{c.block_out}, {c.inp_kb}+{c.wgt_kb}+{c.acc_kb} KiB"
        machine += f", {c.bus_bytes} B, {c.latency}"
        lines.append(
            f"| {row.layer.name} | {machine} | {row.count} | {row.chosen.tiling} | {row.predicted} | "
            f"{row.cycles} | {row.best_cycles} | {row.behind:.1%} | {row.naive_cycles} | {row.speedup:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m dlc_backend_vta.search", description=__doc__)
    parser.add_argument("--table", action="store_true", help="simulate all schedules and print the table")
    parser.add_argument("--only", default="", help="layers whose name has this")
    given = parser.parse_args(arguments)
    chosen = [(layer, config) for layer, config in cases() if given.only in layer.name]
    if given.table:
        print(table([compare(layer, config) for layer, config in chosen]))
        return
    for layer, config in chosen:
        plan = choose(layer, config)
        print(f"{layer.name}: {plan.tiling}, {predict(plan)} cycles")


if __name__ == "__main__":
    main()
