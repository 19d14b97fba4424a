"""The checks of `tests.wording`, each tried on text that breaks it."""

from __future__ import annotations

import pytest

from tests.wording import (
    GLOSSARY,
    ROOT,
    banned,
    long_lines_in,
    openings_in,
    pattern_of,
    phrases_in,
    wrong_subjects,
)

PHRASES = banned((ROOT / GLOSSARY).read_text())
PATTERN = pattern_of(PHRASES)


def test_the_glossary_has_replacements():
    assert "ask ahead" in PHRASES
    assert PHRASES["ask ahead"] == "prefetch"
    assert all(PHRASES.values())


@pytest.mark.parametrize(
    "text",
    [
        '"""The kernel asks ahead for weights."""\n',
        "x = 1  # the kernel asks\n# ahead\n",
        "# the kernel asks\n# ahead for weights\n",
        "raise ValueError('the kernel asks ahead')\n",
    ],
)
def test_phrases_are_found_in_docstrings_comments_and_messages(text):
    (found,) = phrases_in("a.py", text, PHRASES, PATTERN)
    assert "asks ahead" in found
    assert "prefetch" in found


def test_phrases_are_found_in_pages_but_not_in_their_code():
    page = "# A page\n\nThe kernel asks\nahead.\n\n```python\nasks ahead\n```\n\n`asks ahead`\n"
    assert [found.split(": ")[0] for found in phrases_in("a.md", page, PHRASES, PATTERN)] == ["a.md:3"]


def test_identifiers_are_not_checked():
    assert not list(phrases_in("a.py", "places = [dealt, is_told]\n", PHRASES, PATTERN))


@pytest.mark.parametrize("text", ['"""What is here."""\n', 'def f():\n    """Who calls."""\n'])
def test_docstrings_do_not_begin_with_question_words(text):
    assert len(list(openings_in("a.py", text))) == 1


def test_long_lines_of_pages_are_found_but_not_of_tables_and_code():
    words = "word " * 30
    assert len(list(long_lines_in("a.md", f"{words}\n"))) == 1
    assert not list(long_lines_in("a.md", f"| {words} |\n\n```\n{words}\n```\n\n{'x' * 200}\n"))


@pytest.mark.parametrize(
    "subject", ["Strassen is faster", "area: " + "x" * 80, "area: ends with a stop.", "Area: do it"]
)
def test_commit_subjects(subject):
    assert list(wrong_subjects([subject]))
    assert not list(wrong_subjects(["schedule: split loops", "docs, tests: name things"]))
