"""How often this machine calls a schedule faster than itself.

    python -m dlc_tune.measuring.check --count 200 --seconds 0.5 --target "llvm -num-threads=1"

Compares the default schedules of some kernels with themselves, as the tuner compares candidates with
defaults. Each is_faster is false. At most 2.5% of comparisons should be, on a busy machine too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Annotated, Protocol

import typer
from rich.console import Console

from dlc_core import te
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.measuring.job import OK, Comparison, Job
from dlc_tune.measuring.local import LocalMeasurer

ALLOWED = 0.03
"""The part of comparisons of equal schedules that may be called faster."""


class Comparer(Protocol):
    """The part of a measurer that compares."""

    def compare(self, candidate: Job, default: Job) -> Comparison: ...


@record(frozen=True)
class Check:
    """Comparisons of equal schedules: all of them, and those that were called faster."""

    comparisons: tuple[Comparison, ...]
    faster: tuple[Comparison, ...]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.faster) / max(1, len(self.comparisons))

    def __str__(self) -> str:
        pairs = median(len(each.candidate) for each in self.comparisons)
        noise = median(each.noise for each in self.comparisons)
        found = ", ".join(f"{each.ratio:.4f} +- {each.noise:.4f}" for each in self.faster)
        return (
            f"{len(self.faster)} of {len(self.comparisons)} comparisons of equal schedules called faster"
            f" ({self.rate:.1%}, allowed {ALLOWED:.0%}){': ' if found else ''}{found}; {pairs:g} pairs and"
            f" noise {noise:.2%} in the median; {self.seconds:.0f} s"
        )


def product(size: int) -> PrimFunc:
    """A GEMM."""
    a, b = te.placeholder((size, size), name="a"), te.placeholder((size, size), name="b")
    k = te.reduce_axis((0, size), "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    return te.create_prim_func([a, b], [c], f"product_{size}")


def sigmoid(size: int) -> PrimFunc:
    """An elementwise kernel."""
    x = te.placeholder((size,), name="x")
    return te.create_prim_func([x], [te.compute((size,), lambda i: te.sigmoid(x[i]), "y")], f"sigmoid_{size}")


KERNELS = (product(32), product(128), sigmoid(1000), sigmoid(1 << 18))


def check(measurer: Comparer, jobs: Sequence[Job], count: int) -> Check:
    """Compare each of some jobs with itself, in turn, `count` times in all."""
    begin = time.perf_counter()
    found = tuple(_comparisons(measurer, jobs, count))
    faster = tuple(each for each in found if each.is_faster)
    return Check(found, faster, time.perf_counter() - begin)


def _comparisons(measurer: Comparer, jobs: Sequence[Job], count: int) -> Iterator[Comparison]:
    for number in range(count):
        job = jobs[number % len(jobs)]
        comparison = measurer.compare(job, job)
        if comparison.state != OK:
            raise typer.BadParameter(f"{job.func.name} cannot be compared: {comparison.why}")
        yield comparison


def main(
    count: Annotated[int, typer.Option(help="The number of comparisons.")] = 100,
    seconds: Annotated[float, typer.Option(help="The time limit of each.")] = 1.0,
    target: Annotated[str, typer.Option(help="The target.")] = "llvm -num-threads=1",
) -> None:
    """Compare equal schedules, and fail if too many are called faster."""
    with LocalMeasurer(compare_seconds=seconds) as measurer:
        found = check(measurer, [Job(func, target) for func in KERNELS], count)
    Console().print(str(found), highlight=False)
    raise typer.Exit(1 if found.rate > ALLOWED else 0)


if __name__ == "__main__":
    typer.run(main)
