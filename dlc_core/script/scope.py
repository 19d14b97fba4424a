"""The names of a script and their values, by suites (indented blocks)."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any


class Scope(MutableMapping[str, Any]):
    """Visible names by suite, the innermost last. Names of closed suites are kept for error messages."""

    def __init__(self) -> None:
        self._frames: list[dict[str, tuple[Any, int]]] = [{}]
        self._depths: dict[str, list[int]] = {}
        self.closed: dict[str, int] = {}
        """Names of closed suites, with the lines that defined them."""

    def __getitem__(self, name: str) -> Any:
        return self._frames[self._depths[name][-1]][name][0]

    def __setitem__(self, name: str, value: Any) -> None:
        self.define(name, value, 0)

    def define(self, name: str, value: Any, line: int) -> None:
        """Define a name in the innermost suite."""
        frame, at = self._frames[-1], len(self._frames) - 1
        if name not in frame:
            self._depths.setdefault(name, []).append(at)
        frame[name] = value, line

    def __delitem__(self, name: str) -> None:
        del self._frames[self._depths[name].pop()][name]
        if not self._depths[name]:
            del self._depths[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._depths)

    def __len__(self) -> int:
        return len(self._depths)

    def __contains__(self, name: object) -> bool:
        return name in self._depths

    def line_of(self, name: str) -> int:
        """The line that defined a visible name."""
        return self._frames[self._depths[name][-1]][name][1]

    def is_inner(self, name: str) -> bool:
        """Whether a name was defined in the innermost suite."""
        return name in self._frames[-1]

    def open(self) -> None:
        self._frames.append({})

    def close(self) -> None:
        for name, (_, line) in list(self._frames[-1].items()):
            self.closed[name] = line
            del self[name]
        self._frames.pop()
