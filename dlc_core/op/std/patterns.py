"""Regular expressions that models give: `matcher` and `complaint`.

RE2 (the extra `texts`) matches all its patterns in linear time, and refuses others. Python's own matcher
backtracks: it gets only patterns for which this takes polynomial time of low degree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    parser: Any
else:
    # The parser of `re` has another name before Python 3.11.
    parser = re._parser if hasattr(re, "_parser") else lazy("sre_parse")

re2: Any = lazy("re2")

AMBIGUOUS = 3
"""The most parts of a pattern for Python that match in several ways; its time grows with this power."""
ASCII, OTHERS = 128, 128
"""The number of characters with sets of their own; all others count as one."""
_ALL = frozenset(range(ASCII + 1))
_REFERENCES = ("GROUPREF", "GROUPREF_EXISTS", "ASSERT", "ASSERT_NOT")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_CATEGORIES = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}


def has_re2() -> bool:
    """Whether google-re2 is installed."""
    try:
        return bool(re2.compile)
    except ImportError:
        return False


def matcher(pattern: str) -> Any:
    """The compiled pattern. It has no `complaint`."""
    return re2.compile(pattern, _options()) if has_re2() else re.compile(pattern)


def complaint(pattern: str) -> tuple[str, str] | None:
    """Why a pattern cannot be matched, and what to do; None if it can."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the pattern {pattern[:80]!r} is no regular expression: {error}", ""
    if has_re2():
        try:
            re2.compile(pattern, _options())
        except re2.error as error:
            what = f"RE2 cannot match the pattern {pattern[:80]!r}: {error}"
            return what, "backreferences and lookarounds are not supported"
        return None
    why = _danger(pattern)
    if not why:
        return None
    what = f"the pattern {pattern[:80]!r} may take exponential time: {why}"
    return what, "install the extra `texts` (google-re2), which matches in linear time"


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


@lru_cache(maxsize=256)
def _danger(pattern: str) -> str:
    """Why backtracking may take long; empty if it does not."""
    parsed = parser.parse(pattern)
    folds = bool(parsed.state.flags & ~re.UNICODE.value)
    return next(_dangers(parsed, repeated=False, folds=folds), "") or (
        "too many parts match in several ways" if _count(parsed, folds) > AMBIGUOUS else ""
    )


def _dangers(items: Any, *, repeated: bool, folds: bool) -> Iterator[str]:
    for op, arg in items:
        name = str(op)
        if name in _REFERENCES:
            yield "it has backreferences or lookarounds"
        if name in _REPEATS:
            least, most, body = arg
            if repeated and least != most:
                yield "a repetition is inside another"
            yield from _dangers(body, repeated=repeated or most > 1, folds=folds)
        elif name == "BRANCH":
            if repeated and not _are_distinct(arg[1], folds):
                yield "alternatives of a repetition may begin in the same way"
            for branch in arg[1]:
                yield from _dangers(branch, repeated=repeated, folds=folds)
        elif name == "SUBPATTERN":
            if arg[1] or arg[2]:
                yield "flags of a group"
            yield from _dangers(arg[3], repeated=repeated, folds=folds)
        elif name in ("ATOMIC_GROUP", "POSSESSIVE_REPEAT"):
            yield "it has possessive parts"


def _count(items: Any, folds: bool) -> int:
    """The number of parts that match in several ways."""
    count, listed = 0, list(items)
    for index, (op, arg) in enumerate(listed):
        name = str(op)
        if name in _REPEATS:
            least, most, body = arg
            after = _first(listed[index + 1 :], folds) if index + 1 < len(listed) else _ALL
            count += least != most and bool(_first(list(body), folds) & after)
            count += _count(body, folds)
        elif name == "BRANCH":
            count += not _are_distinct(arg[1], folds)
            count += sum(_count(branch, folds) for branch in arg[1])
        elif name == "SUBPATTERN":
            count += _count(arg[3], folds)
    return count


def _are_distinct(branches: Sequence[Any], folds: bool) -> bool:
    """Whether no two alternatives begin with the same character."""
    seen: set[int] = set()
    for branch in branches:
        first = _first(list(branch), folds)
        if seen & first:
            return False
        seen |= first
    return True


def _first(items: list[Any], folds: bool) -> frozenset[int]:
    """The characters with which the text of a sequence may begin; all of them if that is not known."""
    if not items or folds:
        return _ALL
    op, arg = items[0]
    name = str(op)
    if name == "LITERAL":
        return frozenset([min(arg, OTHERS)])
    if name == "NOT_LITERAL":
        return _ALL - ({arg} if arg < ASCII else set())
    if name == "IN":
        return _set(arg)
    if name in _REPEATS and arg[0] > 0:
        return _first(list(arg[2]), folds)
    if name == "SUBPATTERN":
        return _first(list(arg[3]), folds)
    if name == "BRANCH":
        return frozenset().union(*(_first(list(branch), folds) for branch in arg[1]))
    return _ALL


def _set(parts: Sequence[Any]) -> frozenset[int]:
    """The characters of a class."""
    found: set[int] = set()
    negated = False
    for op, arg in parts:
        name = str(op)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            found.add(min(arg, OTHERS))
        elif name == "RANGE":
            found.update(range(arg[0], min(arg[1] + 1, ASCII)))
            found.update({OTHERS} if arg[1] >= ASCII else ())
        else:
            word = str(arg).removeprefix("CATEGORY_")
            inner = _CATEGORIES.get(word.removeprefix("NOT_"))
            if inner is None:
                return _ALL
            fits = {c for c in range(ASCII) if bool(re.match(inner, chr(c))) is not word.startswith("NOT_")}
            found |= {*fits, OTHERS}
    return frozenset((_ALL - found) | {OTHERS}) if negated else frozenset(found)


__all__ = ["complaint", "has_re2", "matcher"]
