"""`dlc tune` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlc_core.cli.main import main
from dlc_core.testing.networks import cifar
from dlc_core.testing.networks import feed as feed_of
from dlc_tune.cli import tune as command
from dlc_tune.measuring.comparing import Ratios
from dlc_tune.measuring.job import OK, Outcome
from dlc_tune.graph_search import Decided
from dlc_tune.model import Line, ModelResult, Progress
import dlc_core as dlc


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_spaces_and_strategies_are_listed(capsys):
    code, out, _ = run(capsys, "tune", "--list", "--json")
    assert code == 0
    names = {(each["kind"], each["name"]) for each in json.loads(out)}
    assert {("space", "decisions"), ("space", "sketches"), ("strategy", "evolutionary")} <= names
