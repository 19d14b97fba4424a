"""How compile time and memory grow with the size of a model.

    python -m benchmarks.growth                            all families, in some ten minutes
    python -m benchmarks.growth relu_chain concat_values   some of them
    python -m benchmarks.growth --most 1000 --seconds 10   no larger sizes; compiles are stopped after 10 s

`benchmarks/growth_models.py` has the families: long chains, wide ops, nests, many constants, many kernels.
Each compile has its own process, without a cache. A small model is compiled before, so the figures do not
have the start of Python and of the compiler, which the first line gives. `s` is the time of the compile,
`cpu s` the processor time of the process and its forks, `MiB` what the compile adds to the largest memory of
the process. Results are compared with those of NumPy, unless a call would take long (`most_checked`).

The exponent e is that of the fit `cpu s` = a * size ** e, over the sizes that take at least 0.1 s: 1 is
linear growth, 2 quadratic. A model that a limit refuses is reported with the reason.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.growth_models import FAMILIES, inputs_of

LEAST = 0.1
"""Seconds of processor time; shorter compiles say nothing about growth."""
RTOL, ATOL = 2e-4, 1e-5


@dataclass(frozen=True)
class Compiled:
    """A compile: its family and size, and seconds and MiB; `refused` is the reason if there is no result."""

    family: str
    size: int
    start: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    mib: float = 0.0
    refused: str = ""


def compile_one(family: str, size: int) -> Compiled:
    """Compile a model in this process, and compare its results. Raises AssertionError if they differ."""
    begin = time.perf_counter()
    import dlc_core as dlc

    models = FAMILIES[family]
    dlc.compile(FAMILIES["add_chain"].make(2), cache=False)
    start = time.perf_counter() - begin
    model = models.make(size)
    data = model.SerializeToString()
    memory, cpu, begin = _memory(), _cpu(), time.perf_counter()
    try:
        exe = dlc.compile(data, cache=False)
    except dlc.DlcError as error:
        seconds = time.perf_counter() - begin
        return Compiled(
            family, size, start, seconds, _cpu() - cpu, refused=f"{type(error).__name__}: {error.what}"
        )
    seconds, used = time.perf_counter() - begin, _cpu() - cpu
    done = Compiled(family, size, start, seconds, used, _memory() - memory)
    if size <= models.most_checked:
        inputs = inputs_of(model)
        results = exe.run(inputs).values()
        for result, wanted in zip(results, models.expected(size, inputs), strict=True):
            np.testing.assert_allclose(result, wanted, RTOL, ATOL)
    return done


def _memory() -> float:
    """The largest memory of this process so far in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measure(family: str, size: int, seconds: float) -> Compiled:
    """Compile a model in a process of its own, which has at most so many seconds for it."""
    arguments = [sys.executable, "-m", "benchmarks.growth", "--one", family, str(size)]
    variables = environment(DLC_CACHE="0", DLC_MAX_SECONDS=str(seconds))
    done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{family} of size {size} fails:\n{done.stderr[-2000:]}")
    return Compiled(**json.loads(done.stdout.splitlines()[-1]))


def exponent(found: Sequence[Compiled]) -> float | None:
    """The fitted exponent of growth; None if fewer than two sizes take long enough."""
    used = [(each.size, each.cpu) for each in found if not each.refused and each.cpu >= LEAST]
    if len(used) < 2:
        return None
    sizes, seconds = np.log(np.array(used, dtype=np.float64)).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def report(found: Sequence[Compiled]) -> list[str]:
    """The lines of a family."""
    family = FAMILIES[found[0].family]
    fitted = exponent(found)
    growth = "too short to fit" if fitted is None else f"exponent {fitted:.2f}"
    lines = [f"{found[0].family}: {family.counts}; {growth}"]
    for each in found:
        figures = f"{each.seconds:8.2f} s {each.cpu:8.2f} cpu s {each.mib:7.0f} MiB"
        lines.append(f"  {each.size:>9,} {figures}{f'  refused: {each.refused}' if each.refused else ''}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description="Growth of compiles.")
    parser.add_argument("families", nargs="*", help=f"some of: {', '.join(FAMILIES)}")
    parser.add_argument("--most", type=int, default=100_000, help="the largest size")
    parser.add_argument("--seconds", type=float, default=60.0, help="the limit of one compile")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--one", nargs=2, metavar=("FAMILY", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asdict(compile_one(options.one[0], int(options.one[1])))))
        return 0
    unknown = [name for name in options.families if name not in FAMILIES]
    if unknown:
        parser.error(f"no family {unknown[0]}; known: {', '.join(FAMILIES)}")
    figures: list[Compiled] = []
    for name in options.families or FAMILIES:
        sizes = [size for size in FAMILIES[name].sizes if size <= options.most]
        found = []
        for size in sizes:
            found.append(measure(name, size, options.seconds))
            if found[-1].refused:
                break
        if found and not figures:
            print(f"start of Python and of the compiler: {found[0].start:.2f} s")
        figures += found
        print("\n".join(report(found)) if found else f"{name}: no size up to {options.most}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in figures], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
