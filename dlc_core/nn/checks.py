"""Checks of the inputs of layers, and sizes of their spatial dims."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.diag import UsageError
from dlc_core.ir.types import Dim
from dlc_core.nn.tensor import Tensor, type_text

Sizes = int | Sequence[int]
"""A number for each spatial dim, or one for all of them."""

SPATIAL = {1: "(n, c, l)", 2: "(n, c, h, w)", 3: "(n, c, d, h, w)"}
"""The dims of the input of a layer over 1, 2 or 3 spatial dims."""
_NAMES = {1: "sequences", 2: "images", 3: "volumes"}


def sizes(value: Sizes, rank: int, what: str) -> tuple[int, ...]:
    """A number for each of `rank` spatial dims."""
    given = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(given) != rank:
        raise UsageError(f"{what} has {len(given)} numbers for {rank} spatial dims")
    return given


def expect(x: Tensor, axis: int, size: Dim, what: str = "the layer") -> None:
    """Refuse an input whose dim `axis` is known not to be `size`."""
    if x.ndim < max(axis + 1, -axis):
        raise UsageError(f"{what} needs {size} in dim {axis}", why=f"the input is {type_text(x)}")
    found = x.shape[axis]
    if isinstance(found, int) and found != size:
        raise UsageError(
            f"{what} needs {size} in dim {axis}, the input has {found}", details=[f"input: {type_text(x)}"]
        )


def expect_spatial(x: Tensor, rank: int, channels: int | None = None, what: str = "the layer") -> None:
    """Refuse an input that has not `rank` spatial dims, or other channels."""
    if x.ndim != rank + 2:
        raise UsageError(f"{what} needs {_NAMES[rank]} {SPATIAL[rank]}", why=f"the input is {type_text(x)}")
    if channels is not None:
        expect(x, 1, channels, what)


__all__ = ["SPATIAL", "Sizes", "expect", "expect_spatial", "sizes"]
