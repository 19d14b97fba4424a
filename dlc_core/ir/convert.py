"""Conversion of NumPy arrays between dtypes, declared ones included."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.ir.dtype import DTypeLike, dtype

NDArray = np.ndarray[Any, Any]


def convert(array: Any, to: DTypeLike) -> NDArray:
    """An array in another dtype, as the op `cast` converts it; the array itself if it has that dtype.

    Floats are rounded to nearest. Declared dtypes are rounded by their declarations, by way of the dtype in
    which they are computed. Raises UsageError for an array whose dtype dlc does not have.

    >>> convert([1.5, 2.7], "int32").tolist()
    [1, 2]
    """
    given, wanted = np.asarray(array), dtype(to)
    if given.dtype == wanted.numpy:
        return given
    values = widened(given)
    if wanted.decl is not None:
        return wanted.decl.array_of(values)
    with np.errstate(all="ignore"):
        return values.astype(wanted.numpy, copy=False)


def widened(array: NDArray) -> NDArray:
    """The values of an array of a declared dtype in their computing dtype; other arrays as they are."""
    if array.dtype.isbuiltin == 1 or array.dtype.kind in "OSTU":
        return array
    decl = dtype(array.dtype).decl
    return array if decl is None else decl.values_of(array)


__all__ = ["convert", "widened"]
