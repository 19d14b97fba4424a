"""A comparison of a run with an earlier one, from the JSON files of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.report import NONE, print_table

THRESHOLD = 0.10
"""The fraction by which a time may grow."""
OURS = "dlc"
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A model and number of threads in both runs."""

    model: str
    threads: int
    outcome: str
    """slower, faster, same, new, missing, failed or mended; a failure has its reason."""
    before: float | None = None
    """Milliseconds, median."""
    after: float | None = None
    drift: float = 1.0
    """The geometric mean of the factors by which the times of the peers grew: of the machine, not of ours."""

    @property
    def regression(self) -> bool:
        return self.outcome.partition(":")[0] in ("slower", "missing", "failed")

    @property
    def factor(self) -> float | None:
        """The growth of our time, divided by the growth of the peers' times."""
        if self.before is None or self.after is None:
            return None
        return self.after / self.before / self.drift


def read(path: Path) -> dict[str, Any]:
    """The JSON of an earlier run."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def compared(
    before: Sequence[Record],
    after: Sequence[Record],
    wanted: Callable[[str], bool],
    threads: Collection[int],
    threshold: float = THRESHOLD,
) -> list[Change]:
    """The changes between two runs, for the models and numbers of threads that are `wanted` of the second
    one.

    A time is slower if it grew by more than the threshold and if the ranges of the middle 80% of the calls do
    not overlap, after the growth of the peers' times is divided out. It is faster in the same way. A model
    that failed or was wrong and did neither before is failed; one that was measured before and has no result
    now is missing.
    """
    old = {(each["model"], each["threads"]): each for each in before}
    new = {(each["model"], each["threads"]): each for each in after}
    gone = [key for key in old if key not in new and key[1] in threads and wanted(key[0])]
    return [
        *(_change(key, old.get(key), each, threshold) for key, each in new.items()),
        *(Change(*key, "missing") for key in gone),
    ]


def _change(key: tuple[str, int], old: Record | None, new: Record, threshold: float) -> Change:
    if old is None:
        return Change(*key, f"failed: {new['problem']}" if new["problem"] else "new", None, _median(new))
    drift = _drift(old, new)
    figures = _median(old), _median(new), drift
    if new["problem"]:
        outcome = "same" if old["problem"] else f"failed: {new['problem']}"
        return Change(*key, outcome, *figures)
    if old["problem"]:
        return Change(*key, "mended", *figures)
    first, last = old["milliseconds"][OURS], new["milliseconds"][OURS]
    factor = last["median"] / first["median"] / drift
    outcome = "same"
    if factor > 1 + threshold and last["p10"] / drift > first["p90"]:
        outcome = "slower"
    elif factor < 1 / (1 + threshold) and last["p90"] / drift < first["p10"]:
        outcome = "faster"
    return Change(*key, outcome, *figures)


def _median(record: Record) -> float | None:
    found = record["milliseconds"].get(OURS)
    return None if found is None else float(found["median"])


def _drift(old: Record, new: Record) -> float:
    """The growth of the peers' times; 1 if the runs have no peer in common."""
    first, last = old["milliseconds"], new["milliseconds"]
    logs = [log(last[n]["median"] / first[n]["median"]) for n in first if n in last and n != OURS]
    return exp(sum(logs) / len(logs)) if logs else 1.0


def print_changes(before: Record, after: Record, changes: Sequence[Change], *, markdown: bool) -> None:
    """The changes that are not "same" as a table, and the number of each outcome."""
    print()
    differing = [key for key in ("processor", "cores", "system") if before.get(key) != after.get(key)]
    for key in differing:
        print(f"ANOTHER MACHINE: the {key} was {before.get(key)}, and is {after.get(key)}")
    told = sorted((c for c in changes if c.outcome != "same"), key=lambda c: (-(c.factor or 9e9), c.model))
    if told:
        print_table(TITLES, [_row(change) for change in told], markdown=markdown)
    counts: dict[str, int] = {}
    for change in changes:
        name = change.outcome.partition(":")[0]
        counts[name] = counts.get(name, 0) + 1
    text = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"compared with the earlier run: {text or 'nothing'}")


TITLES = ("model", "threads", "before ms", "ms", "peers ×", "factor", "outcome")


def _row(change: Change) -> list[str]:
    numbers = [change.before, change.after, change.drift, change.factor]
    cells = [NONE if number is None else f"{number:.3f}" for number in numbers]
    return [change.model, str(change.threads), *cells, change.outcome]
