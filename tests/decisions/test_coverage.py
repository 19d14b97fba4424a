"""Every decision has tests that force its alternatives, and what they executed is counted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dlc_core.backend.scratchpad.tiles import TILES
from dlc_core.decisions import DECISIONS, Choice
from dlc_core.diag import UsageError
from dlc_core.driver import context_for, find_target
from dlc_core.testing.decision_coverage import FOLDER, alternatives, counts, executed, report
from tests.decisions.test_processors import SHOWN
from tests.passes.test_decisions import CASES
from tests.schedule.rules.gpu.test_decisions import FORCED

ELSEWHERE = {
    "attention.parallel": "tests/algorithms/attention/test_cpu_rule.py forces both",
    "gemm.instructions": "tests/schedule/test_rules_tiles.py has products of both kinds",
    TILES.name: "tests/backend/scratchpad/test_streams.py forces all",
    "schedule.rule": "drawn at random with the others",
}


def test_every_decision_is_forced():
    # Other tests of this process declare decisions whose subject is "test".
    assert {name for name, _ in alternatives() if not name.startswith("test.")} == {
        *SHOWN,
        *CASES,
        *FORCED,
        *ELSEWHERE,
    }


def test_executed_alternatives_are_counted(tmp_path, monkeypatch):
    executed(["gemm.prefetch=steps"])
    monkeypatch.setenv(FOLDER, str(tmp_path))
    executed(["gemm.prefetch=steps", "gemm.tile=MxN 6x2 (forced; preferred MxN 4x3)"])
    executed([Choice("gemm.prefetch", "steps")])
    assert counts(tmp_path) == {("gemm.prefetch", "steps"): 2, ("gemm.tile", "MxN"): 1}
    text, share = report(tmp_path)
    known = len(alternatives())
    assert share == pytest.approx(2 / known)
    assert f"2 of {known} alternatives" in text
    assert "not executed: gemm.prefetch=panel" in text
    assert "not executed: gemm.prefetch=steps" not in text


def test_the_command_fails_below_the_goal(tmp_path):
    command = [sys.executable, "-m", "dlc_core.testing.decision_coverage", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "(0.0%)" in done.stdout
    lines = [f"{name}={one}\n" for name, one in alternatives()]
    (tmp_path / "1.txt").write_text("".join(lines))
    assert "(100.0%)" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("gemm.tiles=6x2", "no decision 'gemm.tiles'", "'gemm.tile'"),
        ("gemm.prefetch=all", "gemm.prefetch cannot be 'all'", "none, steps, panel"),
        ("gemm.prefetch", "'gemm.prefetch' forces no decision", "name=alternative"),
        ("*=random:x", "'*=random:x' forces no decision", "a number"),
    ],
)
def test_refuses_malformed_or_unknown_decisions(text, words, hint):
    with pytest.raises(UsageError, match=words.replace("*", r"\*")) as caught:
        context_for(find_target("reference"), config={DECISIONS: text})
    assert hint in str(caught.value)
