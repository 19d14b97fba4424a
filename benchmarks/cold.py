"""The time until a model can be called, with and without what earlier compiles have left in the cache.

    python -m benchmarks.cold resnet50 transformer_128 --rounds 5
    python -m benchmarks.cold --models FOLDER      models with inputs, as `python -m benchmarks` takes them

Each compile has its own process, and starts when Python does.  The starts are

    cold       with an empty cache
    changed    a file that differs, while all kernels are in the cache
    same       the same file again
    level 1    with an empty cache, at `opt_level=1`

`s` is the time until `dlc.compile` returns, `cpu s` the processor time of the process and its forks, and
`first s` the time until the first result.  Each is the lowest of all rounds, which alternate.  Processor time
says more if the machine has other work.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.environment import environment
from benchmarks.models import Case, default_cases, folder_cases

_COMPILE = """
import json, resource, sys, time
start = time.perf_counter()
import dlc_core as dlc
exe = dlc.compile(sys.argv[1], "llvm", opt_level=int(sys.argv[3]))
compiled = time.perf_counter()
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
import numpy as np
exe.run(dict(np.load(sys.argv[2])))
first = time.perf_counter()
cpu = sum(each.ru_utime + each.ru_stime for each in used)
print(json.dumps([compiled - start, cpu, first - start]))
"""
_ANOTHER_PRODUCER = b"\x1a\x01x"
"""The field `producer_version` of a model.  Appended to a file, it replaces an earlier one."""
STARTS = ("cold", "changed", "same", "level 1")
"""The kinds of starts, in the order in which they run."""
Times = dict[str, tuple[float, float, float]]
"""Seconds until the compile has ended, of processor time, and until the first result, by kind of start."""


def measure(case: Case, rounds: int) -> Times:
    """The lowest times of a model."""
    found: dict[str, list[tuple[float, float, float]]] = {start: [] for start in STARTS}
    with case.file() as model, TemporaryDirectory(prefix="dlc-cold-") as name:
        folder = Path(name)
        changed, feeds, cache = folder / "changed.onnx", folder / "feeds.npz", folder / "cache"
        changed.write_bytes(model.read_bytes() + _ANOTHER_PRODUCER)
        np.savez(feeds, **case.feeds())
        for _ in range(rounds):
            for start, path in (("cold", model), ("changed", changed), ("same", changed)):
                found[start].append(_compile(path, feeds, cache))
            shutil.rmtree(cache)
            found["level 1"].append(_compile(model, feeds, cache, level=1))
            shutil.rmtree(cache)
    return {start: (min(a), min(b), min(c)) for start, times in found.items() for a, b, c in [zip(*times)]}


def _compile(model: Path, feeds: Path, cache: Path, level: int = 3) -> tuple[float, float, float]:
    arguments = [sys.executable, "-c", _COMPILE, str(model), str(feeds), str(level)]
    variables = environment(DLC_CACHE="1", DLC_CACHE_DIR=str(cache))
    done = subprocess.run(arguments, env=variables, check=True, capture_output=True, text=True)
    seconds, cpu, first = json.loads(done.stdout)
    return seconds, cpu, first


def report(name: str, times: Times) -> list[str]:
    """The lines of a model's table."""
    head = f"{name:<28}{'s':>8}{'cpu s':>8}{'first s':>9}"
    return [head, *(f"  {start:<26}{a:8.2f}{b:8.2f}{c:9.2f}" for start, (a, b, c) in times.items())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold", description="Times of compiles.")
    parser.add_argument("names", nargs="*", help="names of models; all without any")
    parser.add_argument("--models", type=Path, help="a folder of models with inputs")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    cases = default_cases() if options.models is None else folder_cases(options.models)
    unknown = set(options.names) - {case.name for case in cases}
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in cases)}")
    for case in cases:
        if not options.names or case.name in options.names:
            print("\n".join(report(case.name, measure(case, options.rounds))), flush=True)


if __name__ == "__main__":
    main()
