"""Output to terminals: names of models cannot control it."""

from __future__ import annotations

import io
import sys

import pytest

from dlc_core.cli.terminal import printable, printable_output


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_escaped():
    assert printable("\x1b]0;TITLE\x07name\x9b2J\r") == "\\x1b]0;TITLE\\x07name\\x9b2J\\x0d"
    for text in ("plain é 漢\n\t", "\x1b[1;31mred\x1b[0m"):
        assert printable(text) == text


@pytest.mark.parametrize(
    ("stream", "printed"), [(Screen, "\\x1b]0;x\\x07\n"), (io.StringIO, "\x1b]0;x\x07\n")]
)
def test_files_get_the_text_as_it_is(stream, printed, monkeypatch):
    out = stream()
    monkeypatch.setattr(sys, "stdout", out)
    with printable_output():
        print("\x1b]0;x\x07")
        assert sys.stdout.isatty() == out.isatty()
    assert sys.stdout is out
    assert out.getvalue() == printed
