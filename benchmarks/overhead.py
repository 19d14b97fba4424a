"""The overhead of calls and process starts: `python -m benchmarks.overhead [--json FILE]`

Calls are of a model that adds 1 to four numbers, on one thread, from Python. Starts are those of processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import dlc_core as dlc
from benchmarks.environment import environment
from benchmarks.peers import OURS
from benchmarks.report import head, machine, print_table
from dlc_core import nn

CALLS = 20000
ROUNDS = 7
TITLES = ("what", "least", "unit")

_IMPORT = "import dlc_core"
_OPEN = "import dlc_core as dlc, numpy as np, sys; dlc.open(sys.argv[1])(np.zeros(4, np.float32))"
_NUMPY = "import numpy"


class AddOne(nn.Module):
    """A minimal model."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return x + 1.0


def call_microseconds(call: Callable[[], object], calls: int = CALLS) -> float:
    """The mean time of a call in the fastest of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return 1e6 * best


def start_milliseconds(code: str, *arguments: str, variables: dict[str, str], rounds: int = 5) -> float:
    """The time of the fastest of several processes that run a line of Python, without the first one."""
    best = float("inf")
    for repeat in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=variables)
        if repeat:
            best = min(best, time.perf_counter() - start)
    return 1e3 * best


def measure(calls: int = CALLS, rounds: int = 5) -> dict[str, tuple[float, str]]:
    """Each figure with its unit."""
    module = AddOne().to_module({"x": (4,)})
    exe = dlc.compile(module, num_threads=1, cache=False)
    x = np.zeros(4, np.float32)
    feeds, bound = {"x": x}, exe.bind([x])
    figures = {
        "bound call": (call_microseconds(bound, calls), "µs"),
        "call": (call_microseconds(lambda: exe(x), calls), "µs"),
        "call by name": (call_microseconds(lambda: exe.run(feeds), calls), "µs"),
    }
    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        variables = environment(DLC_CACHE="1", DLC_CACHE_DIR=folder)
        saved = str(Path(folder, "model.dlc"))
        exe.save(saved)
        for name, code in (("python", "pass"), ("numpy", _NUMPY), ("dlc_core", _IMPORT)):
            figures[f"start: {name}"] = start_milliseconds(code, variables=variables, rounds=rounds), "ms"
        first = start_milliseconds(_OPEN, saved, variables=variables, rounds=rounds)
        figures["start: first result of a .dlc file"] = first, "ms"
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description="What calls and starts cost."
    )
    parser.add_argument("--calls", type=int, default=CALLS, help="in each of seven rounds (%(default)s)")
    parser.add_argument("--starts", type=int, default=5, help="processes that count (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args(arguments)
    facts = machine()
    print(head(facts, [OURS]), flush=True)
    figures = measure(options.calls, options.starts)
    rows = [[name, f"{value:.2f}", unit] for name, (value, unit) in figures.items()]
    print_table(TITLES, rows, markdown=options.markdown)
    if options.json is not None:
        record = {name: {"least": value, "unit": unit} for name, (value, unit) in figures.items()}
        options.json.write_text(
            json.dumps({"machine": facts, "figures": record}, indent=1) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
