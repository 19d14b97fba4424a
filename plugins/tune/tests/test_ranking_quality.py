"""The models rank schedules of kernels that they have not seen: a leave-one-out test on measured kernels.

`ranking.npz` has the features and the times of about 40 schedules each of 22 kernels, measured on Zen 4 by
`python -m benchmarks.ranking --measure`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dlc_tune.ranking import evaluate
from dlc_tune.ranking.evaluate import (
    Quality,
    kendall,
    load_groups,
    ordered_pairs,
    regret,
    save_groups,
    spearman,
)
from dlc_tune.ranking.model import Group, grades

from dlc_core.diag import UsageError

DATA = Path(__file__).with_name("ranking.npz")


@pytest.fixture(scope="module")
def groups() -> dict[str, Group]:
    return load_groups(DATA)


@pytest.fixture(scope="module")
def found(groups) -> dict[str, dict[str, Quality]]:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (dlc-tune[ranking])")
    return evaluate.compare(groups)


def median(found: dict[str, Quality], what: str) -> float:
    return float(np.median([getattr(one, what) for one in found.values()]))


def test_the_data_set_has_many_kinds_of_kernels(groups):
    assert len(groups) >= 20
    assert all(len(one.seconds) >= 30 for one in groups.values())
    assert all(np.isfinite(one.rows).all() for one in groups.values())
    assert DATA.stat().st_size < 300_000


def test_the_learned_model_ranks_kernels_that_it_has_not_seen(found):
    assert median(found["learned"], "spearman") > 0.88
    assert median(found["learned"], "kendall") > 0.72
    assert median(found["learned"], "pairs") > 0.9
    assert median(found["learned"], "regret") < 0.02


def test_the_learned_model_ranks_better_than_the_analytic_one(found):
    for what in ("spearman", "kendall"):
        assert median(found["learned"], what) > median(found["analytic"], what)


def test_the_analytic_model_ranks_better_than_chance(found):
    assert median(found["analytic"], "spearman") > 0.85
    assert abs(median(found["random"], "spearman")) < 0.1
    assert median(found["random"], "regret") > median(found["analytic"], "regret")


def test_samples_of_a_kernel_improve_the_ranking_of_its_other_schedules(found):
    means = {
        model: [
            np.mean([getattr(one, what) for one in found[model].values()]) for what in ("spearman", "pairs")
        ]
        for model in ("analytic", "learned", "learned, 16 known")
    }
    for number in range(2):
        assert means["learned, 16 known"][number] > means["learned"][number] + 0.01
        assert means["learned, 16 known"][number] > means["analytic"][number] + 0.01


def test_correlations_of_known_orders():
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(a, a) == pytest.approx(1.0)
    assert kendall(a, -a) == pytest.approx(-1.0)
    # By hand: one of six pairs is exchanged; two ranks differ by 1.
    b = np.array([1.0, 3.0, 2.0, 4.0])
    assert kendall(a, b) == pytest.approx(4 / 6)
    assert spearman(a, b) == pytest.approx(1 - 6 * 2 / (4 * 15))
    # With a tie in b: tau-b is (5 - 0) / sqrt(6 * 5).
    assert kendall(a, np.array([1.0, 2.0, 2.0, 4.0])) == pytest.approx(5 / np.sqrt(30))
    assert spearman(a, np.ones(4)) == kendall(a, np.ones(4)) == 0.0


def test_regret_and_pairs_of_known_orders():
    seconds = np.array([1.0, 1.01, 2.0, 4.0])
    assert regret(np.array([0.0, 1.0, 2.0, 3.0]), seconds, first=2) == pytest.approx(1.0)
    assert regret(-seconds, seconds, first=1) == 0.0
    # The first two do not count as a pair: five others, of which one is tied and four are right.
    assert ordered_pairs(np.array([0.0, 5.0, -1.0, -1.0]), seconds) == pytest.approx(4.5 / 5)


def test_grades_are_relative_throughputs_and_failures_are_last():
    assert grades(np.array([1.0, 2.0, np.inf, 31.0])).tolist() == [31, 16, 0, 1]


def test_data_sets_of_other_features_are_refused(groups, monkeypatch, tmp_path):
    save_groups(tmp_path / "same.npz", groups)
    assert list(load_groups(tmp_path / "same.npz")) == list(groups)
    monkeypatch.setattr(evaluate, "NAMES", evaluate.NAMES[:-1])
    with pytest.raises(UsageError, match="features") as caught:
        load_groups(tmp_path / "same.npz")
    assert "benchmarks.ranking" in str(caught.value)
