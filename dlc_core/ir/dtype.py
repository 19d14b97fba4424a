"""Element types: one interned value per name, with lanes for the vectors of the tensor level.

`dtype("float32")`, `dtype("int8x16")` (16 lanes), `DType.of(np.float32)`.  Equality is identity.  A name that
the core does not have is looked up in the declarations of plugins (`dtype_decl.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Union

import numpy as np

from dlc_core.diag import UsageError, similar
from dlc_core.ir.declared import declared_dtypes
from dlc_core.ir.dtype_table import CORE_DTYPES, ML_NAMES, NUMPY_NAMES
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    import ml_dtypes

    from dlc_core.ir.dtype_decl import DTypeDecl
else:
    ml_dtypes = lazy("ml_dtypes")


def _numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type of a scalar. Types that NumPy lacks are imported on first use."""
    return np.dtype(getattr(ml_dtypes, name) if name in ML_NAMES else NUMPY_NAMES.get(name, name))


_BY_NUMPY = {_numpy_type(name): name for name in CORE_DTYPES if name != "handle" and name not in ML_NAMES}


class DType:
    """An element type.  `kind` is bool, int, uint, float, complex, handle or string; `bits` the width of one
    lane.

    `scalar` is the type of one lane. `is_int` is true for signed and unsigned integers, but not for bool.
    Texts (arrays of `str` objects) exist on the host only. `decl` is the declaration of a dtype of a plugin,
    and None for dtypes of the core. `bits` of a declared dtype are those in memory, 8 or 16; its codes have
    `decl.bits`.
    """

    __slots__ = (
        "_widened",
        "bits",
        "decl",
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
    _declared: ClassVar[dict[tuple[DTypeDecl, int], DType]] = {}

    name: str
    kind: str
    bits: int
    lanes: int
    numpy: np.dtype[Any]
    scalar: DType
    is_float: bool
    is_int: bool
    is_bool: bool
    decl: DTypeDecl | None
    _widened: dict[int, DType]

    def __new__(cls, name: str) -> DType:
        found = cls._interned.get(name)
        if found is not None:
            return found
        match = None if name in CORE_DTYPES else re.fullmatch(r"(.+?)(?:x(\d+))?", name)
        scalar, lanes = (match.group(1), int(match.group(2) or 1)) if match else (name, 1)
        if scalar not in CORE_DTYPES or lanes < 1:
            decl = declared_dtypes().get(scalar) if lanes > 0 else None
            if decl is None:
                raise _unknown(name, scalar)
            return cls._of_declaration(decl, lanes)
        canonical = scalar if lanes == 1 else f"{scalar}x{lanes}"
        self = cls._interned.get(canonical)
        if self is None:
            kind, bits = CORE_DTYPES[scalar]
            self = cls._made(canonical, kind, bits, lanes, _numpy_type(scalar))
            self.scalar = self if lanes == 1 else DType(scalar)
            cls._interned[canonical] = self
        return self

    @classmethod
    def _made(cls, name: str, kind: str, bits: int, lanes: int, numpy: np.dtype[Any]) -> DType:
        self = super().__new__(cls)
        self.name, self.kind, self.bits, self.lanes, self.numpy = name, kind, bits, lanes, numpy
        self.is_float, self.is_int, self.is_bool = kind == "float", kind in ("int", "uint"), kind == "bool"
        self.decl = None
        self._widened = {}
        return self

    @classmethod
    def _of_declaration(cls, decl: DTypeDecl, lanes: int) -> DType:
        """The dtype of a declaration. Two registries may declare different dtypes of one name."""
        self = cls._declared.get((decl, lanes))
        if self is None:
            name = decl.name if lanes == 1 else f"{decl.name}x{lanes}"
            self = cls._made(name, decl.kind, decl.storage, lanes, decl.array_type)
            self.decl = decl
            self.scalar = self if lanes == 1 else cls._of_declaration(decl, 1)
            self = cls._declared.setdefault((decl, lanes), self)
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
        if name is None and known.name in ML_NAMES and known == _numpy_type(known.name):
            name = _BY_NUMPY[known] = known.name
        if name is None:
            return _declared_for(known, value)
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
            if lanes == 1:
                found = self.scalar
            elif self.decl is not None:
                found = self._of_declaration(self.decl, lanes)
            else:
                found = DType(f"{self.scalar.name}x{lanes}")
            self._widened[lanes] = found
        return found

    def int_range(self) -> tuple[int, int]:
        """The smallest and largest value of an integer or bool type."""
        bits = self.bits if self.decl is None else self.decl.bits
        if self.kind == "bool":
            return 0, 1
        if self.kind == "int":
            return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        if self.kind == "uint":
            return 0, (1 << bits) - 1
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


def _unknown(name: str, scalar: str) -> UsageError:
    """The error for a name that neither the core nor a plugin has."""
    known = [*CORE_DTYPES, *declared_dtypes()]
    close = similar(scalar, known)
    return UsageError(
        f"unknown dtype {name!r}",
        details=[f"known dtypes: {', '.join(known)}"],
        hint=f"did you mean {close[0]!r}?" if close else "install the package that declares it",
    )


def _declared_for(known: np.dtype[Any], value: object) -> DType:
    """The dtype of a plugin whose arrays have this NumPy dtype."""
    declared = declared_dtypes()
    if known.names:
        found = declared.get(known.names[0])
    else:
        found = next((declared[name] for name in declared if declared[name].numpy == known.name), None)
    if found is None or found.array_type != known:
        names = ", ".join([*CORE_DTYPES, *declared])
        raise UsageError(f"NumPy dtype {value!r} has no dlc dtype", hint=f"known dtypes: {names}")
    return DType(found.name)


def scalar_dtypes() -> tuple[str, ...]:
    """The names of all element types of the core that device memory can hold."""
    return tuple(name for name in CORE_DTYPES if name not in ("handle", "string"))


BOOL = DType("bool")
INDEX = DType("int64")
"""The type of indices, extents and symbolic dims."""
HANDLE = DType("handle")
STRING = DType("string")
"""Texts. Tensors of texts are arrays of `str` objects, and exist in host programs only."""
