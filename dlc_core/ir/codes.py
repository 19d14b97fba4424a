"""NumPy conversions of a dtype whose codes are enumerated: exact rounding without bit arithmetic.

    decode, encode = codec(8, value)        value(code) is the number that a code means

They are the reference for conversions by bit arithmetic, which lower to the tensor level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from dlc_core.diag import PluginError

NDArray = np.ndarray[Any, Any]
Codec = tuple[Callable[[NDArray], NDArray], Callable[[NDArray], NDArray]]


class _Table:
    """The values of all codes, and the boundaries between neighbours, computed on first use."""

    def __init__(
        self,
        bits: int,
        value: Callable[[int], float],
        boundary: Callable[[int, int], float] | None,
        overflow: str,
    ) -> None:
        self.bits, self.value, self.overflow = bits, value, overflow
        self.boundary = boundary or (lambda low, high: (value(low) + value(high)) / 2)

    @cached_property
    def values(self) -> NDArray:
        return np.array([self.value(code) for code in range(1 << self.bits)], np.float64)

    @cached_property
    def ordered(self) -> NDArray:
        """The codes of finite values, by value. Of codes of one value the first is kept."""
        finite = np.flatnonzero(np.isfinite(self.values))
        _, first = np.unique(self.values[finite], return_index=True)
        return finite[first].astype(np.int64)

    @cached_property
    def boundaries(self) -> NDArray:
        """The boundary between each code of `ordered` and the next."""
        pairs = zip(self.ordered[:-1].tolist(), self.ordered[1:].tolist(), strict=True)
        return np.array([self.boundary(low, high) for low, high in pairs], np.float64)

    def special(self, wanted: float) -> int | None:
        """The first code of NaN or an infinity."""
        same = np.isnan(self.values) if math.isnan(wanted) else self.values == wanted
        found = np.flatnonzero(same)
        return int(found[0]) if found.size else None

    def decode(self, codes: NDArray) -> NDArray:
        return np.asarray(self.values.astype(np.float32)[codes])

    def encode(self, values: NDArray) -> NDArray:
        wide = values.astype(np.float64)
        at = np.searchsorted(self.boundaries, wide)
        codes = self.ordered[at]
        # On a boundary the even code of the two neighbours is taken.
        tie = (at < self.boundaries.size) & (wide == np.append(self.boundaries, np.nan)[at])
        above = self.ordered[np.minimum(at + 1, self.ordered.size - 1)]
        codes = np.where(tie & (codes % 2 == 1), above, codes)
        nan = self.special(math.nan)
        if self.overflow == "nan":
            codes = np.where(np.isinf(wide), self.ordered[0] if nan is None else nan, codes)
        return np.asarray(np.where(np.isnan(wide), self.ordered[0] if nan is None else nan, codes))


def codec(
    bits: int,
    value: Callable[[int], float],
    *,
    boundary: Callable[[int, int], float] | None = None,
    overflow: str = "saturate",
) -> Codec:
    """`decode` and `encode` of a declaration, from the value of each code.

    `value` is called with the codes 0 to 2**bits - 1. Its results must be exact in float32, and may be NaN.
    A number is rounded to the nearest value. `boundary(low, high)` may give another boundary between two
    codes of neighbouring values, as a float64. A number on a boundary is rounded to the even code.

    Numbers beyond the largest value are rounded to it. Infinity is too, unless `overflow` is "nan": then it
    is rounded to the first code of NaN. NaN is rounded to that code, or to the smallest value if there is
    none. Raises PluginError for another `overflow`.
    """
    if overflow not in ("saturate", "nan"):
        raise PluginError(f"a codec with overflow {overflow!r}", hint="saturate or nan")
    table = _Table(bits, value, boundary, overflow)
    return table.decode, table.encode


__all__ = ["codec"]
