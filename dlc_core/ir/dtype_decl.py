"""Declarations of element types that the core does not have: a posit, a logarithmic number, a 6-bit float.

    DTypeDecl("posit8", 8, "float", decode, encode, lower_decode=..., lower_encode=...)

The hook `dlc_dtypes` returns such declarations. An element is a code of `bits` bits, stored in an unsigned
integer of 8 or 16 bits; the spare bits above the code are 0, and are ignored when it is read. A code is
converted to a value of the computing dtype (float32 or int32), and a value of the computing dtype is rounded
to a code. NumPy functions define both conversions. Functions over expressions lower them to the tensor level.

Arithmetic is *native* on targets whose description lists the dtype: their code generators get it as it is
(`passes/tir/native_dtypes.py`). On other targets it is *emulated*: operands are converted to the computing
dtype, and each result is rounded once. If `emulated` is false, these targets refuse arithmetic. Storage, data
movement and casts work on all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core.diag import PluginError
from dlc_core.ir.dtype_table import CORE_DTYPES
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    import ml_dtypes
else:
    ml_dtypes = lazy("ml_dtypes")

NDArray = np.ndarray[Any, Any]

COMPUTED = {"float": "float32", "int": "int32", "uint": "int32"}
"""The dtype in which values of a declared dtype are computed, by its kind."""
MAX_BITS = 16
"""Wider codes could not be enumerated, which the interpreter and the tests do."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LANES = re.compile(r".*x[0-9]+")


