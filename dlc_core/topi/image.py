"""Resizing of images by the names and parameters of TVM's topi."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc_core.ir.types import Dim
from dlc_core.te import Tensor
from dlc_core.topi.lookup import call
from dlc_core.topi.windows import SPATIAL, check_rank, layout_of, named, spatial_axes


def _resize(rank: int) -> Callable[..., Any]:
    name, x = f"resize{rank}d", SPATIAL[rank]

    def resize(
        data: Tensor,
        size: Dim | Sequence[Dim],
        layout: str = f"NC{x}",
        method: str = "linear",
        coordinates: str = "half_pixel",
        rounding: str = "round_prefer_floor",
    ) -> Any:
        check_rank(name, data, rank)
        layout_of(name, layout, rank)
        sizes = tuple(size) if isinstance(size, Sequence) else (size,) * rank
        axes = spatial_axes(layout, rank)
        return call(
            "resize", data, axes=axes, sizes=sizes, mode=method, coordinates=coordinates, rounding=rounding
        )

    doc = f"""Interpolate {x} to other sizes: one for each spatial dim, or one for all of them.

    `method` is "nearest", "linear" or "cubic"; `coordinates` and `rounding` are those of the op "resize".
    Raises TypeInferenceError for arguments that do not fit.
    """
    return named(resize, name, doc)


resize1d, resize2d, resize3d = map(_resize, (1, 2, 3))

__all__ = ["resize1d", "resize2d", "resize3d"]
