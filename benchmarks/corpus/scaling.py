"""Speed-ups of kernels on several threads, and why those of arithmetic-bound kernels are low.

The same code runs with one thread and with several, alternately, so that only the number of threads differs.
The time of a kernel is the shortest of several calls. Kernels that one thread ends within `SHORT` are left
out, because a model gains little from them.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

import dlc_core as dlc
from benchmarks.corpus.costs import FEWEST_CALLS, shortest
from benchmarks.models import Case
from benchmarks.report import print_table
from dlc_core.diag import DlcError
from dlc_core.testing.peak import measured_machine

TARGET = 0.85
"""The speed-up that arithmetic-bound kernels are to have, per thread."""
MATTERS = 0.03
"""The part of a model's time from which a slow kernel is listed."""
SHORT = 20e-6
"""Seconds of one thread below which a kernel is left out."""


@dataclass(frozen=True)
class Speedup:
    """A kernel call with one thread and with several. Times are seconds."""

    model: str
    kernel: str
    rule: str
    plan: str
    bound: str
    """What limits it by the roofline of all threads: compute, or a level of the memory."""
    serial: float
    parallel: float
    share: float
    """The part of the time of its model with several threads."""

    @property
    def factor(self) -> float:
        return self.serial / self.parallel


def speedups_of(case: Case, threads: int, seconds: float) -> list[Speedup]:
    """Measure the kernels of a model for about so many seconds. Kernels that did not run are left out."""
    with case.file() as path:
        exe = dlc.compile(path, "llvm", num_threads=threads, precision=case.precision)
    feeds = case.feeds()
    given = [feeds[value.name] for value in exe.signature.inputs]
    one, end = exe.with_threads(1), perf_counter() + seconds
    serial: list[list[float]] = []
    parallel: list[list[float]] = []
    while len(serial) < FEWEST_CALLS or perf_counter() < end:
        serial.append(shortest(one, given, 0))
        parallel.append(shortest(exe, given, 0))
    limits = exe.explain(measured_machine()).kernels
    times = [
        (float(a), float(b)) for a, b in zip(np.min(serial, axis=0), np.min(parallel, axis=0), strict=True)
    ]
    total = sum(b for _, b in times)
    return [
        Speedup(
            case.name,
            kernel.name,
            kernel.rule,
            kernel.plan,
            "unknown" if kernel.estimate is None else kernel.estimate.bound,
            alone,
            together,
            together / total,
        )
        for kernel, (alone, together) in zip(limits, times, strict=True)
        if alone >= SHORT
    ]


TITLES = ("rule", "bound", "kernels", "5%", "25%", "median", "share of time", "below target")


def distribution(found: Sequence[Speedup], threads: int) -> Iterator[list[str]]:
    """A row of speed-ups for each schedule rule and bound, the most kernels first, and one for all."""
    groups: dict[tuple[str, str], list[Speedup]] = defaultdict(list)
    for each in found:
        groups[each.rule or "none", each.bound].append(each)
    for (rule, bound), same in [
        *sorted(groups.items(), key=lambda group: -len(group[1])),
        (("all", ""), found),
    ]:
        quantiles = np.quantile([each.factor for each in same], (0.05, 0.25, 0.5))
        part = sum(each.parallel for each in same) / sum(each.parallel for each in found)
        low = sum(each.factor < TARGET * threads for each in same) / len(same)
        yield [rule, bound, str(len(same)), *(f"{q:.2f}" for q in quantiles), f"{part:.1%}", f"{low:.1%}"]


SLOW_TITLES = ("model", "kernel", "rule", "plan", "µs", "share", "speed-up")


def slow(found: Sequence[Speedup], threads: int) -> Iterator[list[str]]:
    """A row for each arithmetic-bound kernel that matters in its model and has a low speed-up."""
    rows = [
        each
        for each in found
        if each.bound == "compute" and each.share >= MATTERS and each.factor < TARGET * threads
    ]
    for each in sorted(rows, key=lambda each: each.factor):
        times = f"{each.parallel * 1e6:.1f}", f"{each.share:.1%}", f"{each.factor:.2f}"
        yield [each.model, each.kernel, each.rule, each.plan, *times]


def run(cases: Sequence[Case], threads: int, seconds: float, path: Path | None, *, markdown: bool) -> int:
    """Measure models, print the distribution and the slow kernels, and write all figures to a file if its
    path is given. Returns 1 if an arithmetic-bound kernel is slow.
    """
    found: list[Speedup] = []
    for case in cases:
        try:
            found += speedups_of(case, threads, seconds)
        except DlcError as error:
            sys.stderr.write(f"{case.name}: {str(error).splitlines()[0]}\n")
            continue
        gc.collect()
        if path is not None:
            path.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", encoding="utf-8")
    rows = list(slow(found, threads))
    if found:
        print_table(TITLES, list(distribution(found, threads)), markdown=markdown)
        print()
    print_table(SLOW_TITLES, rows, markdown=markdown)
    return int(bool(rows))
