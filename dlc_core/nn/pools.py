"""Pooling over 1, 2 or 3 spatial dims: by windows, to a given size, and over everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.nn.checks import Sizes, expect_spatial, sizes
from dlc_core.nn.module import Module
from dlc_core.nn.tensor import Tensor, call, concat, constant, matmul, type_text


class _Pool(Module):
    rank: ClassVar[int]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    ceil_mode: bool

    def _set_window(self, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, ceil_mode: bool) -> None:
        self.kernel_size = sizes(kernel_size, self.rank, "kernel_size")
        self.stride = self.kernel_size if stride is None else sizes(stride, self.rank, "stride")
        self.padding, self.ceil_mode = sizes(padding, self.rank, "padding"), ceil_mode

    def _pooled(self, op: str, x: Tensor, **options: object) -> Tensor:
        expect_spatial(x, self.rank, None, "pooling")
        return call(
            op,
            x,
            kernel=self.kernel_size,
            strides=self.stride,
            padding=(*self.padding, *self.padding),
            ceil_mode=self.ceil_mode,
            **options,
        )

    def extra_repr(self) -> str:
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        *,
        ceil_mode: bool = False,
    ) -> None:
        self._set_window(kernel_size, stride, padding, ceil_mode)
        self.dilation = sizes(dilation, self.rank, "dilation")

    def forward(self, x: Tensor) -> Tensor:
        return self._pooled("max_pool", x, dilation=self.dilation)


class MaxPool1d(_MaxPool):
    """The largest element of each window of sequences (n, c, l)."""

    rank = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window of images (n, c, h, w); by default windows do not overlap.

    pool = nn.MaxPool2d(3, stride=2, padding=1)
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window of volumes (n, c, d, h, w)."""

    rank = 3


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self._set_window(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return self._pooled("avg_pool", x, count_include_pad=self.count_include_pad)


class AvgPool1d(_AvgPool):
    """The mean of each window of sequences (n, c, l); see `AvgPool2d`."""

    rank = 1


class AvgPool2d(_AvgPool):
    """The mean of each window; the border counts as zeros with `count_include_pad`, else not at all."""

    rank = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of volumes (n, c, d, h, w); see `AvgPool2d`."""

    rank = 3


class _AdaptivePool(Module):
    """Part i of n elements in m parts is [floor(i n / m), ceil((i + 1) n / m))."""

    rank: ClassVar[int]

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        given = (output_size,) * self.rank if isinstance(output_size, int | None) else tuple(output_size)
        if len(given) != self.rank:
            raise UsageError(f"output_size has {len(given)} numbers for {self.rank} spatial dims")
        self.output_size: tuple[int | None, ...] = given

    def forward(self, x: Tensor) -> Tensor:
        expect_spatial(x, self.rank, None, "pooling")
        axes = [axis for axis, size in enumerate(self.output_size, 2) if size == 1]
        for axis, size in enumerate(self.output_size, 2):
            if size not in (1, None, x.shape[axis]):
                x = self._parts(x, axis, _bounds(x, axis, size))
        return self._whole(x, axes) if axes else x

    def _whole(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._whole")

    def _parts(self, x: Tensor, axis: int, bounds: Sequence[tuple[int, int]]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._parts")

    def extra_repr(self) -> str:
        return f"{self.output_size}"


def _bounds(x: Tensor, axis: int, parts: int) -> list[tuple[int, int]]:
    """The begin and the end of each part of a dim."""
    size = x.shape[axis]
    if not isinstance(size, int):
        raise UsageError(
            f"pooling dim {axis} to {parts} elements needs its size", why=f"the input is {type_text(x)}"
        )
    return [(i * size // parts, -(-(i + 1) * size // parts)) for i in range(parts)]


class _AdaptiveAvgPool(_AdaptivePool):
    def _whole(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.mean(axis=axes, keepdims=True)

    def _parts(self, x: Tensor, axis: int, bounds: Sequence[tuple[int, int]]) -> Tensor:
        weights = np.zeros((bounds[-1][1], len(bounds)), x.dtype.numpy)
        for part, (begin, end) in enumerate(bounds):
            weights[begin:end, part] = 1 / (end - begin)
        order = list(range(x.ndim))
        order[axis], order[-1] = order[-1], order[axis]
        return matmul(x.transpose(*order), constant(weights, x.dtype)).transpose(*order)


class _AdaptiveMaxPool(_AdaptivePool):
    def _whole(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.max(axis=axes, keepdims=True)

    def _parts(self, x: Tensor, axis: int, bounds: Sequence[tuple[int, int]]) -> Tensor:
        parts = [call("slice", x, begins=(b,), ends=(e,), axes=(axis,)) for b, e in bounds]
        return concat([part.max(axis=axis, keepdims=True) for part in parts], axis)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of `output_size` parts of sequences (n, c, l); see `AdaptiveAvgPool2d`."""

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of parts of images (n, c, h, w), so that the result has `output_size` (None keeps a size).

        pool = nn.AdaptiveAvgPool2d((1, 1))

    A size other than 1 needs an input of known size.
    """

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of parts of volumes (n, c, d, h, w); see `AdaptiveAvgPool2d`."""

    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest elements of `output_size` parts of sequences (n, c, l)."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest elements of parts of images (n, c, h, w); see `AdaptiveAvgPool2d`."""

    rank = 2


class GlobalAvgPool(Module):
    """The mean over the spatial dims of images; they stay as 1 unless `flatten`."""

    def __init__(self, flatten: bool = False) -> None:
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        expect_spatial(x, 2, None, "pooling")
        return x.mean(axis=(2, 3), keepdims=not self.flatten)


__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "GlobalAvgPool",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]
