"""Heuristics: the numbers that choose among right programs, in one record per family.

    @record(frozen=True)
    class FusionHeuristics:
        max_ops: int = 48
        '''The most operations of a kernel.  Not measured.'''

    FUSION = family("fusion", FusionHeuristics())

    FUSION.max_ops                                           the current value
    with overridden("fusion.max_ops=12"): ...                another value
    with overridden({"gpu.tiles.depths": (8, 16)}): ...
    with recorded() as names: ...                             the names of the numbers that are read

The name of a number is `FAMILY.FIELD`. It changes which of several right programs is chosen; results change
at most by the order of sums. The docstring of each says where it comes from: "halved" and "doubled" are the
results of `python -m benchmarks.sensitivity` on one thread, where times within 4% are equal. Properties of a
machine are not heuristics: they are fields of its description.

A compile reads numbers from the environment variable `DLC_HEURISTICS`, from the pass context and from
`config={"heuristics": ...}`, and its passes run with them. Functions that read numbers are cached by
`cached`, which distinguishes the overrides.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, fields
from functools import cache, lru_cache, wraps
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, cast

from dlc_core.diag import UsageError, similar
from dlc_core.support.record import record

P = ParamSpec("P")
T = TypeVar("T")

HEURISTICS = "heuristics"
"""The compile setting with numbers."""
PREFIX = f"{HEURISTICS}."
"""The prefix of a number's name in `--set`."""
_HINT = "`dlc rules --heuristics` lists the numbers"


class Reads:
    """The names of numbers that were read; equal only to itself."""

    def __init__(self) -> None:
        self.names: set[str] = set()


@record(frozen=True)
class Overrides:
    """Overridden numbers by name. They are compared by their texts."""

    text: str = ""
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    reads: Reads | None = None
    """The names of numbers that are read.  `cached` distinguishes it: results are computed, not taken."""

    def __str__(self) -> str:
        return self.text

    def check(self) -> Overrides:
        """Return self. Raises `UsageError` for an unknown name, and for a value of another type."""
        known = declared() if self.values else {}
        for name, value in self.values.items():
            if name not in known:
                close = similar(name, known)
                hint = f"did you mean {close[0]!r}?" if close else _HINT
                raise UsageError(f"there is no heuristic {name!r}", hint=hint)
            default = known[name].default
            if not known[name].accepts(value):
                raise UsageError(
                    f"heuristic {name} cannot be {_text(value)}",
                    why=f"the value must be above zero, and of the same kind as {_text(default)}",
                    hint=_HINT,
                )
        return self


@record(frozen=True)
class Number:
    """A declared number."""

    name: str
    default: Any
    record: Any
    """The class of its record."""
    any_length: bool = False
    """Whether the value is a tuple of any length (candidates) rather than one number for each position."""

    @property
    def about(self) -> str:
        """Its docstring: its meaning and its provenance."""
        return _docs(self.record).get(self.name.rpartition(".")[2], "")

    @property
    def value(self) -> Any:
        """The current value."""
        return _value(self.name, self.default)

    @property
    def text(self) -> str:
        """The current value as text that sets it."""
        return _text(self.value)

    def accepts(self, value: Any) -> bool:
        """Whether a value is of the kind of the default."""
        if not self.any_length:
            return _fits(value, self.default)
        return isinstance(value, tuple) and bool(value) and all(_fits(v, self.default[0]) for v in value)


_families: dict[str, Any] = {}
_NOTHING = Overrides()
_overrides: ContextVar[Overrides] = ContextVar("dlc_heuristics", default=_NOTHING)


def family(name: str, numbers: T) -> T:
    """Declare the record of a family. The attributes of the returned object are the current values."""
    known = _families.setdefault(name, numbers)
    if known != numbers:
        raise ValueError(f"the heuristics {name} are declared twice")
    record: Any = numbers
    getters = {
        each.name: _getter(f"{name}.{each.name}", getattr(numbers, each.name)) for each in fields(record)
    }
    return cast(T, type(type(numbers).__name__, (), {"__slots__": (), **getters})())


def _getter(name: str, default: Any) -> property:
    # Cost models read numbers in their innermost loops, so the case without overrides is handled first.
    def get(_family: object) -> Any:
        return default if _overrides.get() is _NOTHING else _value(name, default)

    return property(get)


def declared() -> dict[str, Number]:
    """All numbers by name that the imported modules declare."""
    found = {}
    for name, numbers in sorted(_families.items()):
        for each in fields(numbers):
            full, any_length = f"{name}.{each.name}", str(each.type).endswith(", ...]")
            found[full] = Number(full, getattr(numbers, each.name), type(numbers), any_length)
    return found


def current_overrides() -> Overrides:
    """The overrides of the current context."""
    return _overrides.get()


