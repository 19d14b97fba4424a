"""How tensors lie before the machine: as images of channels, rows and columns.

Tensors of three and more dims have their channels first, `[n, c, …]`; matrices and what else is asked for
have them last: the other dims are rows of a matrix, of which `batch` at a time are the images of a column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlc_backend_vta.config import Config
from dlc_backend_vta.layers import View


@dataclass(frozen=True)
class Form:
    """The sizes of a tensor as layers have them, and its strides in elements."""

    images: int
    channels: int
    rows: int
    columns: int
    ragged: int
    strides: tuple[int, int, int, int]
    axis: int
    """The dim of the channels, from the end."""

    @staticmethod
    def first(shape: Sequence[int]) -> Form:
        """Channels in the second dim, of three or more."""
        n, c, *space = shape
        rows, columns = (1, space[0]) if len(space) == 1 else (space[0], math.prod(space[1:]))
        return Form(n, c, rows, columns, 0, (c * rows * columns, rows * columns, columns, 1), 1 - len(shape))

    @staticmethod
    def last(shape: Sequence[int], config: Config) -> Form:
        """Channels in the last dim."""
        m, n = math.prod(shape[:-1]), shape[-1] if shape else 1
        columns = -(-m // config.batch)
        images = m if columns == 1 else config.batch
        ragged = 0 if columns == 1 else m - (columns - 1) * config.batch
        return Form(images, n, 1, columns, ragged, (n, 1, config.batch * n * columns, config.batch * n), -1)

    @staticmethod
    def of(shape: Sequence[int], config: Config) -> Form:
        """The usual form of a shape."""
        return Form.first(shape) if len(shape) > 2 else Form.last(shape, config)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a constant of this shape is one number, or one for each channel."""
        positions = [axis - len(shape) for axis, size in enumerate(shape) if size != 1]
        return not positions or (positions == [self.axis] and shape[self.axis] == self.channels)

    def view(self, base: int, offset: int, dtype: str) -> View:
        """A compact tensor of this form on the card."""
        size = 4 if dtype == "int32" else 1
        n, c, y, x = (stride * size for stride in self.strides)
        return View(base, offset, (n, c, y, x), wide=size == 4, flip=dtype == "uint8")

    def fields(self) -> dict[str, Any]:
        """The sizes of a layer's results."""
        return {
            "images": self.images,
            "channels": self.channels,
            "rows": self.rows,
            "columns": self.columns,
            "ragged": self.ragged,
        }


__all__ = ["Form"]
