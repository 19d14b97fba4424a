"""The converters of all operators, one file for each family; importing the package fills the table."""

from __future__ import annotations

from dlc_frontend_onnx.converters import (
    control,
    elementwise,
    indexing,
    nn,
    norm,
    quantize,
    reduce,
    resize,
    sequence,
    shaping,
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

FAMILIES = (control, elementwise, indexing, nn, norm, quantize, reduce, resize, sequence, shaping)
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
