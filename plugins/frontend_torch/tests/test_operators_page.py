"""The page of operators is that of the registry and of the recorded score."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dlc_frontend_torch import operators
from dlc_frontend_torch.operators import page
from dlc_frontend_torch.refusals import refusals
from dlc_frontend_torch.registry import COMPLEX, CONVERTERS
from dlc_frontend_torch.score import __main__ as command
from dlc_frontend_torch.score.recorded import recorded, summary
from dlc_frontend_torch.score.results import Outcome, Score

PAGE = Path(__file__).resolve().parents[3] / "docs" / "torch-operators.md"


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the page names Core ATen of torch 2.13")
def test_the_page_has_all_converters():
    """A process of its own has no converters of other tests."""
    command = [sys.executable, "-m", "dlc_frontend_torch.operators"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert PAGE.read_text() == made, (
        "make it: python -m dlc_frontend_torch.operators > docs/torch-operators.md"
    )


def test_a_new_converter_is_on_the_page(monkeypatch):
    monkeypatch.setitem(CONVERTERS, "aten.frexp.Tensor", CONVERTERS["aten.exp.default"])
    monkeypatch.setitem(COMPLEX, "aten.logit.default", CONVERTERS["aten.exp.default"])
    made = page().splitlines()
    assert "| aten.frexp | yes | no |  |" in made
    assert any(line.startswith("| aten.logit | no | yes |") for line in made)


SCORES = [
    Score(
        "exp",
        (
            Outcome("bool", 0, "right", "", ("aten.exp.default",)),
            Outcome("float32", 0, "right", "", ("aten.exp.default",)),
            Outcome("int64", 0, "wrong", "a difference", ("aten.exp.default",)),
            Outcome("int64", 1, "random", "", ("aten.rand.default",)),
        ),
    ),
    Score("qr", (Outcome("float32", 0, "refused", "aten.a.default has no converter; the layout x", ()),)),
]


def test_a_summary_has_dtypes_and_reasons():
    made = summary(SCORES)
    assert made["dtypes"] == {"aten.exp.default": ["float32", "bool"]}
    assert made["others"] == {
        "aten.a.default has no converter": [1, "qr"],
        "the layout x": [1, "qr"],
        "wrong: a difference": [1, "exp"],
    }
    assert made["totals"][0].startswith("all samples: 4: 2 right (50.00%), 1 wrong")
    assert made["totals"][2].startswith("samples that call Core ATen (judged): 3: 2 right")


def test_the_page_shows_the_recorded_score(monkeypatch):
    monkeypatch.setattr(operators, "recorded", lambda: summary(SCORES))
    made = page()
    assert "| **aten.exp** | yes | yes | float32, bool |" in made
    assert "| aten.a | 1 | qr |" in made
    assert "- the layout x (1): qr" in made


def test_the_command_writes_the_summary(tmp_path):
    file, made = tmp_path / "score.jsonl", tmp_path / "summary.json"
    file.write_text(json.dumps(SCORES[0].to_json()) + "\n")
    command.main(["exp", "--json", str(file), "--summary", str(made)])
    assert json.loads(made.read_text()) == summary(SCORES[:1])


def test_nothing_is_wrong_in_the_recorded_score():
    score = recorded()
    assert not [why for why in score["others"] if why.startswith(("wrong", "crashed"))]
    assert score["dtypes"]["aten.mm.default"][:4] == ["float32", "float64", "float16", "bfloat16"]


def test_refused_cases_are_read_from_converters():
    assert "the median of no elements" in refusals(CONVERTERS["aten.median.default"])
    assert "a Fourier transform of … samples (1 to … are)" in refusals(COMPLEX["aten._fft_c2c.default"])
    assert refusals(CONVERTERS["aten.exp.default"]) == []
