"""Unique Python identifiers for the variables and buffers of a function, from their name hints."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Any

RESERVED = frozenset({"T", "G", "metadata", "ir_module", "range", "Module", "entry", "attrs"})


def identifier(hint: str, fallback: str = "v") -> str:
    """The nearest Python identifier to a hint: `conv/1:0` becomes `conv_1_0`."""
    text = re.sub(r"\W", "_", hint, flags=re.ASCII).strip("_") or fallback
    if text[0].isdigit():
        text = f"{fallback}_{text}"
    return text if not keyword.iskeyword(text) and text not in RESERVED else f"{text}_"


class Names:
    """One name for each object. Two objects never have the same name at the same time."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}
        self._taken: dict[str, str] = {}
        self._next: dict[str, int] = {}
        self._held: list[Any] = []

    def of(self, value: Any, hint: str, fallback: str = "v") -> str:
        """The name of an object, made from the hint on first use."""
        found = self._of.get(id(value))
        if found is None:
            found = self.fresh(hint, fallback)
            self._of[id(value)] = found
            self._held.append(value)
        return found

    def fresh(self, hint: str, fallback: str = "v") -> str:
        """An unused name."""
        base = identifier(hint, fallback)
        number, name = self._next.get(base, 0), base
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._next[base] = number
        self._taken[name] = base
        return name

    def release(self, values: Iterable[Any]) -> None:
        """Release the names of objects that are out of scope."""
        for value in values:
            name = self._of.pop(id(value), None)
            if name is not None:
                self.release_texts((name,))

    def release_texts(self, names: Iterable[str]) -> None:
        """Release names that `fresh` returned."""
        for name in names:
            base = self._taken.pop(name)
            number = int(name[len(base) + 1 :] or 0)
            self._next[base] = min(self._next[base], max(0, number - 1))
