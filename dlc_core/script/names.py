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
    """One name for each object; two objects never share one at a time."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}
        self._taken: dict[str, str] = {}
        self._next: dict[str, int] = {}
        self._held: list[Any] = []

    def of(self, thing: Any, hint: str, fallback: str = "v") -> str:
        """The thing's name, made from the hint when it is first asked for."""
        found = self._of.get(id(thing))
        if found is None:
            found = self.fresh(hint, fallback)
            self._of[id(thing)] = found
            self._held.append(thing)
        return found

    def fresh(self, hint: str, fallback: str = "v") -> str:
        """A name nothing else has."""
        base = identifier(hint, fallback)
        number, name = self._next.get(base, 0), base
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._next[base] = number
        self._taken[name] = base
        return name

    def release(self, things: Iterable[Any]) -> None:
        """Make the names of things that are no longer in scope free again."""
        for thing in things:
            name = self._of.pop(id(thing), None)
            if name is not None:
                self.release_texts((name,))

    def release_texts(self, names: Iterable[str]) -> None:
        """Make names given by `fresh` free again."""
        for name in names:
            base = self._taken.pop(name)
            number = int(name[len(base) + 1 :] or 0)
            self._next[base] = min(self._next[base], max(0, number - 1))
