"""Structural equality, first difference and hash of all IR values.

Variables, buffers and parameters of graphs are compared by their role: each of one side corresponds to
exactly one of the other, independently of names. Spans do not count. With `names=False` the names of
functions and blocks do not count either, so that kernels that differ only in names are equal.

Literals and attributes differ by type and bits (1, True, 1.0; 0.0, -0.0). Arrays are compared by content.
Digests of large arrays are computed once, and only when needed. All walks are iterative.

A class of another layer is supported if it derives from `Structured`. It has `digest()` if its structure is
expensive to compare. Frozen dataclasses are compared by their fields.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import Const, Expr, Var
from dlc_core.ir.module import IRModule


class Structure(NamedTuple):
    """The kind of a value (`label`) and its named parts.

    `role`: the value is compared by identity. `closed`: its parts share no variables and are compared
    separately.
    """

    label: str
    parts: Sequence[tuple[str, Any]] = ()
    role: bool = False
    closed: bool = False


class Structured:
    """Base of classes of other layers that define their structure."""

    __slots__ = ()

    def structure(self) -> Structure:
        """The structure of the value."""
        raise NotImplementedError


def structural_equal(a: Any, b: Any, *, names: bool = True) -> bool:
    """Whether two values are the same up to the identity of variables, buffers and parameters."""
    return _difference(a, b, names) is None


def first_difference(a: Any, b: Any, *, names: bool = True) -> str | None:
    """The first difference of two values, in reading order; None if they are structurally equal.

    The text is a path with the short forms of both sides, and below it the two values at that position:
    `main.body[2].value: add vs sub`.
    """
    found = find_difference(a, b, names=names)
    if found is None:
        return None
    left, right = found.left, found.right
    text = f"{found.path}: {found.what}"
    snippets = [f"\n  {side} {_snippet(value)}" for side, value in (("left: ", left), ("right:", right))]
    return text + "".join(snippets)


@dataclasses.dataclass(frozen=True, eq=False)
class Difference:
    """The first difference of two values: the names of the parts that lead there, and both sides' values."""

    path: str
    what: str
    steps: tuple[str, ...]
    left: Any
    right: Any


def find_difference(a: Any, b: Any, *, names: bool = True) -> Difference | None:
    """The parts of `first_difference`."""
    found = _difference(a, b, names)
    if found is None:
        return None
    path, what, left, right = found
    steps: list[str] = []
    while path is not None:
        steps.append(path.step)
        path = path.parent
    steps.reverse()
    name = getattr(a, "name", None)
    head = name if isinstance(name, str) else type(a).__name__
    return Difference(head + "".join(steps), what, tuple(steps), left, right)


def values_along(root: Any, steps: Sequence[str], *, names: bool = True) -> list[Any]:
    """The values on the path from `root` down the named parts, `root` first. The list ends where a part is
    missing.
    """
    found = [root]
    for step in steps:
        parts = dict(structure_of(found[-1], names).parts)
        if step not in parts:
            break
        found.append(parts[step])
    return found


def structural_hash(value: Any, *, names: bool = True, sizes: bool = True) -> str:
    """A hexadecimal SHA-256. It is the same for equal values, in every process.

    With `sizes=False`, constants of the dtype of indices do not count: those of shapes, loops and indices.
    """
    return _Hasher(names, sizes).digest(value).hex()


def structural_roles(value: Any, *, names: bool = True) -> tuple[str, list[Any]]:
    """`structural_hash`, and the values that are compared by identity, in the order of the walk.

    Variables, buffers and parameters at the same index of the lists of equal values have the same role.
    """
    hasher = _Hasher(names)
    return hasher.digest(value).hex(), hasher.role_values


class _Path(NamedTuple):
    parent: _Path | None
    step: str


def _difference(
    a: Any, b: Any, names: bool, start: _Path | None = None
) -> tuple[_Path | None, str, Any, Any] | None:
    right_of: dict[int, Any] = {}
    left_of: dict[int, Any] = {}
    seen: set[tuple[int, int]] = set()
    # Keep the values alive, so that no other object gets the same id.
    held: list[Any] = []
    work: list[tuple[Any, Any, _Path | None]] = [(a, b, start)]
    while work:
        left, right, path = work.pop()
        key = (id(left), id(right))
        if key in seen:
            continue
        seen.add(key)
        held += (left, right)
        if left is right and (isinstance(left, np.ndarray) or hasattr(left, "digest")):
            continue
        one, two = structure_of(left, names), structure_of(right, names)
        if one.label != two.label:
            return path, _versus(one.label, two.label), left, right
        if one.role and not (
            right_of.setdefault(key[0], right) is right and left_of.setdefault(key[1], left) is left
        ):
            return path, "another one than before", left, right
        if len(one.parts) != len(two.parts):
            return path, f"{len(one.parts)} parts vs {len(two.parts)}", left, right
        for (name, _), (other, _) in zip(one.parts, two.parts, strict=True):
            if name != other:
                return path, f"{name} vs {other}", left, right
        pairs = [(x, y, _Path(path, name)) for (name, x), (_, y) in zip(one.parts, two.parts, strict=True)]
        if not one.closed:
            work.extend(reversed(pairs))
            continue
        for x, y, step in pairs:
            found = _difference(x, y, names, step)
            if found is not None:
                return found
    return None


