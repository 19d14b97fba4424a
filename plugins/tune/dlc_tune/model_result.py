"""The result of tuning a model, and reports of its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from dlc_core.support.record import record
from dlc_tune.graph_search import Decided
from dlc_tune.records.record import Record
from dlc_tune.search import Result


@record(frozen=True)
class Line:
    """The state of one kernel, for progress reports. Times are milliseconds of one call of the model."""

    name: str
    default: float
    best: float
    trials: int
    state: str


@record(frozen=True)
class Progress:
    """A snapshot: kernels, seconds that have passed and that are left, what is done now."""

    lines: tuple[Line, ...]
    passed: float
    left: float
    now: str


@record(frozen=True, eq=False)
class ModelResult:
    """The result of tuning a model. `print` shows a line for each kernel.

    `ratio` is the time of a call of the tuned model over that of the untuned one, by an interleaved
    comparison, and `noise` the half width of its interval; None if there was no such comparison.
    """

    results: tuple[Result, ...]
    decided: tuple[Decided, ...] = ()
    """The decisions of graph passes that were found to be faster."""
    ratio: float | None = None
    noise: float | None = None
    withdrawn: str = ""
    """Why schedules or decisions were withdrawn, some or all; empty if none was."""
    interrupted: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    model_trials: int = 0
    """The options of decisions that were tried with the whole model."""

    @property
    def chosen(self) -> tuple[Record, ...]:
        """The records that compiles use from now on."""
        return tuple(each.chosen for each in self.results if each.chosen is not None)

    @property
    def trials(self) -> int:
        """The measured candidates of kernels."""
        return sum(result.trials for result in self.results)

    def __str__(self) -> str:
        lines = [str(result) for result in self.results]
        lines += [
            f"{d.decision.partition('/')[0]}: {d.option} instead of {d.preferred}" for d in self.decided
        ]
        if self.ratio is not None:
            lines.append(f"the whole model: {self.ratio:.3f} ± {self.noise:.3f} of its time before")
        return "\n".join([*lines, *([f"withdrawn: {self.withdrawn}"] if self.withdrawn else [])])


__all__ = ["Line", "ModelResult", "Progress"]
