"""Convolution of few channels with high windows: minimal filtering of neighbouring rows of results.

A tile of m rows of results needs m + r - 1 products in place of m r for each column of a window of r taps.
If windows have stride s, the rows are separated into s phases, and r is the number of taps of the first
phase. All phases use the same matrices (see `filtering`), and their products are added. For 7 × 7 windows of
stride 2, this halves the products for m = 4.

Filtering in only one direction needs the sums of the transforms for m + r - 1 rows instead of for their
square. With few channels there are too few products to amortise the sums of a two-dimensional transform.

`row_filter_weights` transforms the windows once, at compile time. `row_filter_conv` computes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.algorithms.minimal_filtering.matrices import POINTS, Transforms, filtering, transformed
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
from dlc_core.algorithms.row_filter.heuristics import ROW_FILTER
from dlc_core.ir.expr import as_expr, const
from dlc_core.ir.types import Dim, TensorType, Type, dim
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, ceil_div, check_rank, fail
from dlc_core.op.lower import compute, padded
from dlc_core.op.std.convolution import finish
from dlc_core.op.std.window import PADDING, static_dim
from dlc_core.tir.stmt import Range

TILES, STRIDES = (2, 3, 4), (1, 2, 3, 4)
TILE = Attr("tile", "int", 4, "rows of results of a tile", choices=TILES)
STRIDE = Attr("stride", "int", 1, "step of the windows in each direction", choices=STRIDES)
TAPS = Attr("taps", "int", 3, "rows of a window")
STAGE = "row_filter"
"""The annotation of the blocks of such a convolution: the name of the stage."""
MAX_POINTS = max(POINTS) + 1
"""The maximum number of products for a column of a tile."""


def points_of(tile: int, stride: int, taps: int) -> int:
    """Products for a column of a tile."""
    return tile + -(-taps // stride) - 1


def checked_columns(width: Dim) -> int:
    """Columns of results that are checked together: a divisor of their number."""
    if not isinstance(width, int):
        return 1
    return max(count for count in range(1, ROW_FILTER.max_checked_columns + 1) if width % count == 0)


def matrices(tile: int, stride: int, taps: int) -> Transforms:
    """The transforms of every phase; ShapeError if a tile needs too many products."""
    if points_of(tile, stride, taps) > MAX_POINTS:
        raise fail(
            f"tiles of {tile} rows of windows of {taps} that step by {stride}",
            f"at most {MAX_POINTS} products for a column are possible",
        )
    return filtering(tile, -(-taps // stride))


# The weights.


def _weights_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    (w,) = tensor_types(types)
    check_rank(w, 4)
    points = len(matrices(attrs["tile"], attrs["stride"], static_dim(w.shape[0], "the window")).weights)
    return TensorType((points, attrs["stride"], *w.shape[1:]), w.dtype)


def weights_of(w: NDArray, tile: int, stride: int) -> NDArray:
    """Transform windows for tiles of `tile` rows."""
    made = matrices(tile, stride, len(w))
    g = np.array(made.weights)
    extended = np.zeros((g.shape[1] * stride, *w.shape[1:]))
    extended[: len(w)] = w
    phases = extended.reshape(g.shape[1], stride, *w.shape[1:])
    return np.asarray(np.einsum("pr,rskio->pskio", g, phases), w.dtype)


def _weights_lower(type_: TensorType, attrs: Attrs, w: te.Tensor) -> te.Tensor:
    stride, taps = attrs["stride"], static_dim(dim(w.shape[0]), "the window")
    g = matrices(attrs["tile"], stride, taps).weights
    extended = padded(w, (0, 0, 0, 0), (len(g[0]) * stride - taps, 0, 0, 0), 0)
    return compute(
        type_.shape,
        lambda p, s, k, i, o: transformed(g, p, lambda r: extended[r * stride + s, k, i, o]),
        "row_filter_weights",
    )


WEIGHTS = op(
    "row_filter_weights",
    "windows [rows, columns, in, out] transformed for `row_filter_conv`: [points, stride, columns, in, out]",
    ["w"],
    [TILE, STRIDE],
    kind="opaque",
    infer=_weights_infer,
    reference=weights_of,
    lower=_weights_lower,
    dtypes=("float32", "float64"),
    samples=(
        Sample((Tensor((3, 3, 2, 5)),), {"tile": 2}),
        Sample((Tensor((7, 5, 3, 4)),), {"tile": 4, "stride": 2}),
    ),
    error_samples=(
        ErrorSample((Tensor((3, 3, 2)),), {}, "rank"),
        ErrorSample((Tensor((9, 3, 2, 2)),), {}, "at most 8 products"),
    ),
)


# The convolution.


def _conv_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    points = len(matrices(attrs["tile"], attrs["stride"], attrs["taps"]).weights)
    x, w = check_operands(types, (points, attrs["stride"]), 5, attrs["tile"], WEIGHTS)
    if w.shape[0] != attrs["taps"]:
        raise fail(f"a window of {w.shape[0]} rows", f"{attrs['taps']} are needed")
    window = window_of([static_dim(k, "the window") for k in w.shape[:2]], attrs)
    return TensorType((x.shape[0], *window.output_sizes(x.shape[1:3]), w.shape[3]), x.dtype)


def _conv_reference(
    x: NDArray,
    u: NDArray,
    w: NDArray,
    bias: NDArray | None = None,
    *,
    tile: int = 4,
    stride: int = 1,
    taps: int = 3,
    padding: Sequence[int] | None = None,
) -> NDArray:
    window = window_of((taps, u.shape[2]), {"stride": stride, "padding": padding})
    height, width = (static_dim(size, "results") for size in window.output_sizes(x.shape[1:3]))
    made, down = matrices(tile, stride, taps), -(-height // tile)
    b, a = np.array(made.inputs), np.array(made.results)
    rows, columns = (down * tile + len(b) - tile) * stride, (width - 1) * stride + u.shape[2]
    source = np.zeros((len(x), rows, columns, x.shape[3]))
    top, left = window.before
    part = x[:, : rows - top, : columns - left]
    source[:, top : top + part.shape[1], left : left + part.shape[2]] = part
    phases = source.reshape(len(x), rows // stride, stride, columns, -1)
    tiles = np.lib.stride_tricks.sliding_window_view(phases, len(b), 1)[:, ::tile]
    inner = np.einsum("pr,ntswcr->pntswc", b, tiles)
    windows = np.lib.stride_tricks.sliding_window_view(inner, u.shape[2], 4)[:, :, :, :, ::stride]
    products = np.einsum("pntsxck,pskco->pntxo", windows, u.astype(np.float64))
    results = np.einsum("ip,pntxo->ntixo", a, products)
    full = results.reshape(len(x), down * tile, width, -1)[:, :height]
    return finish_reference(full, x, w, bias, window)


def _conv_lower(
    type_: TensorType, attrs: Attrs, x: te.Tensor, u: te.Tensor, w: te.Tensor, *bias: te.Tensor
) -> te.Tensor:
    tile, stride, taps = attrs["tile"], attrs["stride"], attrs["taps"]
    columns, channels, outputs = static_dim(dim(u.shape[2]), "the window"), u.shape[3], u.shape[4]
    made, window = matrices(tile, stride, taps), window_of((taps, columns), attrs)
    height, width = (as_expr(size) for size in window.output_sizes([dim(d) for d in x.shape[1:3]]))
    batch, down = as_expr(x.shape[0]), as_expr(ceil_div(dim(height), tile))
    points, step = len(made.inputs), stride * tile
    across = (width - 1) * stride + columns
    source, stage = (
        pad_for_tiles(x, window, ((down * tile + points - tile) * stride, across)),
        stage_maker(STAGE),
    )

    inner = stage(
        "inputs",
        (points, batch, down, stride, across, channels),
        lambda p, n, t, s, w, c: transformed(
            made.inputs, p, lambda r: source[n, t * step + r * stride + s, w, c]
        ),
    )
    phase = te.reduce_axis(stride, "phase")
    column = te.reduce_axis(columns, "kw")
    channel = te.reduce_axis(channels, "ic")
    products = stage(
        "products",
        (points, batch, down, width, outputs),
        lambda p, n, t, w, o: te.sum(
            inner[p, n, t, phase, w * stride + column, channel] * u[p, phase, column, channel, o],
            axis=(phase, column, channel),
        ),
    )
    pixels = checked_columns(dim(width))
    tiled = Tiled(
        STAGE,
        (tile, pixels),
        (batch, down, width // pixels, static_dim(dim(outputs), "output channels")),
        products,
        lambda n, t, s, own: [
            full_range(const(points)),
            *(Range(i, const(1)) for i in (n, t)),
            Range(s * pixels, const(pixels)),
            own,
        ],
        lambda n, t, s, i, j, o: transformed(
            made.results, const(i), lambda p: products[p, n, t, s * pixels + j, o]
        ),
        source,
        w,
        stride,
    )
    return finish(tiled.results(type_.shape), type_, bias, "NXC", "row_filter")


def _inputs(tile: int, stride: int, taps: int, shape: Sequence[int], outputs: int) -> tuple[Tensor, ...]:
    """Make an input, transformed weights, and the windows of these."""
    return sample_inputs(shape, taps, outputs, lambda w: weights_of(w, tile, stride))


WINDOWS = Tensor((3, 3, 3, 5))


CONV = op(
    "row_filter_conv",
    "convolution, channels last, with weights of `row_filter_weights` for windows of `taps` rows and an "
    "optional bias; by the windows themselves where a tile's results are not finite",
    ["x", "u", "w", "bias?"],
    [TILE, STRIDE, TAPS, PADDING],
    kind="contraction",
    infer=_conv_infer,
    reference=_conv_reference,
    lower=_conv_lower,
    dtypes=("float32", "float64"),
    samples=(
        Sample(_inputs(2, 1, 3, (1, 6, 6, 3), 5), {"tile": 2}),
        Sample(
            (*_inputs(4, 2, 7, (2, 13, 11, 3), 16), Tensor((16,))),
            {"tile": 4, "stride": 2, "taps": 7, "padding": (3, 1, 3, 1)},
        ),
        Sample(_inputs(3, 4, 11, (1, 24, 17, 2), 8), {"tile": 3, "stride": 4, "taps": 11}),
    ),
    error_samples=(
        ErrorSample((Tensor((1, 6, 6)), Tensor((6, 1, 3, 3, 5)), WINDOWS), {}, "rank"),
        ErrorSample((Tensor((1, 6, 6, 3)), Tensor((5, 1, 3, 3, 5)), WINDOWS), {}, "row_filter_weights"),
        ErrorSample((Tensor((1, 6, 6, 3)), Tensor((6, 1, 3, 2, 5)), WINDOWS), {}, "must be equal"),
        ErrorSample((Tensor((1, 1, 6, 3)), Tensor((6, 1, 3, 3, 5)), WINDOWS), {}, "does not fit"),
        ErrorSample(
            (Tensor((1, 6, 6, 3)), Tensor((6, 1, 3, 3, 5)), WINDOWS), {"padding": (1, 1)}, "4 are needed"
        ),
        ErrorSample(
            (Tensor((1, 6, 6, 3)), Tensor((6, 1, 3, 3, 5)), WINDOWS, Tensor((4,))), {}, "must be equal"
        ),
        ErrorSample(
            (Tensor((1, 6, 6, 3)), Tensor((6, 1, 3, 3, 5)), Tensor((2, 3, 3, 5))), {}, "3 are needed"
        ),
    ),
)

OPS = (WEIGHTS, CONV)
