"""The command that tests how often a machine calls a schedule faster than itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer
from dlc_tune.measuring.check import ALLOWED, KERNELS, check, main
from dlc_tune.measuring.job import OK, RUN, Comparison, Job


class FakeMeasurer:
    """A measurer with given comparisons."""

    def __init__(self, found: Iterator[Comparison]) -> None:
        self.found = found
        self.compared: list[tuple[Job, Job]] = []

    def compare(self, candidate: Job, default: Job) -> Comparison:
        self.compared.append((candidate, default))
        return next(self.found)


def comparison(ratio: float) -> Comparison:
    return Comparison(OK, (ratio,), (1.0,), ratio, 0.01, same_results=True)


def test_counts_what_is_called_faster() -> None:
    jobs = [Job(func, "llvm -num-threads=1") for func in KERNELS[:2]]
    measurer = FakeMeasurer(map(comparison, [1.0, 0.95, 0.995, 1.2]))
    found = check(measurer, jobs, 4)
    assert [ours is theirs for ours, theirs in measurer.compared] == [True] * 4
    assert [ours for ours, _ in measurer.compared] == [*jobs, *jobs]
    assert found.rate == 0.25 > ALLOWED
    assert "1 of 4 comparisons of equal schedules called faster (25.0%, allowed 3%): 0.9500" in str(found)


def test_a_failed_comparison_ends_the_check() -> None:
    measurer = FakeMeasurer(iter([Comparison(RUN, why="the device is gone")]))
    with pytest.raises(typer.BadParameter, match="the device is gone"):
        check(measurer, [Job(KERNELS[0], "llvm")], 1)


def test_the_command_compares_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):  # its status depends on the load of the machine
        main(count=2, seconds=0.05, target="llvm -num-threads=1")
    assert "of 2 comparisons of equal schedules called faster" in " ".join(capsys.readouterr().out.split())
