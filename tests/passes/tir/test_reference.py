"""The reference of passes over tensor programs is what their docstrings say."""

from __future__ import annotations

from pathlib import Path

from dlc_core.passes.tir import PASSES
from dlc_core.testing.pass_examples import reference

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "passes.md"
MARK = "<!-- made of the docstrings: pytest tests/passes/tir/test_reference.py --bless -->\n"


def test_the_page_is_generated_from_docstrings(bless):
    page = PAGE.read_text(encoding="utf-8")
    head, mark, kept = page.partition(MARK)
    assert mark
    made = "\n" + reference(PASSES)
    if bless:
        PAGE.write_text(head + mark + made, encoding="utf-8")
        return
    assert kept == made, "run `pytest tests/passes/tir/test_reference.py --bless` where this is right"
