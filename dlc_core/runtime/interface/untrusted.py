"""Reading untrusted JSON data: every value must have the expected type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from dlc_core.diag import ArtifactError, DlcError

LIMIT = 1 << 62
"""The largest absolute value of integers that is accepted."""
_MAX_LENGTH = 1 << 20
"""The maximum length of lists. No model has more inputs, dims, terms or launches."""


class _Malformed(Exception):
    """An error in the data."""


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Within this context, errors that wrong data causes become an ArtifactError, which says that `what` is
    malformed.
    """
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
    """Raise the error of the enclosing `decoding`."""
    raise _Malformed(why)


def integer(value: Any, low: int = 0, high: int = LIMIT) -> int:
    """An integer in a range."""
    if type(value) is not int or not low <= value <= high:
        malformed(f"{value!r} is not an integer from {low} to {high}")
    return value


def number(value: Any) -> float:
    """A float, possibly infinite or NaN."""
    if not isinstance(value, float):
        malformed(f"{value!r} is not a float")
    return value


def boolean(value: Any) -> bool:
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
    """The entries of a list, or of a tuple that has not been written to JSON."""
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_LENGTH:
        malformed("a list is expected")
    return list(value)


__all__ = ["LIMIT", "boolean", "decoding", "integer", "items", "malformed", "number", "text"]
