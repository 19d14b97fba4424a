"""`grid_sampler` in three dims, and the gradients of `grid_sampler` in two and three.

Interpolation sums the elements around a point with weights. The element `k` along an axis has the weight
`weight[k]`, whose derivative by the coordinate is `slope[k]`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dlc_core.support.record import record
from dlc_frontend_torch.decomposed.table import decomposes, wide

LINEAR, NEAREST, CUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


@record(frozen=True)
class Axis:
    """The elements around each point along an axis: their positions, whether they are inside, their weights,
    and the derivatives of the weights by the coordinate of the grid.
    """

    places: Sequence[Any]
    inside: Sequence[Any]
    weights: Sequence[Any]
    slopes: Sequence[Any]


def _scale(size: Any, corners: bool) -> Any:
    """The derivative of the position in elements by the coordinate."""
    return (size - 1) / 2 if corners else size / 2


def _clipped(at: Any, size: Any) -> tuple[Any, Any]:
    """The position inside of the axis, and its derivative, which is 0 at the border."""
    return at.clamp(0, size - 1), ((at > 0) & (at < size - 1)).to(at.dtype)


def _reflected(at: Any, size: Any, corners: bool) -> tuple[Any, Any]:
    """The position reflected at the ends of the axis, and its derivative."""
    low, span = (0.0, size - 1) if corners else (-0.5, size)
    if span == 0:
        return torch.zeros_like(at), torch.zeros_like(at)
    shifted = at - low
    sign = torch.where(shifted < 0, -1.0, 1.0).to(at.dtype)
    distance = shifted.abs()
    rest, turns = torch.fmod(distance, span), torch.floor(distance / span)
    even = torch.fmod(turns, 2) == 0
    position = torch.where(even, rest + low, span - rest + low)
    inside, slope = _clipped(position, size)
    return inside, slope * torch.where(even, sign, -sign)


def _padded(at: Any, size: Any, padding: int, corners: bool) -> tuple[Any, Any]:
    """The position after padding, and its derivative."""
    if padding == BORDER:
        return _clipped(at, size)
    if padding == REFLECTION:
        return _reflected(at, size, corners)
    return at, torch.ones_like(at)


def _cubic(t: Any) -> tuple[list[Any], list[Any]]:
    """The weights of four elements, and their derivatives by t, the distance of a point from the second."""
    a = -0.75

    def far(x: Any) -> tuple[Any, Any]:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, (3 * a * x - 10 * a) * x + 8 * a

    def near(x: Any) -> tuple[Any, Any]:
        return ((a + 2) * x - (a + 3)) * x * x + 1, (3 * (a + 2) * x - 2 * (a + 3)) * x

    found = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    signs = (1, 1, -1, -1)
    return [each[0] for each in found], [sign * each[1] for sign, each in zip(signs, found, strict=True)]


def _axis(coordinate: Any, size: Any, mode: int, padding: int, corners: bool) -> Axis:
    factor = _scale(size, corners)
    at = (coordinate + 1) * factor - (0 if corners else 0.5)
    if mode == CUBIC:
        begin = at.floor()
        weights, slopes = _cubic(at - begin)
        places = [_padded(begin + k, size, padding, corners)[0] for k in range(-1, 3)]
        slopes = [each * factor for each in slopes]
    else:
        at, slope = _padded(at, size, padding, corners)
        slope = slope * factor
        if mode == NEAREST:
            places, weights, slopes = [at.round()], [torch.ones_like(at)], [torch.zeros_like(at)]
        else:
            begin = at.floor()
            places, weights, slopes = [begin, begin + 1], [begin + 1 - at, at - begin], [-slope, slope]
    inside = [(each >= 0) & (each <= size - 1) for each in places]
    return Axis(
        [torch.where(ok, each, 0).to(torch.int64) for ok, each in zip(inside, places, strict=True)],
        inside,
        weights,
        slopes,
    )


def _axes(sizes: Sequence[Any], grid: Any, mode: int, padding: int, corners: bool) -> list[Axis]:
    """The axes of the input, [samples, points] each, in float64, because weights are small differences of
    positions. The last coordinate of the grid is that of the first axis.
    """
    flat = grid.double().flatten(1, -2)
    return [
        _axis(flat[..., len(sizes) - 1 - number], size, mode, padding, corners)
        for number, size in enumerate(sizes)
    ]


def _elements(sizes: Sequence[Any], axes: Sequence[Axis]) -> Iterator[tuple[tuple[int, ...], Any, Any]]:
    """For each element around the points: its numbers along the axes, its position in the flat input, and
    whether it is inside.
    """
    for numbers in itertools.product(*(range(len(axis.places)) for axis in axes)):
        place, inside = None, None
        for number, size, axis in zip(numbers, sizes, axes, strict=True):
            own = axis.places[number]
            place = own if place is None else place * size + own
            inside = axis.inside[number] if inside is None else inside & axis.inside[number]
        yield numbers, place, inside


def _weight(axes: Sequence[Axis], numbers: Sequence[int], derived: int = -1) -> Any:
    """The weight of an element, or its derivative along an axis."""
    made = None
    for place, (number, axis) in enumerate(zip(numbers, axes, strict=True)):
        own = (axis.slopes if place == derived else axis.weights)[number]
        made = own if made is None else made * own
    return made


def _taken(x: Any, place: Any) -> Any:
    """The elements of a flat input [samples, channels, elements] at positions [samples, points]."""
    return x.gather(2, place.unsqueeze(1).expand(-1, x.shape[1], -1))


@decomposes("grid_sampler_3d")
def grid_sampler_3d(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    sizes = x.shape[2:]
    axes = _axes(sizes, grid, mode, padding, corners)
    flat = wide(x).flatten(2)
    made: Any = None
    for numbers, place, inside in _elements(sizes, axes):
        weight = torch.where(inside, _weight(axes, numbers), 0).to(flat.dtype)
        each = torch.where(inside.unsqueeze(1), _taken(flat, place), 0) * weight.unsqueeze(1)
        made = each if made is None else made + each
    return made.reshape(*x.shape[:2], *grid.shape[1:-1]).to(x.dtype)


@decomposes("grid_sampler_2d_backward grid_sampler_3d_backward")
def grid_sampler_backward(
    grad: Any, x: Any, grid: Any, mode: int, padding: int, corners: bool, output_mask: Sequence[bool]
) -> tuple[Any, Any]:
    """The gradients of the input, by one scatter, and of the grid."""
    sizes = x.shape[2:]
    axes = _axes(sizes, grid, mode, padding, corners)
    given, flat = wide(grad).flatten(2), wide(x).flatten(2)
    of_input, of_grid = None, torch.zeros_like(grid)
    found = list(_elements(sizes, axes))
    if output_mask[0]:
        places = torch.cat([place for _, place, _ in found], 1).unsqueeze(1).expand(-1, x.shape[1], -1)
        weights = [torch.where(ok, _weight(axes, numbers), 0).to(given.dtype) for numbers, _, ok in found]
        parts = [given * weight.unsqueeze(1) for weight in weights]
        zeros = flat.new_zeros((*x.shape[:2], math.prod(sizes)))
        of_input = zeros.scatter_add(2, places, torch.cat(parts, 2)).reshape(x.shape).to(x.dtype)
    if output_mask[1] and mode != NEAREST:
        # The product of values and gradients, summed over channels. Its terms cancel: float64 keeps them.
        exact = given.double()
        shares = [torch.where(ok, (_taken(flat, place) * exact).sum(1), 0) for _, place, ok in found]
        parts = []
        for axis in reversed(range(len(sizes))):
            each = [share * _weight(axes, found[k][0], axis) for k, share in enumerate(shares)]
            parts.append(sum(each[1:], each[0]))
        of_grid = torch.stack(parts, -1).reshape(grid.shape).to(grid.dtype)
    return of_input, of_grid
