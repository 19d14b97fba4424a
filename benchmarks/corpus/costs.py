"""Predicted and measured times of the kernels of models, and why kernels are far from their roofline.

The prediction is that of the compiler (`Kernel.estimate`), from the description of the target; nothing is
measured for it. The roofline is that of this machine (`measured_machine`). A measured time is the shortest of
several calls, because other processes only make calls slower.
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
from typing import Any

import numpy as np

import dlc_core as dlc
from benchmarks.models import Case
from benchmarks.report import print_table
from dlc_core.diag import DlcError
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.explain import Kernel
from dlc_core.target.cost import Machine, Work
from dlc_core.target.heuristics import ROOFLINE
from dlc_core.testing.peak import measured_machine

FEWEST_CALLS = 4
NEAR, FAR = 1.5, 3.0
"""Ratios of predicted and measured times, in either direction, that count as near and as far."""
TARGET = 0.95
"""The part of all kernels whose predictions are to be near."""
MATTERS = 0.03
"""The part of a model's time from which a kernel far from its roofline is listed."""


@dataclass(frozen=True)
class Cost:
    """A kernel call of a model. Times are seconds; None if the work of the kernel depends on dims."""

    model: str
    kernel: str
    rule: str
    nodes: tuple[str, ...]
    measured: float
    share: float
    """The part of the time of all kernels of its model."""
    predicted: float | None
    roofline: float | None
    """The shortest time that this machine allows."""
    reason: str
    """Why it is far above its roofline; empty if it is not."""
    work: Work
    plan: str = ""

    @property
    def ratio(self) -> float | None:
        """The predicted over the measured time."""
        return None if self.predicted is None else self.predicted / self.measured

    @property
    def above(self) -> float | None:
        """The measured time over the roofline."""
        return self.measured / self.roofline if self.roofline else None


def costs_of(case: Case, threads: int, seconds: float) -> list[Cost]:
    """Compile a model, and measure its kernels for about so many seconds. Kernels that did not run are left
    out.
    """
    with case.file() as path:
        exe = dlc.compile(path, "llvm", num_threads=threads, precision=case.precision)
    feeds = case.feeds()
    given = [feeds[value.name] for value in exe.signature.inputs]
    here = measured_machine()
    times = shortest(exe, given, seconds)
    total = sum(times)
    predicted, limits = exe.explain().kernels, exe.explain(here).kernels
    return [
        Cost(
            case.name,
            kernel.name,
            kernel.rule,
            kernel.nodes,
            time,
            time / total,
            None if kernel.estimate is None else kernel.estimate.seconds,
            None if limit.estimate is None else limit.estimate.limit,
            reason(limit, here, time),
            kernel.work,
            kernel.plan,
        )
        for kernel, limit, time in zip(predicted, limits, times, strict=True)
        if time
    ]


def shortest(exe: Executable, given: Sequence[Any], seconds: float) -> list[float]:
    """The shortest time of each kernel call, in the order of execution; 0 where it did not run."""
    end = perf_counter() + seconds
    rounds: list[list[float]] = []
    while len(rounds) < FEWEST_CALLS or perf_counter() < end:
        report = exe.profile(given, runs=1)
        rounds.append([kernel.seconds or 0.0 for kernel in exe.explain(measured=report).kernels])
    return [float(one) for one in np.min(rounds, axis=0)]


def reason(kernel: Kernel, machine: Machine, measured: float) -> str:
    """Why a kernel takes more than `NEAR` times its roofline on a machine, by the facts of its work; empty if
    it does not.
    """
    estimate, work = kernel.estimate, kernel.work
    if estimate is None or measured <= NEAR * estimate.limit:
        return ""
    if kernel.rule in ("", "none"):
        return "plain loops: no rule scheduled it"
    fixed = machine.call_seconds
    if measured <= NEAR * (estimate.limit + fixed):
        return f"short: a call takes {fixed * 1e6:.1f} µs in addition"
    scheduled = kernel.scheduled / machine.frequency
    if scheduled and measured <= NEAR * scheduled:
        return f"register tile: its cycles are {scheduled / estimate.limit:.1f} times the roofline"
    if work.gathers:
        return f"gathers: {work.gathers} accesses at addresses that are data"
    functions = ROOFLINE.function_steps * (work.functions or 0)
    if functions > (work.steps or 0):
        return f"functions: {work.functions} evaluations, {functions / (functions + (work.steps or 0)):.0%}"
    if estimate.bound != "compute":
        return f"bytes from {estimate.bound}: {(work.bytes or 0) / measured / 1e9:.0f} GB/s"
    return f"arithmetic: {2 * (work.steps or 0) / measured / 1e9:.0f} of {machine.flops / 1e9:.0f} GFLOP/s"


