"""Signatures of foreign functions, as text that a person writes and that artefacts compare.

    (in float32 x[m, k], in float32 w[k, n], out float32 y[m, n], int64 m, int64 n, int64 k)
    (float32 x, float32 limit=6) -> float32
    (in float32 x[*n], out float32 y[*n], int64 n)

A parameter is a value, or a pointer to the elements of a contiguous array: `in` is only read, `out` only
written, `inout` both. The names between brackets are the array's sizes. `*n` stands for any number of dims;
as a value, `n` is then the number of their elements. A pointer without sizes (`x[]`) has an unknown extent.

A value may have a default: a number, or the name of a size. Defaults, and values that are sizes, are what
`call_dps` passes; a call in a tensor program passes every argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.types import Dim
from dlc_core.support.record import record

VALUES = ("int32", "uint32", "int64", "uint64", "float32", "float64")
"""The dtypes of values. C promotes narrower ones in ways that differ between machines."""
ELEMENTS = (*VALUES, "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "bool")
"""The dtypes that pointers point to."""
READ, WRITTEN, BOTH = "in", "out", "inout"
STAR = "*"

_PARAM = re.compile(
    r"(?:(?P<how>in|out|inout)\s+)?(?P<dtype>\w+)\s+(?P<name>[A-Za-z_]\w*)\s*"
    r"(?P<dims>\[[^\[\]]*\])?\s*(?:=\s*(?P<default>[^\s=]+))?\s*"
)
_SIZE = re.compile(r"\d+|\*?[A-Za-z_]\w*")
_WHOLE = re.compile(r"\s*\((?P<params>.*)\)\s*(?:->\s*(?P<result>\w+)\s*)?", re.DOTALL)


@record(frozen=True)
class Param:
    """A parameter: a value (`how` is empty), or a pointer.

    `sizes` are the dims of the array that a pointer points to: numbers, names, or `*name`; None if the extent
    is unknown. `default` is the value that `call_dps` passes: a number, or the name of a size.
    """

    name: str
    dtype: DType
    how: str = ""
    sizes: tuple[str | int, ...] | None = None
    default: int | float | str | None = None

    @property
    def is_pointer(self) -> bool:
        """Whether the argument is an address."""
        return bool(self.how)

    def names(self) -> list[str]:
        """The names of the sizes."""
        return [size.lstrip(STAR) for size in self.sizes or () if isinstance(size, str)]

    def __str__(self) -> str:
        text = f"{self.dtype} {self.name}"
        if self.is_pointer:
            sizes = "" if self.sizes is None else ", ".join(map(str, self.sizes))
            text = f"{self.how} {text}[{sizes}]"
        return text if self.default is None else f"{text}={self.default}"


@record(frozen=True)
class Prototype:
    """The parameters of a function and the dtype of its result; None if it returns nothing."""

    params: tuple[Param, ...]
    result: DType | None = None

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(text: str) -> Prototype:
        """Read a signature. Raises UsageError, which quotes the part that is wrong."""
        found = _WHOLE.fullmatch(text)
        if found is None:
            raise UsageError(f"{text!r} is no signature", hint="write (in float32 x[n], int64 n) -> float32")
        params = tuple(_param(part) for part in _parts(found["params"]))
        named = found["result"]
        made = Prototype(params, None if named in (None, "void") else dtype(named))
        made._check()
        return made

    def __str__(self) -> str:
        result = "" if self.result is None else f" -> {self.result}"
        return f"({', '.join(map(str, self.params))}){result}"

    @property
    def inputs(self) -> tuple[Param, ...]:
        """The pointers that are only read."""
        return tuple(p for p in self.params if p.how == READ)

    @property
    def outputs(self) -> tuple[Param, ...]:
        """The pointers that are only written."""
        return tuple(p for p in self.params if p.how == WRITTEN)

    def _check(self) -> None:
        names = [p.name for p in self.params]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise UsageError(f"two parameters have the name {repeated[0]!r}", details=[f"in: {self}"])
        if self.result is not None and self.result.name not in VALUES:
            raise UsageError(f"a foreign function does not return {self.result}", hint=_one_of(VALUES))
        sizes = {name for p in self.params for name in p.names()}
        for p in self.params:
            if isinstance(p.default, str) and p.default not in sizes:
                raise UsageError(f"{p.default!r} is not a size of an array", details=[f"in: {p}"])
            if p.name in sizes and not p.dtype.is_int:
                raise UsageError(f"the size {p.name} is a {p.dtype}", hint="a size is an int32 or int64")


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"


def _parts(text: str) -> list[str]:
    """The texts of the parameters. Commas between brackets separate sizes."""
    parts = re.split(r",(?![^\[]*\])", text)
    return [] if len(parts) == 1 and not parts[0].strip() else parts


def _param(text: str) -> Param:
    found = _PARAM.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text.strip()!r} is no parameter", hint="write int64 n, or in float32 x[n]")
    type_, how = dtype(found["dtype"]), found["how"] or ""
    if bool(how) != (found["dims"] is not None):
        hint = "a pointer has in, out or inout, and its sizes: in float32 x[n]"
        raise UsageError(f"{text.strip()!r} is neither a value nor a pointer", hint=hint)
    known = ELEMENTS if how else VALUES
    if type_.name not in known:
        what = f"a {'pointer to' if how else 'value of'} {type_} cannot be passed"
        raise UsageError(f"{text.strip()!r}: {what}", hint=_one_of(known))
    if how and found["default"] is not None:
        raise UsageError(f"{text.strip()!r}: a pointer has no default")
    return Param(found["name"], type_, how, _sizes(found["dims"], text), _default(found["default"], type_))


def _sizes(text: str | None, param: str) -> tuple[str | int, ...] | None:
    if text is None or not text[1:-1].strip():
        return None
    words = [word.strip() for word in text[1:-1].split(",")]
    wrong = [word for word in words if not _SIZE.fullmatch(word)]
    if wrong or sum(word.startswith(STAR) for word in words) > 1:
        shown = wrong[0] if wrong else STAR
        raise UsageError(f"{param.strip()!r}: {shown!r} is no size", hint="a number, a name, or one *name")
    return tuple(int(word) if word.isdigit() else word for word in words)


def _default(text: str | None, type_: DType) -> int | float | str | None:
    if text is None or re.fullmatch(r"[A-Za-z_]\w*", text):
        return text
    try:
        return int(text, 0) if type_.is_int else float(text)
    except ValueError:
        raise UsageError(
            f"the default {text!r} is no {type_}", hint="a number, or the name of a size"
        ) from None


def bind_sizes(
    param: Param, shape: Sequence[Dim], known: dict[str, tuple[Dim, ...]]
) -> list[tuple[Dim, Dim]]:
    """Add the sizes that an array of this shape gives to the names of a pointer.

    A name has a tuple of sizes: one, or those that `*name` stands for. Returns the pairs (required, given) of
    sizes that must be equal; they may be different expressions, which the caller compares. Raises UsageError
    for a wrong number of dims.
    """
    sizes = param.sizes or ()
    star = next((i for i, size in enumerate(sizes) if str(size).startswith(STAR)), None)
    if len(shape) != len(sizes) if star is None else len(shape) < len(sizes) - 1:
        raise UsageError(f"{param}: an array of {len(shape)} dims does not fit")
    pairs: list[tuple[Dim, Dim]] = []
    at = 0
    for index, size in enumerate(sizes):
        width = len(shape) - len(sizes) + 1 if index == star else 1
        given = tuple(shape[at : at + width])
        at += width
        wanted: tuple[Dim, ...]
        wanted = (size,) if isinstance(size, int) else known.setdefault(size.lstrip(STAR), given)
        if len(wanted) != len(given):
            raise UsageError(f"{param}: {size} stands for {len(wanted)} dims and for {len(given)}")
        pairs.extend((a, b) for a, b in zip(wanted, given) if a is not b)
    return pairs


def shape_of(param: Param, values: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a pointer's array, from the values of the sizes; `*name` is one dim. Raises KeyError for a
    size without a value.
    """
    return tuple(s if isinstance(s, int) else values[s.lstrip(STAR)] for s in param.sizes or ())


__all__ = ["ELEMENTS", "VALUES", "Param", "Prototype", "bind_sizes", "shape_of"]
