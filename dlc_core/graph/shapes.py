"""The argument `shapes=`: sizes, bounds and names that a caller gives to dims of a model.

    {"batch": 8}                            the named dim is this number
    {"batch": (1, 512), "length": (1, None)}    it has inclusive bounds; None is an open end
    {"image": (1, 3, (64, 512), None)}      an input's shape: numbers, bounds, None for an unchanged dim
    {"a": ("n", 4), "b": ("n", 4)}          or names: dims with the same name are one dim

`Shapes` merges this with the shapes that the model declares for its inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.ir.bounds import LARGEST, Bounds

Size = int | Bounds
Declared = Mapping[str, Sequence[int | str] | None]
"""The inputs' shapes, each dim a number or a name; None where the rank is not known."""

_HINT = 'a dim is a number, bounds such as (1, 512), a name or None, as in shapes={"x": ("n", 3, (64, 512))}'


class Shapes:
    """Known sizes of a model's dims; raises UsageError for contradictions.

    `compound` are dims that are expressions over other dims, such as "past + 1". They may be fixed, but have
    no bounds of their own. `bounds` are the bounds that the model declares.
    """

    def __init__(
        self,
        given: Mapping[str, Any] | None,
        declared: Declared,
        compound: Collection[str] = (),
        bounds: Mapping[str, Bounds] = MappingProxyType({}),
    ) -> None:
        self._declared = declared
        self._compound = compound
        self._renamed: dict[str, str] = {}
        """The new names of renamed dims."""
        self._sizes: dict[str, Size] = {}
        self._unused: dict[str, Size] = {}
        self.shapes: dict[str, tuple[int | str, ...]] = {}
        """The shapes of inputs that have one in `shapes`, as numbers and names."""
        self.caller_names: set[str] = set()
        """Names of dims that the caller introduced."""
        for shape in declared.values():
            names = [dim for dim in shape or () if isinstance(dim, str)]
            self._sizes.update((dim, bounds.get(dim, Bounds())) for dim in names)
        named: dict[str, Any] = {}
        for name, value in (given or {}).items():
            if name in declared and isinstance(value, (tuple, list)):
                self._merge_input(name, value)
            elif isinstance(value, (tuple, list)) or _is_integer(value):
                named[name] = value
            else:
                raise self._unknown(name, value)
        for name, value in named.items():
            if self.name(name) not in self._sizes and not _is_size(value):
                raise self._unknown(name, value)
            size = _size(value, f"dim {name!r}")
            if self.name(name) in self._sizes:
                self._constrain(name, size)
            elif name in declared:
                raise self._unknown(name, value)
            else:
                self._unused[name] = size

    def name(self, dim: str) -> str:
        """The final name of a dim, after all renamings."""
        while dim in self._renamed:
            dim = self._renamed[dim]
        return dim

    @property
    def new_names(self) -> Collection[str]:
        """The names to which dims were renamed."""
        return self._renamed.values()

    def size(self, dim: str) -> Size:
        """The known size of a dim of inputs: a number or bounds, which may be open."""
        return self._sizes[self.name(dim)]

    def pop_bounds(self, dim: str) -> Bounds | None:
        """The bounds of a dim that is in no input, such as a data-dependent dim; None if none are given."""
        found = self._unused.pop(dim, None)
        return Bounds(found, found) if isinstance(found, int) else found

    def check_used(self, others: Sequence[str] = ()) -> None:
        """Raise UsageError for dims that the model does not have.

        `others` are the dims that no input has.
        """
        for name, size in self._unused.items():
            raise self._unknown(name, size, others)

    def check_input(self, name: str, shape: Sequence[int]) -> None:
        """Raise UsageError if an input's shape contradicts the sizes or bounds of its dims."""
        for axis, (dim, size) in enumerate(zip(self.shapes.get(name, self._declared[name] or ()), shape)):
            expected = self.size(dim) if isinstance(dim, str) else dim
            if expected != size if isinstance(expected, int) else not expected.admits(size):
                raise UsageError(
                    f"input {name!r} has shape {tuple(shape)}: dim {axis}, {dim}, is {size}, not {expected}",
                    hint="give a shape that fits, or other shapes={...}",
                )

    def _merge_input(self, name: str, given: Sequence[Any]) -> None:
        """Merge the shape that the caller gives for an input."""
        declared = self._declared[name]
        if declared is not None and len(declared) != len(given):
            pair = len(given) == 2 and len(declared) == 1
            raise UsageError(
                f"input {name!r} of shape {_text(declared)} is pinned to {_text(given)}",
                why=f"it has {len(declared)} dims, not {len(given)}",
                hint=f"bounds of its dim are shapes={{{name!r}: ({tuple(given)},)}}" if pair else _HINT,
            )
        made: list[int | str] = []
        for axis, value in enumerate(given):
            own = f"{name}_{axis}" if declared is None else declared[axis]
            if isinstance(own, str):
                self._sizes.setdefault(own, Bounds())
            what = f"dim {axis} of input {name!r}"
            if isinstance(value, str):
                self._rename(own, value, what)
            elif value is not None:
                size = _size(value, what)
                if isinstance(own, str):
                    self._constrain(own, size)
                else:
                    _intersect(own, size, what, "the model says")
            made.append(own)
        self.shapes[name] = tuple(made)

    def _rename(self, own: int | str, name: str, what: str) -> None:
        """Rename a dim to a name that the caller chose."""
        if not name.isidentifier() and name not in self._sizes:
            raise UsageError(f"{name!r} is no name for {what}", hint="names of dims are identifiers")
        if name not in self._sizes:
            self.caller_names.add(name)
        known = self._sizes.setdefault(name, Bounds())
        if isinstance(own, int):
            self._constrain(name, own)
            return
        own, name = self.name(own), self.name(name)
        if own in self._compound or name in self._compound:
            if own != name:
                raise self._compound_error(own if own in self._compound else name)
        elif own != name:
            self._sizes[name] = _intersect(self._sizes.pop(own), known, f"dim {name!r}", "it is")
            self._renamed[own] = name

    def _constrain(self, dim: str, size: Size) -> None:
        dim = self.name(dim)
        if dim in self._compound and isinstance(size, Bounds):
            raise self._compound_error(dim)
        self._sizes[dim] = _intersect(self._sizes[dim], size, f"dim {dim!r}", "it is")

    def _compound_error(self, dim: str) -> UsageError:
        parts = ", ".join(name for name in self._sizes if name in dim and name != dim)
        return UsageError(
            f"dim {dim!r} is made of other dims, and has no bounds or other name of its own",
            hint=f"give bounds to those: {parts}",
        )

    def _unknown(self, name: str, value: Any, others: Sequence[str] = ()) -> UsageError:
        if name in self._sizes and not isinstance(value, (int, Bounds)):
            return UsageError(f"shapes: {value!r} is no size of dim {name!r}", hint=_HINT)
        dims = ", ".join((*sorted(self._sizes), *others)) or "none"
        return UsageError(
            f"shapes: {name!r}: {_shown(value)} pins no input and no dim of the model",
            hint=f"inputs: {', '.join(self._declared) or 'none'}; dims: {dims}",
        )


