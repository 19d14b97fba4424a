"""The machine model compared with this machine: `python -m benchmarks.fit [--json FILE]`

It measures the limits of the default target's machine and prints them next to its description (`dlc targets
-v`): multiply-adds, bytes per cycle from each cache and from memory, the scaling of memory bandwidth over
cores, and the cost of a parallel loop. Cycles are those of the description's frequency.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dlc_core.driver import build, find_target
from dlc_core.script import T
from dlc_core.target.description import Description
from dlc_core.testing.peak import measure_machine, read_bandwidth

SMALL = 1 << 6
"""The number of elements of the loop that measures the cost of a fork."""


@dataclass(frozen=True)
class Fact:
    """A number of the description, and its measured value."""

    name: str
    unit: str
    described: float
    measured: float

    @property
    def ratio(self) -> float:
        """The measured value relative to the described one."""
        return self.measured / self.described


def facts() -> Iterator[Fact]:
    """Measure this machine, which takes about half a minute."""
    machine = find_target(None).describe()
    found = measure_machine()
    flops = machine.vector_units * machine.lanes(32) * (2 if machine.fma else 1)
    yield Fact("arithmetic", "float32 operations per cycle", flops, found.flops / machine.frequency)
    names = [*(f"L{i + 1}" for i in range(len(machine.caches))), "memory"]
    for name, described, rate in zip(names, machine.bytes_per_cycle, found.bandwidths, strict=True):
        yield Fact(name, "bytes per cycle of one core", described, rate / machine.frequency)
    if machine.cores > 1:
        alone, together = found.bandwidths[-1], found.shared_bandwidth
        measured = math.log(max(together / alone, 1.0)) / math.log(machine.cores)
        yield Fact("memory_scaling", "exponent of the cores", machine.memory_scaling, measured)
        yield Fact("fork_cycles", "cycles", machine.fork_cycles, fork_seconds(machine) * machine.frequency)
        size = machine.caches[-2] // 2
        lanes = machine.lanes(32)
        both = read_bandwidth(size, lanes, threads=machine.cores) / machine.cores
        yield Fact(
            "L2 of all cores", "bytes per cycle of each", machine.bytes_per_cycle[1], both / machine.frequency
        )


def fork_seconds(machine: Description) -> float:
    """The additional seconds of a small parallel loop, compared with the same loop on one thread."""

    def seconds(threads: int) -> float:
        @T.prim_func
        def small(x: T.Buffer((threads, SMALL), "float32"), z: T.Buffer((threads, SMALL), "float32")) -> None:  # type: ignore[valid-type]
            for part in T.parallel(threads):
                for i in range(SMALL):
                    z[part, i] = x[part, i] + T.float32(1.0)

        exe = build(small, num_threads=threads)
        x: Any = np.zeros((threads, SMALL), np.float32)
        return exe.time_evaluator(number=100, repeat=20)(x).min

    return max(seconds(machine.cores) - seconds(1), 1e-9)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fit", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--json", type=Path, help="write the facts to this file")
    chosen = parser.parse_args()
    found = list(facts())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("fact", "unit", "described", "measured", "ratio"):
        table.add_column(title, justify="left" if title in ("fact", "unit") else "right")
    for one in found:
        table.add_row(one.name, one.unit, f"{one.described:.3g}", f"{one.measured:.3g}", f"{one.ratio:.2f}")
    Console().print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in found], indent=2))


if __name__ == "__main__":
    main()
