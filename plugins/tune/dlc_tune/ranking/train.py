"""Train weights of the cost model from records.

    python -m dlc_tune.ranking.train records.jsonl weights.txt [--seed 0]
    ranker = learned_ranker(weights="weights.txt")

Records of one kernel, target, machine, number of threads and unit are ordered against each other. Those
without features of this version are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dlc_core.diag import DlcError, UsageError
from dlc_core.support.record import record
from dlc_tune.measuring.job import OK
from dlc_tune.ranking.features import Row
from dlc_tune.ranking.model import Group, trained
from dlc_tune.ranking.notes import FEATURES, row_of
from dlc_tune.ranking.weights import save_weights
from dlc_tune.records.lines import Refused, read_lines
from dlc_tune.records.record import Record

LEAST = 64
"""The records below which no weights are trained."""


@record(frozen=True, eq=False)
class Found:
    """The samples of records: a group for each kernel, and the number of records without features."""

    groups: tuple[Group, ...]
    without: int

    @property
    def samples(self) -> int:
        return sum(len(one.seconds) for one in self.groups)


def samples_of(records: Iterable[Record]) -> Found:
    """The samples of records. Failed measurements count as the slowest of their kernel."""
    kept: dict[tuple[str, ...], list[tuple[Row, float]]] = {}
    without = 0
    for one in records:
        row = row_of(str(one.notes.get(FEATURES, "")))
        if row is None:
            without += 1
            continue
        key = (one.kernel, one.target, one.processor, one.machine, str(one.threads), one.unit)
        seconds = one.seconds if one.outcome == OK and one.seconds else float("inf")
        kept.setdefault(key, []).append((row, seconds))
    groups = [
        Group(np.stack([row for row, _ in each]), np.array([seconds for _, seconds in each]))
        for each in kept.values()
        if len(each) > 1
    ]
    return Found(tuple(groups), without)


def train(source: str | Path, path: str | Path, seed: int = 0) -> Found:
    """Train weights on a file of records, write them, and return what they were trained on.

    Lines that are no records are skipped. Raises UsageError if the records with features are too few,
    PluginError without LightGBM.
    """
    with Path(source).open("rb") as file:
        found = samples_of(one for one in read_lines(file) if not isinstance(one, Refused))
    if found.samples < LEAST:
        raise UsageError(
            f"{source} has {found.samples} records that a model can be trained on",
            why=f"{found.without} others have no features of this version" if found.without else "",
            hint=f"at least {LEAST} are needed",
        )
    save_weights(trained(found.groups, seed), path)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dlc_tune.ranking.train", description="Train weights of the cost model from records."
    )
    parser.add_argument("records", type=Path, help="JSON lines, as `dlc records export` writes them")
    parser.add_argument("weights", type=Path, help="the file to write")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds and records give equal weights")
    options = parser.parse_args()
    try:
        found = train(options.records, options.weights, options.seed)
    except (DlcError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(
        f"{options.weights}: trained on {found.samples} schedules of {len(found.groups)} kernels; "
        f"{found.without} records without features left out\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
