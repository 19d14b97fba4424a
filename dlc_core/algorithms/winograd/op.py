"""Convolution with windows of 3 × 3 by Winograd's minimal filtering: fewer products, more sums.

A tile of m × m results needs (m + 2)² products for each pair of channels instead of 9 m²: 2.25 times fewer
for m = 2, 4 times fewer for m = 4.  With the matrices of `transforms`, for an input tile d and a window g,

    result = Aᵀ ((G g Gᵀ) ∘ (Bᵀ d B)) A

Tiles of half as many columns as rows, with other matrices along columns, save less: 1.5 and 3 times. Their
weights are 3/4 and 2/3 of those of square tiles, so they are faster if weights come from memory.

For stride 2, even and odd pixels are separated: two taps of a direction read the even ones and one reads the
odd ones, and each phase is filtered separately. That takes (2 m + 1)² products: 1.44 times fewer for m = 2,
1.78 times fewer for m = 4.

`winograd_weights` computes G g Gᵀ once, at compile time. `winograd_conv` computes the rest.  In float32
the root mean square error is at most that of a sum in order for m = 2, and about twice it for m = 4, one and
a half times it where these are 4 × 2.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from dlc_core import te
from dlc_core.algorithms.minimal_filtering.matrices import Transforms, filtering, transformed
from dlc_core.algorithms.minimal_filtering.tiles import (
    Tiled,
    check_operands,
    finish_reference,
    full_range,
    pad_for_tiles,
    sample_inputs,
    stage_maker,
    window_of,
)
from dlc_core.ir.expr import as_expr, const
from dlc_core.ir.types import TensorType, Type, dim
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, ceil_div, check_rank, fail
from dlc_core.op.lower import compute
from dlc_core.op.std.convolution import finish
from dlc_core.op.std.window import PADDING, static_dim
from dlc_core.tir.stmt import Range

TILE = Attr("tile", "int", 4, "rows of results of a tile", choices=(2, 4))
ACROSS = Attr("across", "int", 0, "columns of results of a tile; 0 for as many as rows", choices=(0, 1, 2, 4))
STRIDE = Attr("stride", "int", 1, "step of the windows in each direction", choices=(1, 2))
TAPS = 3
STAGE = "winograd"
"""The annotation of the blocks of a Winograd convolution: the name of the stage."""


def points_of(tile: int, stride: int = 1) -> int:
    """Products in each direction of a tile, which is the number of pixels that it reads."""
    return stride * (tile - 1) + TAPS


def sizes_of(attrs: Attrs) -> tuple[int, int]:
    """Rows and columns of results of a tile."""
    return attrs["tile"], attrs["across"] or attrs["tile"]


@cache
def transforms(tile: int, stride: int = 1) -> Transforms:
    """The transforms of one direction, for tiles of `tile` results and windows of three taps."""
    phases = [filtering(tile, len(range(phase, TAPS, stride))) for phase in range(stride)]
    points = points_of(tile, stride)
    weights, inputs = [], []
    for phase, part in enumerate(phases):
        weights += [_spread(row, TAPS, phase, stride) for row in part.weights]
        inputs += [_spread(row, points, phase, stride) for row in part.inputs]
    results = tuple(sum((part.results[i] for part in phases), ()) for i in range(tile))
    return Transforms(tuple(weights), tuple(inputs), results)


def _spread(row: Sequence[float], size: int, begin: int, step: int) -> tuple[float, ...]:
    """A row of `size` zeros with the given numbers at index `begin` and every `step` further elements."""
    spread = [0.0] * size
    spread[begin::step] = row
    return tuple(spread)


# The weights.

_BATCH = 1 << 9
"""The number of windows that are transformed together.

