"""The benchmark of growth: its models, its figures, and the bombs that took minutes."""

from __future__ import annotations

import json

import pytest

from benchmarks import growth
from benchmarks.growth import Compiled, compile_one, exponent, report
from benchmarks.growth_models import FAMILIES
from dlc_core.config import config

SMALL = {"concat_levels": 10, "elements": 100, "folded_sum": 12, "nested_if": 3, "nested_functions": 5}
"""Sizes of models that are checked here; the others have 40."""


@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_all_families_compute_what_numpy_does(family):
    with config.override(cache=False):
        done = compile_one(family, SMALL.get(family, 40))
    assert not done.refused
    assert done.seconds > 0
    assert done.cpu > 0


def test_sizes_are_in_ascending_order():
    for name, family in FAMILIES.items():
        assert list(family.sizes) == sorted(family.sizes), name


def test_exponents_are_of_the_sizes_that_take_long_enough():
    linear = [Compiled("relu_chain", n, cpu=n / 100) for n in (10, 100, 1000)]
    assert exponent(linear) == pytest.approx(1.0)
    short = [Compiled("relu_chain", 1, cpu=0.09)]
    assert exponent(
        [*short, *(Compiled("relu_chain", n, cpu=n * n / 100) for n in (10, 100))]
    ) == pytest.approx(2)
    assert exponent(linear[:1]) is None
    assert exponent([*linear[1:2], Compiled("relu_chain", 10_000, cpu=60, refused="why")]) is None


def test_refused_models_are_reported_with_the_reason():
    lines = report([Compiled("relu_chain", 1000, seconds=1.5, refused="LimitError: too many")])
    assert lines[0].startswith("relu_chain: nodes of one op; too short")
    assert lines[1].endswith("refused: LimitError: too many")


def test_each_compile_has_a_process_and_a_limit(tmp_path, capsys):
    path = tmp_path / "figures.json"
    assert growth.main(["concat_same", "--most", "100", "--json", str(path)]) == 0
    (found,) = json.loads(path.read_text())
    assert (found["family"], found["size"], found["refused"]) == ("concat_same", 100, "")
    printed = capsys.readouterr().out
    assert "start of Python" in printed
    assert "concat_same: operands of one Concat" in printed


@pytest.mark.parametrize(
    ("family", "size", "seconds"),
    [
        ("concat_same", 20_000, 3.0),
        ("concat_levels", 20, 3.0),
        ("folded_sum", 33, 3.0),
        ("concat_values", 500, 10.0),
        ("relu_chain", 5_000, 10.0),
    ],
)
def test_bombs_compile_within_seconds(family, size, seconds):
    """The limits of processor time are several times what they take, and far below what growth would take."""
    with config.override(cache=False):
        done = compile_one(family, size)
    assert not done.refused
    assert done.cpu < seconds


def test_a_tensor_beyond_the_limit_is_refused():
    done = compile_one("folded_sum", 40)
    assert done.refused.startswith("LimitError: a tensor takes 4096 GiB")
