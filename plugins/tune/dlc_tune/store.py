"""Where the records of a search go, and where it finds those of earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dlc_tune.records.record import CHOSEN, Record


class Store(Protocol):
    """Where records go, and come from."""

    def add(self, record: Record) -> object: ...

    def of_kernel(self, kernel: str, target: str | None = None) -> list[Record]: ...

    def forget(self, **equal: object) -> int: ...


class NoStore:
    """Keeps nothing."""

    def add(self, record: Record) -> object:
        return None

    def of_kernel(self, kernel: str, target: str | None = None) -> list[Record]:
        return []

    def forget(self, **equal: object) -> int:
        return 0


def forget(store: Store, chosen: Iterable[Record]) -> None:
    """Withdraw records of schedules that compiles use."""
    for each in chosen:
        store.forget(kernel=each.kernel, target=each.target, state=CHOSEN, time=each.time)


__all__ = ["NoStore", "Store", "forget"]
