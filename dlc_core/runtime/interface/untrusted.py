"""Reading untrusted JSON data: every value must have the expected type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from dlc_core.diag import ArtifactError, DlcError

LIMIT = 1 << 62
"""The largest integer that is read, by its absolute value."""
MOST = 1 << 20
"""Entries of a list that is read; no model has as many inputs, dims, terms or launches."""


class _Malformed(Exception):
    """An error in the data."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn all errors that wrong data causes inside into an ArtifactError, which says that `what` is
    malformed."""
    try:
        yield
    except ArtifactError:
        raise
    except DlcError as error:
        why = error.what
    except _Malformed as error:
        why = str(error)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
    else:
        return
    raise ArtifactError(f"{what} in the artefact is malformed", why=why, hint="compile the model again")


def malformed(why: str) -> NoReturn:
    """Leave the `reading` around."""
    raise _Malformed(why)


def integer(value: Any, low: int = 0, high: int = LIMIT) -> int:
    """An integer in a range."""
    if type(value) is not int or not low <= value <= high:
        malformed(f"{value!r} is not an integer from {low} to {high}")
    return value


def number(value: Any) -> float:
    """A float, be it infinite or none."""
    if not isinstance(value, float):
        malformed(f"{value!r} is no float")
    return value


def truth(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        malformed(f"{value!r} is not true or false")
    return value


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        malformed(f"{value!r} is not text")
    return value


def items(value: Any) -> list[Any]:
    """The entries of a list, or of the tuple that it was before it was written."""
    if not isinstance(value, (list, tuple)) or len(value) > MOST:
        malformed("a list is expected")
    return list(value)


__all__ = ["LIMIT", "integer", "items", "malformed", "number", "reading", "text", "truth"]
