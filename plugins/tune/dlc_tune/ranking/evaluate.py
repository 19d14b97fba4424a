"""How well a model ranks schedules of kernels that it has not seen.

    groups = load_groups("ranking.npz")              the measured schedules of each kernel
    found = compare(groups)                          for each model and kernel: Quality
    found["learned"]["conv1"].spearman

Each kernel is left out in turn: the model is trained on all others and ranks its schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlc_core.diag import UsageError
from dlc_core.support.record import record
from dlc_tune.ranking.candidates import analytic_scores
from dlc_tune.ranking.features import NAMES
from dlc_tune.ranking.learned import blended, share_of
from dlc_tune.ranking.model import Group, trained

Values = npt.NDArray[np.float64]
FIRST = 8
"""The schedules that a tuner would measure, for the regret."""
KNOWN = 16
"""The schedules of the kernel itself that `learned, 16 known` is trained on too."""
DISTINCT = 0.05
"""The relative difference of times beyond which a pair is clearly ordered: smaller ones may be noise."""
SHUFFLES = 16
"""The random orders whose mean is the quality of `random`."""


@record(frozen=True)
class Quality:
    """The quality of a ranking.

    `spearman` and `kendall` (tau-b) are correlations of the ranks by score with those by speed, -1 to 1.
    `regret` is the time of the fastest of the FIRST schedules by score over that of the fastest of all,
    less 1.
    """

    spearman: float
    kendall: float
    regret: float
    pairs: float
    """The part of the pairs whose times differ by more than DISTINCT that are in the right order. Equal
    scores count half. 1 if there are no such pairs."""


def quality(scores: Values, seconds: Values) -> Quality:
    """The quality of scores, [n], for schedules that take `seconds`, [n]."""
    return Quality(
        spearman(scores, -seconds),
        kendall(scores, -seconds),
        regret(scores, seconds),
        ordered_pairs(scores, seconds),
    )


def spearman(a: Values, b: Values) -> float:
    """The rank correlation of Spearman: that of the ranks, which equal values share. 0 if one is constant."""
    x, y = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm else 0.0


def kendall(a: Values, b: Values) -> float:
    """The rank correlation tau-b of Kendall: concordant less discordant pairs. 0 if one is constant."""
    x, y = (np.sign(each[:, None] - each[None, :]) for each in (a, b))
    norm = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / norm if norm else 0.0


def regret(scores: Values, seconds: Values, first: int = FIRST) -> float:
    """How much slower the fastest of the first schedules by score is than the fastest of all."""
    order = np.argsort(-scores, kind="stable")[:first]
    return float(seconds[order].min() / seconds.min()) - 1.0


def ordered_pairs(scores: Values, seconds: Values) -> float:
    """The part of pairs of clearly different times that the scores order right."""
    faster = seconds[:, None] * (1 + DISTINCT) < seconds[None, :]
    order = np.sign(scores[:, None] - scores[None, :])[faster]
    return float(((order + 1) / 2).mean()) if len(order) else 1.0


def _ranks(values: Values) -> Values:
    """The ranks of values from 0; equal values have the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks: Values = (ends - (count + 1) / 2)[place]
    return ranks


def compare(groups: Mapping[str, Group], seed: int = 0) -> dict[str, dict[str, Quality]]:
    """The quality of rankings of each kernel, by model: random orders, the analytic model, the learned one
    without samples of the kernel, and the learned one with KNOWN samples of it, for its other schedules.

    Raises PluginError without LightGBM.
    """
    found: dict[str, dict[str, Quality]] = {
        "random": {},
        "analytic": {},
        "learned": {},
        "learned, 16 known": {},
    }
    for number, (name, group) in enumerate(groups.items()):
        chance = np.random.default_rng([seed, number])
        others = [one for other, one in groups.items() if other != name]
        analytic = analytic_scores(group.rows)
        before = trained(others, seed)
        scores = blended(analytic, before.predict(group.rows), share_of(0, is_trained=True))
        found["random"][name] = _random(group.seconds, chance)
        found["analytic"][name] = quality(analytic, group.seconds)
        found["learned"][name] = quality(scores, group.seconds)
        order = chance.permutation(len(group.seconds))
        known, rest = order[:KNOWN], order[KNOWN:]
        if len(rest) < 2:
            continue
        after = trained([*others, Group(group.rows[known], group.seconds[known])], seed)
        scores = blended(analytic[rest], after.predict(group.rows[rest]), share_of(KNOWN, is_trained=True))
        found["learned, 16 known"][name] = quality(scores, group.seconds[rest])
    return found


def _random(seconds: Values, chance: np.random.Generator) -> Quality:
    qualities = [quality(chance.random(len(seconds)), seconds) for _ in range(SHUFFLES)]
    return Quality(
        *(float(np.mean([getattr(q, what) for q in qualities])) for what in Quality.__annotations__)
    )


def save_groups(path: str | Path, groups: Mapping[str, Group]) -> None:
    """Write measured schedules as a compressed .npz file."""
    np.savez_compressed(
        path,
        features=np.array(NAMES),
        kernels=np.array(list(groups)),
        counts=np.array([len(one.seconds) for one in groups.values()]),
        rows=np.concatenate([one.rows for one in groups.values()]).astype(np.float32),
        seconds=np.concatenate([one.seconds for one in groups.values()]).astype(np.float32),
    )


def load_groups(path: str | Path) -> dict[str, Group]:
    """The measured schedules of each kernel. Raises UsageError if their features are not those of this
    version.
    """
    with np.load(path, allow_pickle=False) as data:
        if tuple(data["features"]) != NAMES:
            raise UsageError(
                f"the features of {path} are not those of this version",
                hint="make them again by `python -m benchmarks.ranking --data`",
            )
        ends = np.cumsum(data["counts"])[:-1]
        parts = zip(data["kernels"], np.split(data["rows"], ends), np.split(data["seconds"], ends))
        return {str(name): Group(rows, seconds.astype(np.float64)) for name, rows, seconds in parts}


__all__ = ["Quality", "compare", "kendall", "load_groups", "quality", "regret", "save_groups", "spearman"]