def merged(*given: str | Mapping[str, Any] | Overrides) -> Overrides:
    """Merge overrides; the last value for a name wins. Raises `UsageError` for malformed text."""
    values = {name: value for each in given for name, value in _read(each).items()}
    reads = next((each.reads for each in given if isinstance(each, Overrides) and each.reads), None)
    if not values and reads is None:
        return _NOTHING
    text = ",".join(f"{name}={_text(value)}" for name, value in sorted(values.items()))
    return Overrides(text, MappingProxyType(values), reads)


@contextmanager
def overridden(given: str | Mapping[str, Any] | Overrides) -> Iterator[None]:
    """Override these numbers in the `with` block, in addition to those of enclosing blocks."""
    token = _overrides.set(merged(_overrides.get(), given))
    try:
        yield
    finally:
        _overrides.reset(token)


@contextmanager
def recorded() -> Iterator[set[str]]:
    """Yield the names of the numbers that are read in the `with` block, in this process.

    No other number changes what is computed there.
    """
    reads = Reads()
    with overridden(Overrides(reads=reads)):
        yield reads.names


def scaled(value: T, factor: float) -> T:
    """A number, or each number of a tuple or mapping, times a factor. Integers remain integers of at least
    1."""
    if isinstance(value, Mapping):
        return cast(T, MappingProxyType({name: scaled(each, factor) for name, each in value.items()}))
    if isinstance(value, tuple):
        return cast(T, tuple(scaled(each, factor) for each in value))
    if isinstance(value, bool):
        return value
    return cast(T, max(1, int(value * factor)) if isinstance(value, int) else cast(Any, value) * factor)


def cached(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`functools.lru_cache` for functions that read heuristics. Results are cached for each set of
    overrides."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @lru_cache(maxsize)
        def compute(_numbers: Overrides, /, *args: Any, **named: Any) -> T:
            return function(*args, **named)

        @wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> T:
            return compute(_overrides.get(), *args, **cast(Any, named))

        return call

    return decorate


def _value(name: str, default: Any) -> Any:
    here = _overrides.get()
    if here.reads is not None:
        here.reads.names.add(name)
    given = here.values.get(name, default)
    # An override of a mapping may have only some entries.
    return MappingProxyType({**default, **given}) if isinstance(default, Mapping) else given


def _read(given: str | Mapping[str, Any] | Overrides) -> Mapping[str, Any]:
    if isinstance(given, Overrides):
        return given.values
    if isinstance(given, str):
        return _parsed(given)
    return {name: _literal(value, name) for name, value in given.items()}


@lru_cache(maxsize=256)
def _parsed(text: str) -> Mapping[str, Any]:
    values = {}
    for part in filter(None, map(str.strip, _parts(text))):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not name or not equals or not value:
            raise UsageError(
                f"{part!r} sets no heuristic", hint="write FAMILY.FIELD=VALUE, with commas between"
            )
        values[name] = _literal(value, name)
    return MappingProxyType(values)


def _parts(text: str) -> Iterator[str]:
    """The parts of a text between commas that are in no bracket."""
    depth = begin = 0
    for index, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and not depth:
            yield text[begin:index]
            begin = index + 1
    yield text[begin:]


def _literal(value: Any, name: str) -> Any:
    """A value, or its text as Python writes it, with tuples for lists."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value.strip())
        except (SyntaxError, ValueError):
            why = "values are written as in Python: 8, 0.5, (8, 16)"
            raise UsageError(f"heuristic {name} cannot be {value!r}", why=why) from None
    return _frozen(value)


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({_frozen(key): _frozen(each) for key, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _text(value: Any) -> str:
    return repr(dict(value)) if isinstance(value, Mapping) else repr(value)


def _fits(value: Any, default: Any) -> bool:
    """Whether a value has the form of the default: positive numbers, and tuples and mappings of these."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, (int, float)):
        kinds = int if isinstance(default, int) else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool) and value > 0
    if isinstance(default, Mapping):
        known = isinstance(value, Mapping) and value.keys() <= default.keys()
        return known and all(_fits(each, default[key]) for key, each in value.items())
    same = isinstance(value, tuple) and len(value) == len(default)
    return same and all(map(_fits, value, default))


@cache
def _docs(cls: Any) -> dict[str, str]:
    """The docstrings of the fields of a record, from its source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for each, after in zip(tree.body, tree.body[1:]):
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[each.target.id] = " ".join(str(after.value.value).split())
    return found


__all__ = [
    "HEURISTICS",
    "PREFIX",
    "Number",
    "Overrides",
    "Reads",
    "cached",
    "current_overrides",
    "declared",
    "family",
    "merged",
    "overridden",
    "recorded",
    "scaled",
]  # fmt: skip