class _Hasher:
    def __init__(self, names: bool, sizes: bool = True) -> None:
        self.names = names
        self.sizes = sizes
        self.roles: dict[int, int] = {}
        self.role_values: list[Any] = []
        self.memo: dict[int, bytes] = {}
        self.held: list[Any] = []

    def digest(self, root: Any) -> bytes:
        work: list[tuple[Any, Structure | None]] = [(root, None)]
        while work:
            value, found = work.pop()
            key = id(value)
            if found is None:
                if key in self.memo:
                    continue
                self.held.append(value)
                found = structure_of(value, self.names)
                if not self.sizes and isinstance(value, Const) and value.dtype is INDEX:
                    found = Structure("size")
                if found.role and key not in self.roles:
                    # Number a value at its first occurrence, before its parts, so that equal values get equal
                    # numbers.
                    self.roles[key] = len(self.role_values)
                    self.role_values.append(value)
                work.append((value, found))
                if found.closed:
                    self.memo.update(
                        (id(part), _Hasher(self.names, self.sizes).digest(part)) for _, part in found.parts
                    )
                    continue
                work.extend((part, None) for _, part in reversed(found.parts))
                continue
            hasher = hashlib.sha256(found.label.encode())
            if found.role:
                hasher.update(b"#%d" % self.roles[key])
            for name, part in found.parts:
                hasher.update(b"|" + name.encode() + b"=" + self.memo[id(part)])
            self.memo[key] = hasher.digest()
        return self.memo[id(root)]


def structure_of(value: Any, names: bool = True) -> Structure:
    """The structure of any value of the IR. Raises UsageError for other values."""
    if isinstance(value, Expr):
        return _expr_structure(value)
    if isinstance(value, Structured):
        return value.structure()
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return Structure(f"{type(value).__name__} {value!r}")
    if isinstance(value, float):
        return Structure(f"float {value!r} {struct.pack('<d', value).hex() if value != value else ''}")
    if isinstance(value, DType):
        return Structure(f"dtype {value.name}")
    if isinstance(value, (tuple, list)):
        return Structure(f"{len(value)} items", _items(value))
    if isinstance(value, Buffer):
        return _buffer_structure(value)
    if isinstance(value, Mapping):
        return Structure("mapping", _items_of(value))
    if isinstance(value, IRModule):
        functions = _items_of(value.functions, ".functions")
        parts = [*functions, (".attrs", value.attrs), (".entry", value.entry)]
        return Structure("module", parts, closed=True)
    if isinstance(value, np.ndarray):
        return Structure(f"array {value.dtype} {value.shape} {array_digest(value)}")
    if isinstance(value, np.generic):
        return Structure(f"scalar {value.dtype} {value.tobytes().hex()}")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _record_structure(value, names)
    raise UsageError(f"{type(value).__name__} has no structure to compare")


def array_digest(array: np.ndarray[Any, Any]) -> str:
    """SHA-256 of an array's bytes in row-major order."""
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.sha256(flat).hexdigest()


def _expr_structure(e: Expr) -> Structure:
    if isinstance(e, Var):
        within = f" in {e.bounds}" if e.bounds else ""
        return Structure(f"variable of {e.dtype}{within}", role=True)
    if isinstance(e, Const):
        bits = struct.pack("<d", e.value).hex() if e.dtype.is_float else ""
        return Structure(f"{e.dtype}({e.value}){bits and ' ' + bits}")
    label, parts = type(e).__name__.lower(), list[tuple[str, Any]]()
    for (name, role), value in zip(e.parts, e.values, strict=True):
        if role == "text":
            label = value if e.operators else f"{label} {value}"
        elif role == "operands":
            parts += _items(value, f".{name}")
        elif role in ("operand", "buffer"):
            parts.append((f".{name}", value))
    return Structure(f"{label} of {e.dtype}", parts)


def _buffer_structure(b: Buffer) -> Structure:
    label = f"buffer of {b.dtype} in {b.scope}, {b.ndim} dims, aligned to {b.align}"
    return Structure(label, [(".shape", b.shape), (".strides", b.strides), (".offset", b.offset)], role=True)


def _items_of(values: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    return [(f"{prefix}[{key!r}]", values[key]) for key in sorted(values, key=repr)]


def _items(values: Sequence[Any], prefix: str = "") -> list[tuple[str, Any]]:
    return [(f"{prefix}[{i}]", value) for i, value in enumerate(values)]


def _record_structure(value: Any, names: bool) -> Structure:
    kind = type(value).__name__
    fields = tuple(f.name for f in dataclasses.fields(value) if f.name != "spans")
    if not names and "body" in fields:
        fields = tuple(f for f in fields if f != "name")
    if fields == ("stmts",):
        return Structure(f"{kind} of {len(value.stmts)}", _items(value.stmts))
    return Structure(kind, [("." + name, getattr(value, name)) for name in fields])


def _versus(one: str, two: str) -> str:
    """Both labels. The bits of floats are added only if the numbers look alike."""
    short = [_BITS.sub("", label) for label in (one, two)]
    return " vs ".join(short if short[0] != short[1] else (one, two))


_BITS = re.compile(r" [0-9a-f]{16}$| $")


def _snippet(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        scalars = [
            f"{f.name}={getattr(value, f.name)!r}"
            for f in dataclasses.fields(value)
            if isinstance(getattr(value, f.name), (str, int, float, Expr, Buffer))
        ]
        text = f"{type(value).__name__}({', '.join(scalars)})"
    else:
        text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
