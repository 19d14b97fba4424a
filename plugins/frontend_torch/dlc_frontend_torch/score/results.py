"""The outcomes of the samples of one operator: `Outcome`, `Score`, and their JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dlc_core.support.record import record

RIGHT, WRONG, FALLBACK, REFUSED, CRASHED = "right", "wrong", "fallback", "refused", "crashed"
RANDOM = "random"
COUNTED = (RIGHT, WRONG, FALLBACK, REFUSED, CRASHED)
"""The statuses that shares are computed of. FALLBACK occurs with gradients alone."""


@record(frozen=True)
class Outcome:
    """The status of one sample. `called` are the names of the operators that reached the importer."""

    dtype: str
    index: int
    status: str
    why: str = ""
    called: tuple[str, ...] = ()


@record(frozen=True)
class Score:
    """The outcomes of an OpInfo. `core` are the Core ATen operators among those that they called."""

    op: str
    outcomes: tuple[Outcome, ...]

    def count(self, status: str) -> int:
        """The number of samples with a status."""
        return sum(each.status == status for each in self.outcomes)

    @property
    def counted(self) -> int:
        """The number of samples that shares are computed of."""
        return sum(self.count(status) for status in COUNTED)

    def reasons(self, status: str) -> list[tuple[str, int]]:
        """Why samples have a status, the most frequent first."""
        return Counter(each.why for each in self.outcomes if each.status == status).most_common()

    def to_json(self) -> dict[str, Any]:
        """A line of a score file."""
        return {
            "op": self.op,
            "outcomes": [[o.dtype, o.index, o.status, o.why, list(o.called)] for o in self.outcomes],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Score:
        """The score of a line of a score file."""
        outcomes = (
            Outcome(dtype, index, status, why, tuple(called))
            for dtype, index, status, why, called in data["outcomes"]
        )
        return Score(data["op"], tuple(outcomes))


def total(scores: Iterable[Score], status: str) -> int:
    """The number of samples with a status."""
    return sum(score.count(status) for score in scores)


__all__ = [
    "COUNTED", "CRASHED", "FALLBACK", "RANDOM", "REFUSED", "RIGHT", "WRONG", "Outcome", "Score", "total",
]  # fmt: skip
