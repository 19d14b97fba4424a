"""Frozen dataclasses that are cheap to define.

    @record(frozen=True)
    class Source:
        name: str
        version: str = ""

`dataclasses.dataclass` generates and compiles the source of six methods for each frozen class, which takes a
third of a millisecond.  Opening a model imports tens of such classes, and compiling one imports hundreds.  A
record's methods are closures over its field names instead.  Otherwise a record is a frozen dataclass:
`replace`, `fields`, `asdict`, `__post_init__`, pickling, matching and inheritance work, and all fields are
arguments of the constructor.  Creating and comparing a record takes up to twice as long, so classes of which
a compile makes thousands, such as IR nodes, are plain dataclasses.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool, eq: bool = True, order: bool = False) -> Callable[[type], type]:
        """Return a class decorator with the options of `dataclass`.

        Raises TypeError without `frozen`, and for a field with `init=False`.
        """
        if not frozen:
            raise TypeError("a record is frozen")
        return lambda cls: _made(cls, eq, order)


Values = Callable[[Any], tuple[Any, ...]]
_NONE = dataclasses.MISSING


def _made(cls: type, eq: bool, order: bool) -> type:
    # A frozen class may only derive from frozen ones; Python adds the guards itself if there is a base.
    derived = any(map(dataclasses.is_dataclass, cls.__bases__))
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # instead of the signature, which takes longer than all the rest
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=derived)(cls)
    made.__dataclass_params__.frozen = True
    listed = dataclasses.fields(made)
    left_out = ", ".join(f.name for f in listed if not f.init)
    if left_out:
        raise TypeError(f"{cls.__qualname__}: the fields of a record are arguments: {left_out}")
    assign, delete = _guards(cls, frozenset(f.name for f in listed))
    compared = _values([f.name for f in listed if f.compare])
    methods = {
        "__init__": _constructor(cls, listed),
        "__repr__": _printer([f.name for f in listed if f.repr]),
        "__setattr__": assign,
        "__delattr__": delete,
        "__signature__": _Signature(),
    }
    if eq:
        methods["__eq__"] = _comparison(compared, operator.eq)
        methods["__hash__"] = lambda self: hash(compared(self))
    if order:
        for name in ("__lt__", "__le__", "__gt__", "__ge__"):
            methods[name] = _comparison(compared, getattr(operator, name))
    own = vars(cls)
    for name, method in methods.items():
        if own.get(name) is None:  # Python sets `__hash__` to None in a class with its own `__eq__`
            setattr(cls, name, method)
    return cls


def _constructor(cls: type, listed: Sequence[dataclasses.Field[Any]]) -> Callable[..., None]:
    names = [f.name for f in listed]
    positional = [f.name for f in listed if not f.kw_only]
    defaults = {f.name: f.default for f in listed if f.default is not _NONE}
    factories = {f.name: f.default_factory for f in listed if f.default_factory is not _NONE}
    all_positional = len(names) if positional == names else -1
    assign, finish = object.__setattr__, getattr(cls, "__post_init__", None)

    def complete(values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        given = dict(zip(positional, values))
        unique = len(given) == len(values) and given.keys().isdisjoint(named)
        given = {**defaults, **given, **named}
        given.update((name, make()) for name, make in factories.items() if name not in given)
        if not unique or given.keys() != set(names):
            _refuse(cls, values, named)
        return [given[name] for name in names]

    def construct(self: Any, /, *values: Any, **named: Any) -> None:
        given = values if len(values) == all_positional and not named else complete(values, named)
        for name, value in zip(names, given):
            assign(self, name, value)
        if finish is not None:
            finish(self)

    return construct


def _refuse(cls: type, values: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise a TypeError that names the missing, unknown, surplus or repeated argument."""
    try:
        inspect.signature(cls).bind(*values, **named)
    except TypeError as error:
        raise TypeError(f"{cls.__qualname__}: {error}") from None


class _Signature:
    """The signature that `inspect.signature` shows, created on demand."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is not None:  # which may be callable itself
            raise AttributeError("__signature__")
        positional: list[inspect.Parameter] = []
        by_name: list[inspect.Parameter] = []
        for field in dataclasses.fields(owner):
            default: Any = field.default if field.default_factory is _NONE else field.default_factory
            made = inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if default is _NONE else default,
                annotation=field.type,
            )
            (by_name if field.kw_only else positional).append(made)
        return inspect.Signature([*positional, *by_name], return_annotation=None)


def _values(names: list[str]) -> Values:
    """Return a function that reads these fields of a record."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _comparison(values: Values, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compared(self: Any, other: Any) -> Any:
        return compare(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented

    return compared


def _printer(names: list[str]) -> Callable[[Any], str]:
    def text(self: Any) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({fields})"

    return text


def _guards(
    cls: Any, names: frozenset[str]
) -> tuple[Callable[[Any, str, Any], None], Callable[[Any, str], None]]:
    """Return `__setattr__` and `__delattr__` that refuse changes; subclasses may add attributes."""

    def assign(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return assign, delete


__all__ = ["record"]
