"""The summary of a score that this package keeps for `docs/torch-operators.md`: `summary`, `recorded`.

python -m dlc_frontend_torch.score --limit 1 --json score.jsonl --summary FILE
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dlc_frontend_torch.score.results import CRASHED, REFUSED, RIGHT, WRONG, Score
from dlc_frontend_torch.score.samples import DTYPES
from dlc_frontend_torch.score.table import totals

FILE = Path(__file__).with_name("recorded.json")


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """The totals, the dtypes of right samples by operator, and the reasons of all others with OpInfos."""
    dtypes: dict[str, set[str]] = defaultdict(set)
    others: dict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for score in scores:
        for outcome in score.outcomes:
            if outcome.status == RIGHT:
                for name in outcome.called:
                    dtypes[name].add(outcome.dtype)
            elif outcome.status in (REFUSED, WRONG, CRASHED):
                for why in outcome.why.split("; "):
                    reason = why if outcome.status == REFUSED else f"{outcome.status}: {why}"
                    counts[reason] += 1
                    others[reason].add(score.op)
    return {
        "torch": torch.__version__.partition("+")[0],
        "totals": totals(scores),
        "dtypes": {name: [each for each in DTYPES if each in dtypes[name]] for name in sorted(dtypes)},
        "others": {why: [counts[why], *sorted(others[why])] for why in sorted(others)},
    }


def recorded() -> dict[str, Any]:
    """The summary that this package keeps."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


__all__ = ["FILE", "recorded", "summary"]
