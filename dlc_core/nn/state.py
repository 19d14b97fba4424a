"""State dicts from `.npz` and `.safetensors` files. Nothing is unpickled, and every size is checked."""

from __future__ import annotations

import json
import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.diag import ModelError, UsageError
from dlc_core.ir.dtype import dtype
from dlc_core.support.array_files import load_arrays

NDArray = np.ndarray[Any, Any]

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip
_LONGEST_HEADER = 100_000_000
"""Bytes, as the format's own description limits it (https://github.com/huggingface/safetensors#format)."""


def read_state(path: str | os.PathLike[str]) -> dict[str, NDArray]:
    """The arrays of a file by their names, for `Module.load_state_dict`.

    Those of a `.safetensors` file are read-only views of the mapped file.  Raises UsageError for other kinds
    of files, ModelError for one that cannot be read or is damaged.
    """
    file = Path(path)
    readers = {".npz": _npz, ".safetensors": _safetensors}
    reader = readers.get(file.suffix)
    if reader is None:
        raise UsageError(f"{file} is no state that can be read", hint=f"it ends in {' or '.join(readers)}")
    try:
        return reader(file)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read", why=f"{error}" or type(error).__name__) from None


def _npz(file: Path) -> dict[str, NDArray]:
    arrays = load_arrays(file)
    if not isinstance(arrays, dict):
        raise ValueError("it holds one array without a name")
    return arrays


def _safetensors(file: Path) -> dict[str, NDArray]:
    """Eight bytes with the header's length, the header (JSON), the data."""
    data = np.memmap(file, np.uint8, "r")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or length > min(len(data) - 8, _LONGEST_HEADER):
        raise ValueError("the header is cut off")
    header = json.loads(data[8 : 8 + length].tobytes())
    if not isinstance(header, dict):
        raise ValueError("the header is no JSON object")
    body = data[8 + length :]
    return {name: _array(name, entry, body) for name, entry in header.items() if name != "__metadata__"}


def _array(name: str, entry: Any, body: NDArray) -> NDArray:
    kind = _DTYPES.get(entry["dtype"])
    if kind is None:
        raise ValueError(f"{name} is of dtype {entry['dtype']}, which is not supported")
    shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
    numbers = (*shape, begin, end)
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(f"the shape or the offsets of {name} are no list of sizes")
    if begin > end or end > len(body) or end - begin != prod(shape) * dtype(kind).itemsize:
        raise ValueError(f"the offsets of {name} do not fit its shape or the file")
    return body[begin:end].view(dtype(kind).numpy).reshape(shape)


__all__ = ["read_state"]
