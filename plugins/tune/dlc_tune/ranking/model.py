"""A gradient-boosted ranking model of LightGBM: LambdaMART [1] over features of lowered programs.

    model = trained([Group(rows, seconds), ...], seed=0)        one group for each kernel
    model.predict(rows)                                         the higher, the faster

Candidates of one kernel are ordered against each other only: absolute times of kernels do not matter. The
relevance of a candidate is its throughput relative to the best of its group. Equal data and seeds give equal
models: training uses one thread.

[1] Burges: From RankNet to LambdaRank to LambdaMART, Microsoft Research MSR-TR-2010-82.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from dlc_core.diag import PluginError
from dlc_core.support.record import record
from dlc_tune.ranking.features import NAMES

GRADES = 32
"""The number of relevance grades: a grade is 3% of the best throughput."""
TREES = 60
"""The trees of a model. More follow the noise of some hundred samples."""
PARAMETERS = MappingProxyType(
    {
        "objective": "lambdarank",
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": 8,
        "feature_fraction": 0.7,
        "label_gain": list(range(GRADES)),
        "lambdarank_truncation_level": 64,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
)


@record(frozen=True, eq=False)
class Group:
    """Measured candidates of one kernel: features [n, len(NAMES)], and seconds [n]; infinite for failures."""

    rows: npt.NDArray[np.float32]
    seconds: npt.NDArray[np.float64]


def has_library() -> bool:
    """Whether LightGBM is installed."""
    return importlib.util.find_spec("lightgbm") is not None


def library() -> Any:
    """The module of LightGBM. Raises PluginError, which names the extra, if it is not installed."""
    if not has_library():
        raise PluginError(
            "the learned cost model needs LightGBM, which is not installed",
            hint="pip install 'dlc-tune[ranking]', or use the analytic ranker",
        )
    return importlib.import_module("lightgbm")


def grades(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """The relevance of candidates of one kernel, 0 to GRADES - 1: throughput relative to the best."""
    finite = np.isfinite(seconds)
    best = seconds[finite].min() if finite.any() else 1.0
    relative = np.where(finite, best / np.where(finite, seconds, 1.0), 0.0)
    found: npt.NDArray[np.int32] = np.rint(relative * (GRADES - 1)).astype(np.int32)
    return found


def trained(groups: Sequence[Group], seed: int = 0, before: Any = None, trees: int = TREES) -> Any:
    """A LightGBM Booster that ranks the candidates of each group; `before` is one that it continues.

    Raises PluginError without LightGBM.
    """
    lightgbm = library()
    data = lightgbm.Dataset(
        np.concatenate([one.rows for one in groups]),
        label=np.concatenate([grades(one.seconds) for one in groups]),
        group=[len(one.seconds) for one in groups],
        feature_name=list(NAMES),
        params={"verbosity": -1, "min_data_in_bin": 1},
    )
    parameters = {**PARAMETERS, "seed": seed}
    return lightgbm.train(parameters, data, num_boost_round=trees, init_model=before)


__all__ = ["GRADES", "TREES", "Group", "grades", "has_library", "library", "trained"]
