"""The converters of all operators, one file for each family; importing the package fills the table."""

from __future__ import annotations

from dlc_frontend_onnx.converters import (
    attention,
    casts,
    control,
    data,
    einsum,
    elementwise,
    indexing,
    legacy,
    microsoft,
    nn,
    norm,
    quantize,
    quantized,
    recurrent,
    reduce,
    resize,
    sequence,
    shaping,
    signal,
    sorting,
    spatial,
)
from dlc_frontend_onnx.converters.base import (
    TABLE,
    Call,
    Entry,
    SequenceValue,
    Value,
    add_entry,
    converter,
    find_entry,
)

FAMILIES = (
    attention,
    casts,
    control,
    data,
    einsum,
    elementwise,
    indexing,
    legacy,
    microsoft,
    nn,
    norm,
    quantize,
    quantized,
    recurrent,
    reduce,
    resize,
    sequence,
    shaping,
    signal,
    sorting,
    spatial,
)
"""The modules that register converters."""

__all__ = [
    "FAMILIES",
    "TABLE",
    "Call",
    "Entry",
    "SequenceValue",
    "Value",
    "add_entry",
    "converter",
    "find_entry",
]
