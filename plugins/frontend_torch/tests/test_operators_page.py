"""The page of operators is that of the registry."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dlc_frontend_torch.operators import page
from dlc_frontend_torch.registry import COMPLEX, CONVERTERS

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
    assert "| aten.frexp | yes | no |" in made
    assert "| aten.logit | no | yes |" in made
