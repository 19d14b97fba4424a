"""Interpolations to other sizes, and their gradients.

Linear and cubic interpolation are the op `resize`. The indices that nearest interpolation reads, and the
matrices of antialiased interpolation and of gradients, are found at compile time: torch interpolates the unit
vectors along each axis. So its rounding is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from dlc_core.graph.node import Node, constant
from dlc_core.op import std
from dlc_core.support.record import record
from dlc_frontend_torch.aten.linear_maps import Matrix, along
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

ops = torch.ops.aten


@record(frozen=True)
class Mode:
    """A kind of interpolation: torch's operators by the number of spatial dims, and the mode of `resize`, or
    None if it has none that is equal. `corners` says whether the operators take `align_corners`.
    """

    names: dict[int, str]
    resize: str | None
    corners: bool


MODES = (
    Mode({n: f"upsample_nearest{n}d" for n in (1, 2, 3)}, "nearest", False),
    Mode({n: f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)}, "nearest", False),
    Mode({1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}, "linear", True),
    Mode({2: "upsample_bicubic2d"}, "cubic", True),
    Mode({2: "_upsample_bilinear2d_aa"}, None, True),
    Mode({2: "_upsample_bicubic2d_aa"}, None, True),
)


def _matrix(mode: Mode, size: int, result: int, scale: float | None, corners: bool, wide: bool) -> Matrix:
    """The matrix [result, size] of the interpolation along one axis. torch computes it in float64 if `wide`,
    else in float32.
    """
    with _disable_current_modes(), torch.no_grad():
        unit = torch.eye(size, dtype=torch.float64 if wide else torch.float32)
        options = (corners,) if mode.corners else ()
        if 1 in mode.names:
            made = getattr(ops, mode.names[1]).default(unit[None], [result], *options, scale)[0].T
        else:
            run = getattr(ops, mode.names[2]).default
            made = run(unit[None, None], [result, size], *options, scale, None)[0, 0]
        found: Matrix = made.double().numpy()
    return found


def _interpolated(
    c: Call, mode: Mode, x: Node, spatial: int, corners: bool, scales: Sequence[float | None]
) -> Node:
    sizes = c.shape[2:]
    if mode.resize == "nearest" or mode.resize is None:
        made = x if mode.resize else _wide(c, x)
        for axis in range(2, spatial + 2):
            made = _along(c, mode, made, axis, sizes[axis - 2], corners, scales[axis - 2])
        return c.cast(made, x.dtype)
    given = None if corners or any(each is None for each in scales) else tuple(map(float, scales))  # type: ignore[arg-type]
    if given is None and not corners and any(each is not None for each in scales):
        raise c.unsupported("scales of some dims only")
    return std.resize(
        x, axes=tuple(range(2, spatial + 2)), sizes=sizes, scales=given, mode=mode.resize,
        coordinates="align_corners" if corners else "half_pixel",
    )  # fmt: skip


def _wide(c: Call, x: Node) -> Node:
    if not x.dtype.is_float:
        raise c.unsupported(f"interpolation of elements of {x.dtype}")
    return c.cast(x, "float32") if x.dtype.bits < 32 else x


def _along(c: Call, mode: Mode, x: Node, axis: int, result: Any, corners: bool, scale: float | None) -> Node:
    """Nearest or antialiased interpolation along one axis."""
    size, wanted = (c.number(each, "interpolation of a size") for each in (x.shape[axis], result))
    matrix = _matrix(mode, size, wanted, scale, corners, x.dtype.bits == 64)
    if mode.resize is None:
        return along(x, axis, matrix)
    positions = matrix.argmax(1)
    exact = mode.names[1].endswith("exact1d")
    numbers = np.arange(wanted)
    even = ((2 * numbers + 1) * size) // (2 * wanted) if exact else numbers * size // wanted
    if not (positions == even).all():
        return std.gather(x, constant(positions), axis=axis)
    return std.resize(
        x, axes=(axis,), sizes=(wanted,), mode="nearest",
        coordinates="half_pixel" if exact else "asymmetric",
        rounding="round_prefer_ceil" if exact else "floor",
    )  # fmt: skip


def _gradient(
    c: Call, mode: Mode, grad: Node, sizes: Sequence[Any], corners: bool, scales: Sequence[float | None]
) -> Node:
    made = _wide(c, grad)
    for axis, scale in enumerate(scales, 2):
        size, result = (c.number(each, "interpolation of a size") for each in (sizes[axis], grad.shape[axis]))
        matrix = _matrix(mode, size, result, scale, corners, grad.dtype.bits == 64)
        made = along(made, axis, matrix.T)
    return c.cast(made, grad.dtype)


def _all(scales: Sequence[float | None], spatial: int) -> tuple[float | None, ...]:
    return (*scales, *(None,) * (spatial - len(scales)))


def _add(mode: Mode, spatial: int, name: str) -> None:
    @aten(name)
    def forward(c: Call, x: Node, size: Any, *rest: Any, **scales: Any) -> Node:
        corners, given = (rest[0], rest[1:]) if mode.corners else (False, rest)
        return _interpolated(c, mode, x, spatial, bool(corners), _all((*given, *scales.values()), spatial))

    @aten(f"{name}.vec")
    def forward_by_factors(c: Call, x: Node, size: Any, *rest: Any) -> Node:
        corners, factors = rest if mode.corners else (False, *rest)
        return _interpolated(c, mode, x, spatial, bool(corners), _all(factors or (), spatial))

    @aten(f"{name}_backward")
    def backward(c: Call, grad: Node, size: Any, old: Sequence[Any], *rest: Any, **scales: Any) -> Node:
        corners, given = (rest[0], rest[1:]) if mode.corners else (False, rest)
        return _gradient(c, mode, grad, old, bool(corners), _all((*given, *scales.values()), spatial))


for _mode in MODES:
    for _spatial, _name in _mode.names.items():
        _add(_mode, _spatial, _name)
