"""The base of objects that end processes when they are closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

Own = TypeVar("Own", bound="Closing")


class Closing(ABC):
    """An object that `close` ends, as the end of a `with` block does."""

    @abstractmethod
    def close(self) -> None:
        """End it at once."""

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


__all__ = ["Closing"]