def _size(value: Any, what: str) -> Size:
    """A number, or bounds if the two ends differ."""
    if _is_integer(value):
        if not 0 <= value <= LARGEST:
            raise UsageError(f"{what} is pinned to {value}, which is no size", hint=_HINT)
        return int(value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UsageError(f"{what} is {_shown(value)}, which is no shape and no bounds", hint=_HINT)
    low, high = value
    for end in value:
        if end is not None and not (_is_integer(end) and 0 <= end <= LARGEST):
            raise UsageError(
                f"{what} has the bounds {_shown(value)}, and {_shown(end)} is no size",
                hint="bounds are (low, high), integers from 0, None for an open end",
            )
    low = 0 if low is None else int(low)
    if high is None:
        return Bounds(low)
    if high < low:
        raise UsageError(
            f"{what} has the bounds {_shown(value)}, which nothing is within", hint="give the lower one first"
        )
    if high == 0:
        raise UsageError(f"{what} is at most 0 by its bounds", hint="pin an empty dim with 0 itself")
    return int(high) if low == high else Bounds(low, int(high))


def _intersect(known: Size, given: Size, what: str, source: str) -> Size:
    """Intersect what is known of a dim with what the caller gives. `source` introduces the known size in
    messages."""
    if isinstance(known, int) and isinstance(given, int):
        if known != given:
            raise UsageError(f"{what} is pinned to {given} and to {known}", hint="give it one size")
        return known
    if isinstance(given, int):
        known, given = given, known
    if isinstance(known, int):
        assert isinstance(given, Bounds)
        if not given.admits(known):
            raise UsageError(
                f"{what} is to be in {given}, and {source} {known}",
                hint="give bounds that it is within, or none",
            )
        return known
    assert isinstance(given, Bounds)
    both = intersected_bounds(what, given, known)
    return both.low if both.low == both.high else both


def intersected_bounds(what: str, given: Bounds, known: Bounds | None) -> Bounds:
    """Intersect given bounds of a dim with its known bounds. Raises UsageError if they are disjoint."""
    try:
        return given if known is None else given.intersect(known)
    except UsageError:
        raise UsageError(
            f"{what} is to be in {given} and in {known}, which have nothing in common",
            hint="give it bounds that do",
        ) from None


def _is_integer(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_integer(value) or (len(value) == 2 and all(end is None or _is_integer(end) for end in value))


def _text(shape: Sequence[Any]) -> str:
    return f"({', '.join(map(_shown, shape))}{',' * (len(shape) == 1)})"


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, (int, str, Bounds)) else repr(value)


__all__ = ["Declared", "Shapes", "Size", "intersected_bounds"]
