"""The element types of the core: their names, kinds and widths."""

from __future__ import annotations

import re

ML_NAMES = (
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
NUMPY_NAMES = {"handle": "uint64", "string": "object"}
"""NumPy's names of types that differ from dlc's."""


def _scalar_table() -> dict[str, tuple[str, int]]:
    table = {"bool": ("bool", 8)}
    for bits in (8, 16, 32, 64):
        table[f"int{bits}"] = ("int", bits)
        table[f"uint{bits}"] = ("uint", bits)
    for bits in (16, 32, 64):
        table[f"float{bits}"] = ("float", bits)
    for name in ML_NAMES:
        kind = "float" if "float" in name else ("uint" if name[0] == "u" else "int")
        digits = re.search(r"\d+", name)
        assert digits is not None
        table[name] = (kind, int(digits.group()))
    for bits in (64, 128):
        table[f"complex{bits}"] = ("complex", bits)
    table["handle"] = ("handle", 64)
    table["string"] = ("string", 64)
    return table


CORE_DTYPES = _scalar_table()
"""The kind and the bits of each element type."""

__all__ = ["CORE_DTYPES", "ML_NAMES", "NUMPY_NAMES"]
