"""Random changes of scripts: errors of dlc only, and no crash."""

from __future__ import annotations

import os
import random
import signal

import pytest

from tests.script.fuzz import changed, original, search

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the search needs os.fork")


@pytest.mark.parametrize("first", [0, 500, 1000])
def test_a_few_texts(first: int) -> None:
    failures, counts = search(first, 40)
    assert not failures, "\n".join(failures)
    assert sum(counts.values()) == 40
    assert counts["run"] + counts["not run"] + counts["not compiled"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_many_texts(first: int) -> None:
    failures, _ = search(first, 500)
    assert not failures, "\n".join(failures)


def test_a_death_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(seed: int, target: str) -> str:
        if seed == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 5:
            raise KeyError("a defect")
        return "run"

    monkeypatch.setattr("tests.script.fuzz.attempt", attempt)
    failures, counts = search(0, 8)
    assert failures == ["3: the process ended with SIGKILL", "5: KeyError: 'a defect'"]
    assert counts["run"] == 6


def test_changes_depend_on_the_seed_only() -> None:
    def text(seed: int) -> str:
        rng = random.Random(seed)
        return changed(original(rng, seed)[0], rng)

    assert [text(seed) for seed in range(8)] == [text(seed) for seed in range(8)]
