"""Element types: one interned value per name, with lanes for the vectors of the tensor level.

`dtype("float32")`, `dtype("int8x16")` (16 lanes), `DType.of(np.float32)`.  Equality is identity.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Union

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    import ml_dtypes
else:
    ml_dtypes = lazy("ml_dtypes")

_ML = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
)
_NUMPY = {"handle": "uint64", "string": "object"}
"""NumPy's names of types that differ from dlc's."""


def _scalar_table() -> dict[str, tuple[str, int]]:
    table = {"bool": ("bool", 8)}
    for bits in (8, 16, 32, 64):
        table[f"int{bits}"] = ("int", bits)
        table[f"uint{bits}"] = ("uint", bits)
    for bits in (16, 32, 64):
        table[f"float{bits}"] = ("float", bits)
    for name in _ML:
        kind = "float" if "float" in name else ("uint" if name[0] == "u" else "int")
        digits = re.search(r"\d+", name)
        assert digits is not None
        table[name] = (kind, int(digits.group()))
    for bits in (64, 128):
        table[f"complex{bits}"] = ("complex", bits)
    table["handle"] = ("handle", 64)
    table["string"] = ("string", 64)
    return table


def _numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type of a scalar. Types that NumPy lacks are imported on first use."""
    return np.dtype(getattr(ml_dtypes, name) if name in _ML else _NUMPY.get(name, name))


_TABLE = _scalar_table()
_BY_NUMPY = {_numpy_type(name): name for name in _TABLE if name != "handle" and name not in _ML}


class DType:
    """An element type.  `kind` is bool, int, uint, float, complex, handle or string; `bits` the width of one
    lane.

    `scalar` is the type of one lane. `is_int` is true for signed and unsigned integers, but not for bool.
    Texts (arrays of `str` objects) exist on the host only.
    """

    __slots__ = (
        "_widened",
        "bits",
        "is_bool",
        "is_float",
        "is_int",
        "kind",
        "lanes",
        "name",
        "numpy",
        "scalar",
    )
    _interned: ClassVar[dict[str, DType]] = {}

    name: str
    kind: str
    bits: int
    lanes: int
    numpy: np.dtype[Any]
    scalar: DType
    is_float: bool
    is_int: bool
    is_bool: bool
    _widened: dict[int, DType]

    def __new__(cls, name: str) -> DType:
        found = cls._interned.get(name)
        if found is not None:
            return found
        match = None if name in _TABLE else re.fullmatch(r"(.+?)(?:x(\d+))?", name)
        scalar, lanes = (match.group(1), int(match.group(2) or 1)) if match else (name, 1)
        if scalar not in _TABLE or lanes < 1:
            raise UsageError(f"unknown dtype {name!r}", hint=f"known dtypes: {', '.join(_TABLE)}")
        canonical = scalar if lanes == 1 else f"{scalar}x{lanes}"
        self = cls._interned.get(canonical)
        if self is None:
            self = super().__new__(cls)
            self.name, self.lanes = canonical, lanes
            self.kind, self.bits = _TABLE[scalar]
            self.numpy = _numpy_type(scalar)
            self.is_float, self.is_int = self.kind == "float", self.kind in ("int", "uint")
            self.is_bool = self.kind == "bool"
            self.scalar = self if lanes == 1 else DType(scalar)
            self._widened = {}
            cls._interned[canonical] = self
        return self

    @staticmethod
    def of(value: DTypeLike) -> DType:
        """The DType of a name, a NumPy dtype or scalar type, or a DType."""
        if isinstance(value, DType):
            return value
        if isinstance(value, str):
            return DType(value)
        known = np.dtype(value)
        name = _BY_NUMPY.get(known)
        if name is None and known.name in _ML and known == _numpy_type(known.name):
            name = _BY_NUMPY[known] = known.name
        if name is None:
            raise UsageError(
                f"NumPy dtype {value!r} has no dlc dtype", hint=f"known dtypes: {', '.join(_TABLE)}"
            )
        return DType(name)

    @property
    def itemsize(self) -> int:
        """The bytes of one element in memory, all lanes included. Types narrower than a byte take one byte
        per element.
        """
        return self.lanes * max(1, self.bits // 8)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of one lane. NumPy accepts an object with this attribute as a dtype: `np.zeros(shape,
        i.dtype)`.
        """
        return self.numpy

    def with_lanes(self, lanes: int) -> DType:
        """The vector type of this many lanes of the same scalar."""
        found = self._widened.get(lanes)
        if found is None:
            found = self.scalar if lanes == 1 else DType(f"{self.scalar.name}x{lanes}")
            self._widened[lanes] = found
        return found

    def int_range(self) -> tuple[int, int]:
        """The smallest and largest value of an integer or bool type."""
        if self.kind == "bool":
            return 0, 1
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if self.kind == "uint":
            return 0, (1 << self.bits) - 1
        raise UsageError(f"{self.name} is not an integer type")

    def __repr__(self) -> str:
        return f"dtype({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return DType, (self.name,)


DTypeLike = Union[DType, str, "np.dtype[Any]", type]


def dtype(value: DTypeLike) -> DType:
    """Short form of `DType.of`."""
    return DType.of(value)


def scalar_dtypes() -> tuple[str, ...]:
    """The names of all element types that device memory can hold."""
    return tuple(name for name in _TABLE if name not in ("handle", "string"))


BOOL = DType("bool")
INDEX = DType("int64")
"""The type of indices, extents and symbolic dims."""
HANDLE = DType("handle")
STRING = DType("string")
"""Texts. Tensors of texts are arrays of `str` objects, and exist in host programs only."""
