"""ONNX element types: the number in the file, dlc's dtype name, the NumPy dtype, and the storage of the
values.

`BY_NUMBER` and `BY_NAME` hold one `ElementType` per type of ONNX 1.23 (`TensorProto.DataType`). dtypes that
NumPy lacks come from ml_dtypes. Types narrower than a byte take one byte per element in memory and are packed
in files. Strings are NumPy object arrays of `str`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from dlc_core.ir.dtype import scalar_dtypes


@dataclass(frozen=True)
class ElementType:
    """One element type. `bits` is its width in a file; `field` is the typed field of TensorProto."""

    number: int
    name: str
    numpy: np.dtype[Any]
    bits: int
    field: str

    def packed_bytes(self, count: int) -> int:
        """Bytes that `count` elements take in `raw_data` or in an external file."""
        return (count * self.bits + 7) // 8

    def field_entries(self, count: int) -> int:
        """Entries that `count` elements take in the typed field."""
        if self.name.startswith("complex"):
            return 2 * count
        if self.bits in (2, 4):
            return self.packed_bytes(count)
        return count


def _table() -> tuple[ElementType, ...]:
    rows: list[tuple[int, str, Any, int, str]] = [
        (1, "float32", np.float32, 32, "float_data"),
        (2, "uint8", np.uint8, 8, "int32_data"),
        (3, "int8", np.int8, 8, "int32_data"),
        (4, "uint16", np.uint16, 16, "int32_data"),
        (5, "int16", np.int16, 16, "int32_data"),
        (6, "int32", np.int32, 32, "int32_data"),
        (7, "int64", np.int64, 64, "int64_data"),
        (8, "string", np.object_, 0, "string_data"),
        (9, "bool", np.bool_, 8, "int32_data"),
        (10, "float16", np.float16, 16, "int32_data"),
        (11, "float64", np.float64, 64, "double_data"),
        (12, "uint32", np.uint32, 32, "uint64_data"),
        (13, "uint64", np.uint64, 64, "uint64_data"),
        (14, "complex64", np.complex64, 64, "float_data"),
        (15, "complex128", np.complex128, 128, "double_data"),
        (16, "bfloat16", ml_dtypes.bfloat16, 16, "int32_data"),
        (17, "float8_e4m3fn", ml_dtypes.float8_e4m3fn, 8, "int32_data"),
        (18, "float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 8, "int32_data"),
        (19, "float8_e5m2", ml_dtypes.float8_e5m2, 8, "int32_data"),
        (20, "float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 8, "int32_data"),
        (21, "uint4", ml_dtypes.uint4, 4, "int32_data"),
        (22, "int4", ml_dtypes.int4, 4, "int32_data"),
        (23, "float4_e2m1fn", ml_dtypes.float4_e2m1fn, 4, "int32_data"),
        (24, "float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, 8, "int32_data"),
        (25, "uint2", ml_dtypes.uint2, 2, "int32_data"),
        (26, "int2", ml_dtypes.int2, 2, "int32_data"),
        (27, "float6_e2m3fn", ml_dtypes.float6_e2m3fn, 6, "int32_data"),
        (28, "float6_e3m2fn", ml_dtypes.float6_e3m2fn, 6, "int32_data"),
    ]
    return tuple(
        ElementType(number, name, np.dtype(dtype), bits, field) for number, name, dtype, bits, field in rows
    )


ELEMENT_TYPES = _table()
BY_NUMBER = {row.number: row for row in ELEMENT_TYPES}
BY_NAME = {row.name: row for row in ELEMENT_TYPES}


TENSOR_DTYPES = frozenset((*scalar_dtypes(), "string"))
"""Names of the element types that the compiler supports. Strings exist only on the host."""


def name_of(number: int) -> str:
    """The dlc dtype name of an ONNX element type number; `KeyError` if ONNX 1.23 has no such number."""
    return BY_NUMBER[number].name


def number_of(name: str) -> int:
    """The ONNX element type number of a dlc dtype name; `KeyError` if ONNX has no such type."""
    return BY_NAME[name].number


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy (or ml_dtypes) dtype of a dlc dtype name; `KeyError` if ONNX has no such type."""
    return BY_NAME[name].numpy


__all__ = ["BY_NAME", "BY_NUMBER", "ELEMENT_TYPES", "ElementType", "name_of", "number_of", "numpy_dtype"]
