"""Common parts of convolutions and poolings: window parameters, output sizes, layouts, NumPy windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dlc_core.ir.expr import const_value
from dlc_core.ir.types import Dim
from dlc_core.op.declare import Attr, NDArray
from dlc_core.op.infer import Attrs, at_least, ceil_div, dim_min, fail, simplify
from dlc_core.support.record import record

T = TypeVar("T")

STRIDES = Attr("strides", "ints", None, "one for each spatial dim; None: 1")
PADDING = Attr(
    "padding", "ints", None, "sizes at the begins of the spatial dims, then at their ends; None: 0"
)
DILATION = Attr(
    "dilation", "ints", None, "distance between a window's elements for each spatial dim; None: 1"
)
LAYOUT = Attr("layout", "str", "NCX", "X are the spatial dims", choices=("NCX", "NXC"))


@record(frozen=True)
class Window:
    """A window over spatial dims. Each field has an entry per dim."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(kernel: Sequence[int], attrs: Attrs) -> Window:
        """Check an op's attributes and return its window."""
        rank = len(kernel)
        strides = (1,) * rank if attrs["strides"] is None else attrs["strides"]
        dilation = (1,) * rank if attrs["dilation"] is None else attrs["dilation"]
        padding = (0,) * (2 * rank) if attrs["padding"] is None else attrs["padding"]
        for name, values, count in (
            ("strides", strides, rank),
            ("dilation", dilation, rank),
            ("padding", padding, 2 * rank),
        ):
            if len(values) != count:
                raise fail(f"{len(values)} {name} for {rank} spatial dims", f"{count} are needed")
        if any(v < 1 for v in (*kernel, *strides, *dilation)) or any(p < 0 for p in padding):
            raise fail("kernel, strides and dilation are at least 1, padding at least 0")
        return Window(tuple(kernel), strides, padding[:rank], padding[rank:], dilation)

    @property
    def extents(self) -> tuple[int, ...]:
        """The number of elements that a window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def is_point(self) -> bool:
        """Whether the window is one element with stride 1 and no padding: it reads the input itself."""
        unit = all(k == 1 and s == 1 for k, s in zip(self.kernel, self.strides, strict=True))
        return unit and not any(self.before) and not any(self.after)

    def output_sizes(self, sizes: Sequence[Dim], ceil_mode: bool = False) -> tuple[Dim, ...]:
        """The number of window positions along each dim. With `ceil_mode` the last window may extend beyond
        the padded input by less than a stride if it begins inside. That may be the only window.
        """
        result = []
        for axis, size in enumerate(sizes):
            stride = self.strides[axis]
            beyond = stride - 1 if ceil_mode else 0
            covered = size + self.before[axis] + self.after[axis] - self.extents[axis]
            if isinstance(covered, int) and covered + beyond < 0:
                raise fail(f"a window of {self.extents[axis]} does not fit into spatial dim {axis} of {size}")
            needed = self.extents[axis] - self.before[axis] - self.after[axis] - beyond
            at_least(size, needed, f"spatial dim {axis} under a window of {self.extents[axis]}")
            if ceil_mode:
                result.append(
                    dim_min(ceil_div(covered, stride) + 1, ceil_div(size + self.before[axis], stride))
                )
        return tuple(result) if ceil_mode else self.positions(sizes)

    def positions(self, sizes: Sequence[Dim]) -> tuple[Dim, ...]:
        """The number of positions along each dim at which a window lies inside the padded input.

        0 or less for a window that is larger than that.
        """
        ends = zip(sizes, self.before, self.after, self.extents, self.strides, strict=True)
        return tuple(simplify((n + b + a - e) // s + 1) for n, b, a, e, s in ends)

    def clipped(self, sizes: Sequence[Dim]) -> Window:
        """The window without the elements that lie beyond the input at every position.

        No position begins before that of the first window. Symbolic sizes keep all elements.
        """
        kernel = list(self.kernel)
        for axis, size in enumerate(sizes):
            if isinstance(size, int) and size > 0:
                kernel[axis] = min(kernel[axis], (size - 1 + self.before[axis]) // self.dilation[axis] + 1)
        return replace(self, kernel=tuple(kernel))


def static_dim(value: Dim, what: str) -> int:
    """The value of a static dim. A symbolic dim is an error, whose message names it `what`."""
    number = const_value(value)
    if number is None:
        raise fail(f"{what} is {value}, it must be a number")
    return number


def channels_first(shape: Sequence[T], layout: str) -> tuple[T, ...]:
    """Permute a shape from a layout to the order (n, c, spatial…)."""
    return (shape[0], shape[-1], *shape[1:-1]) if layout == "NXC" else tuple(shape)


def in_layout(shape: Sequence[T], layout: str) -> tuple[T, ...]:
    """Permute a shape from the order (n, c, spatial…) to the layout."""
    return (shape[0], *shape[2:], shape[1]) if layout == "NXC" else tuple(shape)


def array_channels_first(x: NDArray, layout: str) -> NDArray:
    return np.moveaxis(x, -1, 1) if layout == "NXC" else x


def array_in_layout(x: NDArray, layout: str) -> NDArray:
    return np.moveaxis(x, 1, -1) if layout == "NXC" else x


def in_kernel_layout(outputs: T, inputs: T, taps: Sequence[T], layout: str) -> tuple[T, ...]:
    """Sizes or indices of a kernel in the order of its layout: OIX, IOX or XIO."""
    if layout == "XIO":
        return (*taps, inputs, outputs)
    return (outputs, inputs, *taps) if layout == "OIX" else (inputs, outputs, *taps)


def kernel_dims(dims: Sequence[T], layout: str) -> tuple[T, T, tuple[T, ...]]:
    """The outputs, the inputs and the window among a kernel's dims: the inverse of `in_kernel_layout`."""
    if layout == "XIO":
        return dims[-1], dims[-2], tuple(dims[:-2])
    first, second, *taps = dims
    return (first, second, tuple(taps)) if layout == "OIX" else (second, first, tuple(taps))


def windows(x: NDArray, window: Window, counts: Sequence[int]) -> NDArray:
    """The view [n, c, counts…, kernel…] of a padded array [n, c, spatial…]."""
    rank = len(counts)
    spatial = tuple(range(2, 2 + rank))
    view = np.lib.stride_tricks.sliding_window_view(x, window.extents, spatial)
    steps = [slice(None, None, s) for s in (1, 1, *window.strides, *window.dilation)]
    ends = [slice(None), slice(None), *(slice(c) for c in counts)]
    return view[tuple(steps)][tuple(ends)]