In float64 they fit in a cache, and the product is too small for NumPy's BLAS to use threads of its own.
Its threads would wait for each other on a busy machine."""


def _weights_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    (w,) = tensor_types(types)
    check_rank(w, 4)
    if any(static_dim(k, "the window") != TAPS for k in w.shape[:2]):
        raise fail(f"a window of {w.shape[0]} x {w.shape[1]}", "3 x 3 is needed")
    points = (points_of(tile, attrs["stride"]) for tile in sizes_of(attrs))
    return TensorType((*points, *w.shape[2:]), w.dtype)


def weights_of(w: NDArray, tile: int, across: int = 0, stride: int = 1) -> NDArray:
    """Transform windows for tiles of these sizes."""
    down, wide = (np.array(transforms(size, stride).weights) for size in (tile, across or tile))
    both, windows = np.kron(down, wide), w.reshape(9, -1)
    made = np.empty((len(both), windows.shape[1]), w.dtype)
    for start in range(0, windows.shape[1], _BATCH):
        part = slice(start, start + _BATCH)
        made[:, part] = both @ windows[:, part].astype(np.float64)
    return made.reshape(len(down), len(wide), *w.shape[2:])


def _weights_lower(type_: TensorType, attrs: Attrs, w: te.Tensor) -> te.Tensor:
    down, wide = (transforms(size, attrs["stride"]).weights for size in sizes_of(attrs))
    columns = compute(
        (type_.shape[0], TAPS, *w.shape[2:]),
        lambda a, s, i, o: transformed(down, a, lambda r: w[r, s, i, o]),
        "weights_columns",
    )
    return compute(
        type_.shape,
        lambda a, b, i, o: transformed(wide, b, lambda s: columns[a, s, i, o]),
        "weights",
    )


WEIGHTS = op(
    "winograd_weights",
    "windows [3, 3, in, out] transformed for `winograd_conv`: [points, points, in, out]; for n results of a "
    "tile in a direction there are n + 2 points or, where the stride is 2, 2 n + 1",
    ["w"],
    [TILE, ACROSS, STRIDE],
    kind="opaque",
    infer=_weights_infer,
    reference=weights_of,
    lower=_weights_lower,
    dtypes=("float32", "float64"),
    samples=(
        Sample((Tensor((3, 3, 2, 5)),), {"tile": 2}),
        Sample((Tensor((3, 3, 4, 3)),), {"tile": 4}),
        Sample((Tensor((3, 3, 3, 2)),), {"tile": 4, "across": 2}),
        Sample((Tensor((3, 3, 2, 3)),), {"tile": 2, "across": 1}),
        Sample((Tensor((3, 3, 2, 5)),), {"tile": 2, "stride": 2}),
        Sample((Tensor((3, 3, 4, 3)),), {"tile": 4, "stride": 2}),
    ),
    error_samples=(
        ErrorSample((Tensor((3, 3, 2)),), {}, "rank"),
        ErrorSample((Tensor((5, 3, 2, 2)),), {}, "3 x 3"),
        ErrorSample((Tensor((3, 3, 2, 2)),), {"tile": 3}, "one of"),
        ErrorSample((Tensor((3, 3, 2, 2)),), {"across": 3}, "one of"),
    ),
)


# The convolution.


def _conv_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    points = [points_of(tile, attrs["stride"]) for tile in sizes_of(attrs)]
    x, w = check_operands(types, points, 4, attrs["tile"], WEIGHTS)
    sizes = window_of([static_dim(k, "the window") for k in w.shape[:2]], attrs).output_sizes(x.shape[1:3])
    return TensorType((x.shape[0], *sizes, w.shape[3]), x.dtype)


def _conv_reference(
    x: NDArray,
    u: NDArray,
    w: NDArray,
    bias: NDArray | None = None,
    *,
    tile: int = 4,
    across: int = 0,
    stride: int = 1,
    padding: Sequence[int] | None = None,
) -> NDArray:
    tiles = (tile, across or tile)
    window = window_of((TAPS, TAPS), {"stride": stride, "padding": padding})
    height, width = (static_dim(size, "results") for size in window.output_sizes(x.shape[1:3]))
    down, wide = (-(-size // each) for size, each in zip((height, width), tiles, strict=True))
    points, steps = u.shape[:2], [stride * each for each in tiles]
    last = [
        (count - 1) * step + point - before - size
        for count, step, point, before, size in zip(
            (down, wide), steps, points, window.before, x.shape[1:3], strict=True
        )
    ]
    # Results of the last tiles beyond the border are cut off, so their inputs do not matter.
    source = np.pad(
        x.astype(np.float64),
        [(0, 0), *((b, max(a, 0)) for b, a in zip(window.before, last, strict=True)), (0, 0)],
    )
    parts = np.lib.stride_tricks.sliding_window_view(source, points, (1, 2))
    parts = parts[:, : down * steps[0] : steps[0], : wide * steps[1] : steps[1]]
    rows, columns = (transforms(each, stride) for each in tiles)
    inner = np.einsum("ar,ntscrq,bq->abntsc", np.array(rows.inputs), parts, np.array(columns.inputs))
    products = np.einsum("abntsc,abco->abntso", inner, u.astype(np.float64))
    results = np.einsum("ia,abntso,jb->ntisjo", np.array(rows.results), products, np.array(columns.results))
    n, oc = x.shape[0], u.shape[3]
    full = results.reshape(n, down * tiles[0], wide * tiles[1], oc)[:, :height, :width]
    return finish_reference(full, x, w, bias, window)


def _conv_lower(
    type_: TensorType, attrs: Attrs, x: te.Tensor, u: te.Tensor, w: te.Tensor, *bias: te.Tensor
) -> te.Tensor:
    stride, tiles = attrs["stride"], sizes_of(attrs)
    (high, wide), window = (transforms(tile, stride) for tile in tiles), window_of((TAPS, TAPS), attrs)
    sizes = window.output_sizes([dim(d) for d in x.shape[1:3]])
    batch, inputs, outputs = as_expr(x.shape[0]), u.shape[2], u.shape[3]
    down, across = (as_expr(ceil_div(size, tile)) for size, tile in zip(sizes, tiles, strict=True))
    points, (step, aside) = [points_of(tile, stride) for tile in tiles], (stride * tile for tile in tiles)
    beyond = TAPS - stride
    source, stage = (
        pad_for_tiles(x, window, (down * step + beyond, across * aside + beyond)),
        stage_maker(STAGE),
    )

    rows = stage(
        "rows",
        (batch, down, points[0], across * aside + beyond, inputs),
        lambda n, t, a, w, c: transformed(high.inputs, a, lambda r: source[n, t * step + r, w, c]),
    )
    inner = stage(
        "inputs",
        (*points, batch, down * across, inputs),
        lambda a, b, n, p, c: transformed(
            wide.inputs, b, lambda r: rows[n, p // across, a, p % across * aside + r, c]
        ),
    )
    channel = te.reduce_axis(inputs, "ic")
    products = stage(
        "products",
        (*points, batch, down * across, outputs),
        lambda a, b, n, p, o: te.sum(inner[a, b, n, p, channel] * u[a, b, channel, o], axis=channel),
    )
    columns = stage(
        "columns",
        (batch, down, across, tiles[0], points[1], outputs),
        lambda n, t, s, i, b, o: transformed(high.results, i, lambda a: products[a, b, n, t * across + s, o]),
    )
    tiled = Tiled(
        STAGE,
        tiles,
        (batch, down, across, static_dim(dim(outputs), "output channels")),
        columns,
        lambda n, t, s, channels: (
            [Range(i, const(1)) for i in (n, t, s)]
            + [full_range(const(tiles[0])), full_range(const(points[1])), channels]
        ),
        lambda n, t, s, i, j, o: transformed(wide.results, const(j), lambda b: columns[n, t, s, i, b, o]),
        source,
        w,
        stride,
    )
    total = tiled.results(type_.shape)
    return finish(total, type_, bias, "NXC", "winograd")


def _inputs(
    tile: int, shape: Sequence[int], outputs: int, stride: int = 1, across: int = 0
) -> tuple[Tensor, ...]:
    """Make an input, transformed weights, and the windows of these."""
    return sample_inputs(shape, TAPS, outputs, lambda w: weights_of(w, tile, across, stride))


X, WINDOWS = Tensor((1, 6, 6, 3)), Tensor((3, 3, 3, 5))

CONV = op(
    "winograd_conv",
    "convolution of windows of 3 x 3, channels last, with weights of `winograd_weights` and an optional "
    "bias; by the windows themselves where a tile's results are not finite",
    ["x", "u", "w", "bias?"],
    [TILE, ACROSS, STRIDE, PADDING],
    kind="contraction",
    infer=_conv_infer,
    reference=_conv_reference,
    lower=_conv_lower,
    dtypes=("float32", "float64"),
    samples=(
        Sample(_inputs(2, (1, 6, 6, 3), 5), {"tile": 2}),
        Sample((*_inputs(2, (2, 5, 7, 2), 4), Tensor((4,))), {"tile": 2, "padding": (1, 1, 1, 1)}),
        Sample((*_inputs(4, (1, 8, 9, 4), 3), Tensor((3,))), {"tile": 4, "padding": (1, 0, 1, 2)}),
        Sample(_inputs(4, (1, 7, 8, 16), 32), {"tile": 4, "padding": (1, 1, 1, 1)}),
        Sample(_inputs(4, (1, 7, 5, 3), 5, across=2), {"tile": 4, "across": 2, "padding": (1, 1, 1, 1)}),
        Sample(_inputs(2, (2, 5, 4, 3), 4, across=1), {"tile": 2, "across": 1}),
        Sample(_inputs(2, (2, 5, 9, 2), 4, 2), {"tile": 2, "stride": 2, "padding": (1, 1, 1, 1)}),
        Sample((*_inputs(4, (1, 12, 8, 4), 3, 2), Tensor((3,))), {"tile": 4, "stride": 2}),
    ),
    error_samples=(
        ErrorSample((Tensor((1, 6, 6)), Tensor((6, 6, 3, 5)), WINDOWS), {}, "rank"),
        ErrorSample((X, Tensor((4, 4, 3, 5)), WINDOWS), {}, "winograd_weights"),
        ErrorSample((X, Tensor((6, 6, 2, 5)), WINDOWS), {}, "must be equal"),
        ErrorSample((X, Tensor((6, 6, 3, 4)), WINDOWS), {}, "must be equal"),
        ErrorSample((Tensor((1, 1, 6, 3)), Tensor((6, 6, 3, 5)), WINDOWS), {}, "does not fit"),
        ErrorSample((X, Tensor((6, 6, 3, 5)), WINDOWS), {"padding": (1, 1)}, "4 are needed"),
        ErrorSample((X, Tensor((6, 6, 3, 5)), WINDOWS, Tensor((4,))), {}, "must be equal"),
    ),
)

OPS = (WEIGHTS, CONV)