@record(frozen=True, eq=False)
class DTypeDecl:
    """The declaration of an element type of 1 to 16 bits.

    `kind` is "float", "int" or "uint"; it decides which ops accept the dtype and what they compute in. Values
    of a "float" are float32, values of an "int" or "uint" are int32, and have the range of `bits` bits.

    `decode(codes)` converts an array of unsigned integers to values; `encode(values)` rounds values to codes.
    Casts and arithmetic round by `encode` and by nothing else. `lower_decode` and `lower_encode` do the same
    with an expression of one element: uint8 or uint16 to a value, and back.

    `native` names the operations that targets which list the dtype do in it; they must round as `encode`
    does. On these targets other operations are done in the computing dtype, and conversions are native.

    `numpy` is the name of a type of ml_dtypes with the same encodings; arrays have that type. Without it,
    arrays have a structured type with the codes in the field `name`, which NumPy does not compute in.

    `special` are values that tests use besides random ones, and `tolerance` is the relative error that tests
    allow if ops round in another order. `doc` is one line for lists.

    Raises PluginError for a declaration that cannot work.
    """

    name: str
    bits: int
    kind: str
    decode: Callable[[NDArray], NDArray]
    encode: Callable[[NDArray], NDArray]
    lower_decode: Callable[[Any], Any] | None = None
    lower_encode: Callable[[Any], Any] | None = None
    emulated: bool = True
    native: tuple[str, ...] = ("add", "sub", "mul", "div")
    numpy: str = ""
    special: tuple[float, ...] = (0.0, 1.0, -1.0)
    tolerance: float = 0.0
    doc: str = ""

    def __post_init__(self) -> None:
        what = f"dtype {self.name!r}"
        if not _NAME.fullmatch(self.name) or iskeyword(self.name) or _LANES.fullmatch(self.name):
            raise PluginError(
                f"{what} cannot be declared",
                why="a name has small letters, digits and _; a name that ends in x and digits means lanes",
            )
        if self.name in CORE_DTYPES:
            raise PluginError(f"{what} cannot be declared", why="the core has a dtype of this name")
        if self.kind not in COMPUTED:
            raise PluginError(f"{what} has the kind {self.kind!r}", hint=f"one of {', '.join(COMPUTED)}")
        if not 1 <= self.bits <= MAX_BITS:
            raise PluginError(f"{what} has {self.bits} bits", why=f"a code has 1 to {MAX_BITS} bits")
        if (self.lower_decode is None) is not (self.lower_encode is None):
            raise PluginError(f"{what} lowers one conversion of two", hint="give both, or none")
        if self.numpy and self.array_type.itemsize * 8 != self.storage:
            raise PluginError(
                f"{what} has {self.bits} bits, stored in {self.storage}",
                why=f"elements of ml_dtypes.{self.numpy} have {8 * self.array_type.itemsize} bits",
            )

    @property
    def storage(self) -> int:
        """The bits of an element in memory: 8 or 16."""
        return 8 if self.bits <= 8 else 16

    @property
    def codes(self) -> np.dtype[Any]:
        """NumPy's type of the codes."""
        return np.dtype(f"uint{self.storage}")

    @property
    def computed(self) -> str:
        """The name of the dtype in which values are computed."""
        return COMPUTED[self.kind]

    @property
    def array_type(self) -> np.dtype[Any]:
        """NumPy's type of arrays of this dtype."""
        if self.numpy:
            own: Any = getattr(ml_dtypes, self.numpy, None)
            if own is None:
                raise PluginError(f"dtype {self.name!r}: ml_dtypes has no {self.numpy!r}")
            found: np.dtype[Any] = np.dtype(own)
            return found
        # The second field has no bytes. With one field NumPy would convert codes to numbers by itself.
        return np.dtype([(self.name, self.codes), ("", "V0")])

    def values_of(self, array: NDArray) -> NDArray:
        """Convert an array of `array_type` or of codes to the computing dtype."""
        mask = (1 << self.bits) - 1
        codes: NDArray = np.ascontiguousarray(array).view(self.codes).reshape(array.shape)
        codes = codes & self.codes.type(mask)
        with np.errstate(all="ignore"):
            found: NDArray = np.asarray(self.decode(codes), self.computed).reshape(array.shape)
        return found

    def array_of(self, values: NDArray) -> NDArray:
        """Round an array of numbers to this dtype. Floats are rounded to float32 first."""
        with np.errstate(all="ignore"):
            wide = np.asarray(values).astype(self.computed, copy=False)
            codes = np.asarray(self.encode(wide)).astype(self.codes, copy=False)
        found: NDArray = np.ascontiguousarray(codes).view(self.array_type)
        return found.reshape(wide.shape)

    def round(self, value: float) -> float | int:
        """The value of this dtype that a number is rounded to, as a Python number."""
        found: float | int = self.values_of(self.array_of(np.array([value])))[0].item()
        return found

    def code_of(self, value: float) -> int:
        """The code that a number is rounded to."""
        return int(self.array_of(np.array([value])).view(self.codes)[0])

    @property
    def finite_range(self) -> tuple[float | int, float | int]:
        """The smallest and largest finite value."""
        return _ends(self, True)

    @property
    def limits(self) -> tuple[float | int, float | int]:
        """The smallest and largest value, which may be infinite."""
        return _ends(self, False)

    @property
    def fingerprint(self) -> str:
        """A digest of the meaning of all codes: files with this dtype record it."""
        return _fingerprint(self)


def _table(decl: DTypeDecl) -> NDArray:
    return decl.values_of(np.arange(1 << decl.bits, dtype=decl.codes))


@lru_cache(maxsize=64)
def _ends(decl: DTypeDecl, finite: bool) -> tuple[float | int, float | int]:
    table = _table(decl)
    kept = table[np.isfinite(table) if finite else ~np.isnan(table)]
    return kept.min().item(), kept.max().item()


@lru_cache(maxsize=64)
def _fingerprint(decl: DTypeDecl) -> str:
    table = _table(decl)
    if decl.kind == "float":
        table = np.where(np.isnan(table), np.float32(np.nan), table)
    head = f"{decl.kind} {decl.bits} ".encode()
    return hashlib.sha256(head + table.tobytes()).hexdigest()[:16]


__all__ = ["COMPUTED", "MAX_BITS", "DTypeDecl"]