TITLES = ("rule", "kernels", "5%", "25%", "median", "75%", "95%", "within 1.5", "beyond 3")


def distribution(costs: Sequence[Cost]) -> Iterator[list[str]]:
    """A row of predicted over measured times for each schedule rule, and one for all kernels."""
    found: dict[str, list[float]] = defaultdict(list)
    for cost in costs:
        if cost.ratio is not None:
            found[cost.rule or "none"].append(cost.ratio)
            found["all"].append(cost.ratio)
    for rule in sorted(found, key=lambda rule: (rule == "all", -len(found[rule]))):
        ratios = found[rule]
        quantiles = np.quantile(ratios, (0.05, 0.25, 0.5, 0.75, 0.95))
        parts = within(ratios, NEAR), 1 - within(ratios, FAR)
        yield [rule, str(len(ratios)), *(f"{q:.2f}" for q in quantiles), *(f"{p:.1%}" for p in parts)]


def within(ratios: Sequence[float], factor: float) -> float:
    """The part of ratios that are within a factor of 1."""
    return sum(1 / factor <= ratio <= factor for ratio in ratios) / len(ratios)


OUTLIER_TITLES = ("model", "kernel", "rule", "µs", "share", "predicted/measured", "/ roofline", "reason")


def outliers(costs: Sequence[Cost]) -> Iterator[list[str]]:
    """A row for each kernel whose prediction is far off, and for each that matters in its model and is above
    `NEAR` times its roofline. The calls of a kernel in a model are one row.
    """
    calls: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    for cost in costs:
        calls[cost.model, cost.kernel].append(cost)
    rows = []
    for same in calls.values():
        one, share = same[0], sum(cost.share for cost in same)
        is_far = one.ratio is not None and not 1 / FAR <= one.ratio <= FAR
        if is_far or (share >= MATTERS and one.reason):
            rows.append((share, one))
    for share, one in sorted(rows, key=lambda row: -row[0]):
        ratios = ("–" if x is None else f"{x:.2f}" for x in (one.ratio, one.above))
        yield [
            *(one.model, one.kernel, one.rule, f"{one.measured * 1e6:.1f}", f"{share:.1%}"),
            *ratios,
            one.reason or "–",
        ]


def met(costs: Sequence[Cost]) -> bool:
    """Whether predictions are as near as they are to be: `TARGET` of them within `NEAR`, all within `FAR`."""
    ratios = [cost.ratio for cost in costs if cost.ratio is not None]
    return not ratios or (within(ratios, NEAR) >= TARGET and within(ratios, FAR) == 1)


def run(cases: Sequence[Case], threads: int, seconds: float, path: Path | None, *, markdown: bool) -> int:
    """Measure models, print the distribution and the outliers, and write all figures to a file if its path is
    given. Returns 1 if predictions are not as near as they are to be.
    """
    found: list[Cost] = []
    for case in cases:
        try:
            found += costs_of(case, threads, seconds)
        except DlcError as error:
            sys.stderr.write(f"{case.name}: {str(error).splitlines()[0]}\n")
            continue
        gc.collect()
        total = sum(cost.measured for cost in found if cost.model == case.name)
        sys.stderr.write(f"{case.name}: {1e3 * total:.2f} ms\n")
        if path is not None:
            path.write_text(json.dumps([asdict(cost) for cost in found], indent=1) + "\n", encoding="utf-8")
    print_table(TITLES, list(distribution(found)), markdown=markdown)
    print()
    print_table(OUTLIER_TITLES, list(outliers(found)), markdown=markdown)
    return int(not met(found))
