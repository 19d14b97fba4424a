"""Calls of an executable with right and with wrong inputs."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.cancel import CancelToken
from dlc_core.diag import DlcError
from dlc_core.ir.dtype import STRING

MAX_ELEMENTS = 1 << 20
"""The most elements of an input of a call."""
CALL_SECONDS = 10.0
"""The time limit of a call: sizes and loops of a few bytes ask for any time. One that goes on is a hang."""
SIZES = (0, 1, 1, 2, 3, 4, 5, 8, 17)
INTEGERS = (0, 1, -1, 2, -2, 3, 100, 127, -128, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-40, math.inf, -math.inf, math.nan)
DTYPES = (np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.bool_, np.complex64)


def call(exe: Any, rng: random.Random) -> str:
    """One call; the outcome is `called` or `refused`. Every other exception passes."""
    arrays = [_array(value, rng, sizes) for sizes in [_sizes(exe, rng)] for value in exe.inputs]
    if any(array is None for array in arrays):
        return "too large"
    if rng.random() < 0.6:
        arrays = _wrong(arrays, rng)
    try:
        with CancelToken(timeout=CALL_SECONDS):
            if rng.random() < 0.2:
                exe.run({value.name: array for value, array in zip(exe.inputs, arrays)})
            else:
                exe(*arrays)
    except DlcError:
        return "refused"
    return "called"


def _sizes(exe: Any, rng: random.Random) -> dict[Any, int]:
    return {var: rng.choice(SIZES) for var in exe.signature.dims}


def _array(value: Any, rng: random.Random, sizes: dict[Any, int]) -> Any:
    """An array of the input's type, with random and extreme values; None if it would be too large."""
    kind = getattr(value, "type", None)
    if not hasattr(kind, "shape"):
        return [] if rng.random() < 0.5 else [np.zeros(3, np.float32)]  # a sequence, map or optional
    try:
        shape = [dim if isinstance(dim, int) else eval_expr(dim, sizes) for dim in kind.shape]
    except DlcError:
        shape = [rng.choice(SIZES) for _ in kind.shape]
    if min(shape, default=0) < 0 or math.prod(shape) > MAX_ELEMENTS:
        return None
    generator = np.random.default_rng(rng.randrange(1 << 32))
    if kind.dtype is STRING:
        words = np.array(["", "a", "é", "1.5", "x" * 100, "[a", "(a*)*b"], object)
        return generator.choice(words, shape)
    dtype = np.dtype(kind.dtype.numpy)
    if rng.random() < 0.6:
        return generator.integers(0, 4, shape).astype(dtype)
    with np.errstate(all="ignore"):
        if dtype.kind in "iub":
            values = np.array(INTEGERS, np.int64)
        else:
            values = np.array(FLOATS)
        return generator.choice(values, shape).astype(dtype)


def _wrong(arrays: list[Any], rng: random.Random) -> list[Any]:
    """The inputs with one that is wrong or unusual."""
    if not arrays or rng.random() < 0.1:
        return [*arrays, np.zeros(2, np.float32)]
    place = rng.randrange(len(arrays))
    array, how = arrays[place], rng.randrange(10)
    if not isinstance(array, np.ndarray) or how == 0:
        new: Any = rng.choice((None, 3, "text", [], object(), np.zeros((0,), np.float32), array))
    elif how == 1:
        with np.errstate(all="ignore"):
            new = np.zeros(array.shape, rng.choice(DTYPES))
    elif how == 2:
        new = array[..., None] if rng.random() < 0.5 else array.reshape(-1)
    elif how == 3 and array.ndim:
        axis, size = rng.randrange(array.ndim), rng.choice(SIZES)
        shape = [*array.shape]
        shape[axis] = size
        new = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    elif how == 4 and array.ndim:
        new = np.repeat(array, 2, axis=-1)[..., ::2]  # strided
    elif how == 5 and array.ndim:
        new = array[::-1]
    elif how == 6 and array.dtype != object:
        new = array.astype(array.dtype.newbyteorder())
    elif how == 7 and array.size and array.dtype != object:
        raw = np.zeros(array.nbytes + 1, np.uint8)
        new = raw[1:].view(array.dtype).reshape(array.shape)  # not aligned
    elif how == 8 and array.size:
        new = np.broadcast_to(array.flat[0], array.shape)
    else:
        new = array.T
    return [*arrays[:place], new, *arrays[place + 1 :]]


__all__ = ["call"]
