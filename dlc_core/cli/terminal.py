"""Output to terminals: names and texts of models cannot control the terminal.

Control characters, such as those of escape sequences that rename the window or write to the clipboard, are
printed as escapes, `\\x1b`. Sequences of colours stay. Files and pipes get the text as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_COLOURS = r"\x1b\[[0-9;]*m"
_CONTROL = re.compile(rf"(?P<kept>{_COLOURS})|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with all control characters as escapes, but for line feeds, tabs and colours."""
    return _CONTROL.sub(lambda found: found["kept"] or f"\\x{ord(found[0]):02x}", text)


class _Terminal:
    """A text stream of which all written text is printable; the rest is that of the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_output() -> Iterator[None]:
    """A context in which the standard output is printable, if it is a terminal."""
    own = sys.stdout
    if own is None or not own.isatty():
        yield
        return
    sys.stdout = _Terminal(own)
    try:
        yield
    finally:
        sys.stdout = own


__all__ = ["printable", "printable_output"]
