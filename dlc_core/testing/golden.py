"""Golden files: texts in the folder of the tests, which are compared line by line. `pytest --bless` writes
them.

    def test_text(bless):
        Golden(Path(__file__).parent / "golden", bless).check("relu.txt", text)
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Golden:
    """Golden files in a folder. With `bless` they are written instead of compared."""

    folder: Path
    bless: bool = False

    def check(self, name: str, text: str) -> None:
        """Compare a text with its golden file. Raises AssertionError with the differing lines."""
        path = self.folder / name
        if self.bless:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.is_file():
            raise AssertionError(f"there is no golden file {name}; `pytest --bless` writes it")
        kept = path.read_text(encoding="utf-8")
        if kept == text:
            return
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), name, "now", lineterm="", n=2)
        shown = list(lines)
        more = [f"... and {len(shown) - 80} more lines"] if len(shown) > 80 else []
        raise AssertionError("\n".join(["run `pytest --bless` if this is right", *shown[:80], *more]))


__all__ = ["Golden"]
