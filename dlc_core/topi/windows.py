"""Layouts, strides and paddings in TVM's notation, as attributes of ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc_core.diag import TypeInferenceError
from dlc_core.ir.expr import const_value
from dlc_core.te import Tensor

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
"""The letters of the spatial dims, by their number."""

Sizes = int | Sequence[int]


def named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """Give a function that is made by another one its public name and docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def per_dim(function: str, name: str, value: Sizes, rank: int) -> tuple[int, ...]:
    """A number for each spatial dim; one number stands for all of them."""
    given = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(given) == 1:
        given *= rank
    if len(given) != rank:
        raise TypeInferenceError(f"{function}: {name} has {len(given)} numbers for {rank} spatial dims")
    return given


def pads(function: str, value: Sizes | str, extents: Sequence[int]) -> tuple[int, ...]:
    """Sizes at the begins of the spatial dims, then at their ends.

    One number stands for all, one for each dim for both of its ends. "VALID" is none, "SAME" is as much as a
    window of stride 1 needs; `extents` are the numbers of elements that the window spans.
    """
    rank = len(extents)
    if value == "VALID":
        return (0,) * (2 * rank)
    if value == "SAME":
        return (*(e // 2 for e in extents), *((e - 1) // 2 for e in extents))
    if isinstance(value, str):
        raise TypeInferenceError(f"{function}: padding {value!r}", hint='numbers, "SAME" or "VALID"')
    given = (value,) * (2 * rank) if isinstance(value, int) else tuple(value)
    if len(given) == 1:
        given *= 2 * rank
    if len(given) == rank:
        given *= 2
    if len(given) != 2 * rank:
        raise TypeInferenceError(f"{function}: padding has {len(given)} numbers for {rank} spatial dims")
    return given


def layout_of(function: str, layout: str, rank: int) -> str:
    """The op's name of a layout such as "NCHW" or "NHWC"."""
    x = SPATIAL[rank]
    return _one_of(function, "layout", layout, {f"NC{x}": "NCX", f"N{x}C": "NXC"})


def kernel_layout_of(function: str, layout: str, data_layout: str, rank: int, inner: str) -> str:
    """The op's name of a kernel's layout, such as "OIHW" or "HWIO"; by default that of the data's layout.

    `inner` are the letters of the channels: "OI" for a convolution, "IO" for a transposed one.
    """
    x = SPATIAL[rank]
    default = f"{inner}{x}" if data_layout == "NCX" else f"{x}IO"
    known = {f"{inner}{x}": f"{inner}X", f"{x}IO": "XIO"}
    return _one_of(function, "kernel layout", layout or default, known)


def _one_of(function: str, what: str, given: str, known: dict[str, str]) -> str:
    if given not in known:
        raise TypeInferenceError(f"{function}: {what} {given!r}", hint=f"one of {', '.join(known)}")
    return known[given]


def window_extents(kernel: Tensor, kernel_layout: str, dilation: Sequence[int]) -> tuple[int, ...]:
    """The number of elements that a kernel's window spans along each spatial dim."""
    dims = kernel.shape[:-2] if kernel_layout == "XIO" else kernel.shape[2:]
    sizes = [const_value(d) or 1 for d in dims]
    return tuple((k - 1) * d + 1 for k, d in zip(sizes, dilation))


def spatial_axes(layout: str, rank: int) -> tuple[int, ...]:
    """The positions of the spatial dims in a layout such as "NCHW"."""
    return tuple(layout.index(letter) for letter in SPATIAL[rank])


def check_rank(function: str, tensor: Any, rank: int, what: str = "data") -> None:
    """Require a tensor of `rank` spatial dims."""
    if not isinstance(tensor, Tensor) or tensor.ndim != rank + 2:
        found = f"of {tensor.ndim} dims" if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        raise TypeInferenceError(
            f"{function}: {what} is {found}", hint=f"a tensor of {rank + 2} dims is needed"
        )


__all__ = [
    "SPATIAL",
    "check_rank",
    "kernel_layout_of",
    "layout_of",
    "named",
    "pads",
    "per_dim",
    "spatial_axes",
    "window_extents",
]
