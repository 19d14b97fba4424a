"""Common parts of Winograd convolutions: windows, transformed weights, and results that are not finite.

The input is [n, height, width, channels]; the transformed weights end in [channels, outputs].

If a result of a tile is not finite, all results of the tile in `GROUP` channels are recomputed as sums over
the windows.  A transform can overflow where the convolution does not, and it spreads values that are not
finite over its tile, whereas the convolution spreads them over its window only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Op
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const, load
from dlc_core.ir.types import Dim, TensorType, Type, dim
from dlc_core.op.declare import NDArray, Tensor, tensor_types
from dlc_core.op.infer import Attrs, check_rank, fail, merge_dims, simplify
from dlc_core.op.lower import nest, padded
from dlc_core.op.std.window import Window, static_dim
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import absolute
from dlc_core.tir.stmt import LANES, Alloc, Block, If, IterVar, Range, Region, Seq, Stmt, loop, seq, store

GROUP = 16
"""The maximum number of output channels whose results in a tile are checked and recomputed together."""


def window_of(kernel: Sequence[int], attrs: Attrs) -> Window:
    """The checked window of an op with the same `stride` in both directions."""
    strides = (attrs["stride"],) * len(kernel)
    return Window.of(kernel, {"strides": strides, "padding": attrs["padding"], "dilation": None})


def check_operands(
    types: Sequence[Type], lead: Sequence[int], rank: int, tile: int, maker: Op
) -> tuple[TensorType, TensorType]:
    """Check the operands of a tiled convolution; return the types of input and windows.

    ShapeError unless the transformed weights have `rank` dims that begin with `lead`, as `maker` makes them
    for these tiles, and unless the channels and dtypes of all operands agree.
    """
    x, u, w, *bias = tensor_types(types)
    check_rank(x, 4)
    check_rank(u, rank)
    check_rank(w, 4)
    if any(other.dtype is not x.dtype for other in (u, w, *bias)):
        raise fail("inputs of different dtypes")
    if tuple(static_dim(size, "the transformed window") for size in u.shape[: len(lead)]) != tuple(lead):
        raise fail(f"weights {list(u.shape)} for tiles of {tile}", f"make them with {maker.name}")
    for each in (u, w):
        merge_dims(x.shape[3], each.shape[-2], "input channels")
    merge_dims(w.shape[-1], u.shape[-1], "output channels")
    for each in bias:
        check_rank(each, 1)
        merge_dims(each.shape[0], u.shape[-1], "output channels")
    return x, w


def direct_sums(x: NDArray, w: NDArray, window: Window, height: int, width: int) -> NDArray:
    """The sums of a convolution's windows in float64."""
    (top, left), step = window.before, window.strides
    rows, columns = ((n - 1) * s + k for n, s, k in zip((height, width), step, w.shape[:2], strict=True))
    source = np.zeros((len(x), max(rows, top + x.shape[1]), max(columns, left + x.shape[2]), x.shape[3]))
    source[:, top : top + x.shape[1], left : left + x.shape[2]] = x
    parts = np.lib.stride_tricks.sliding_window_view(source, w.shape[:2], (1, 2))
    parts = parts[:, : rows : step[0], : columns : step[1]][:, :height, :width]
    return np.asarray(np.einsum("nhwcrs,rsco->nhwo", parts, w.astype(np.float64)))


def finish_reference(full: NDArray, x: NDArray, w: NDArray, bias: NDArray | None, window: Window) -> NDArray:
    """Finish a reference's results: recompute non-finite ones directly, add the bias, cast to x's dtype."""
    if not np.isfinite(full).all():
        full = np.where(np.isfinite(full), full, direct_sums(x, w, window, *full.shape[1:3]))
    return np.asarray(full if bias is None else full + bias, x.dtype)


def pad_for_tiles(x: te.Tensor, window: Window, extents: Sequence[Expr]) -> te.Tensor:
    """Pad the rows and columns of the input with zeros to the extents that windows of whole tiles read."""
    ends = [
        simplify(dim(end) - before - dim(size))
        for end, before, size in zip(extents, window.before, x.shape[1:3], strict=True)
    ]
    return padded(x, (0, *window.before, 0), (0, *ends, 0), 0)


def stage_maker(mark: str) -> Callable[..., te.Tensor]:
    """Return a function that makes a stage of a name, shape and body, with the annotation `mark`."""

    def stage(
        name: str, shape: Sequence[Dim | Expr], body: Callable[..., Expr | te.tensor.Reduction]
    ) -> te.Tensor:
        made: te.Tensor = te.compute(shape, body, f"{mark}_{name}", annotations={mark: name})
        return made

    return stage


def sample_inputs(
    shape: Sequence[int], taps: int, outputs: int, transform: Callable[[NDArray], NDArray]
) -> tuple[Tensor, ...]:
    """Make an input, transformed weights, and the windows [taps, 3, channels, outputs] of these."""
    rng = np.random.default_rng(0)
    x, windows = rng.standard_normal(shape), rng.standard_normal((taps, 3, shape[-1], outputs)) / 8
    return tuple(Tensor(each.shape, each) for each in (x, transform(windows), windows))


@record(frozen=True)
class Tiled:
    """The results of a convolution by tiles of `sizes` rows and columns, with a check for non-finite ones."""

    mark: str
    """The annotation of the stages."""
    sizes: tuple[int, int]
    shape: tuple[Expr, Expr, Expr, int]
    """Images, rows and columns of tiles, output channels."""
    made: te.Tensor
    """The tensor from which results are computed."""
    region: Callable[[Expr, Expr, Expr, Range], Sequence[Range]]
    """The region of `made` that the results of a tile and a range of channels read."""
    value: Callable[[Expr, Expr, Expr, int, int, Expr], Expr]
    """Result (i, j) of a tile in a channel."""
    source: te.Tensor
    """The padded input, as far as windows of whole tiles reach."""
    window: te.Tensor
    stride: int

    def results(self, shape: Sequence[Dim]) -> te.Tensor:
        """All results; tiles with non-finite results are recomputed directly."""
        rows, columns = self.sizes
        images, tile_rows, tile_columns, outputs = self.shape
        group = math.gcd(outputs, GROUP)
        checked: te.Tensor = te.extern(
            (images, tile_rows, tile_columns, outputs // group, rows, columns, group),
            [self.made, self.source, self.window],
            lambda given, outs: self._checked(given[0], given[1], given[2], outs[0]),
            f"{self.mark}_checked",
            dtype_=self.made.dtype,
            blocks=True,
        )
        made: te.Tensor = te.compute(
            shape,
            lambda n, h, w, o: checked[
                n, h // rows, w // columns, o // group, h % rows, w % columns, o % group
            ],
            f"{self.mark}_results",
            annotations={self.mark: "results"},
        )
        return made

    def _checked(self, made: Buffer, source: Buffer, window: Buffer, out: Buffer) -> Stmt:
        """The nest of the check, with one block per tile and group of channels."""
        n, t, s, v = axes = [Var(f"v_{name}", "int64") for name in "ntsv"]
        (rows, columns), step, group = self.sizes, self.stride, math.gcd(self.shape[3], GROUP)
        taps, tap_columns, channels, _ = window.shape
        positions = [(i, j) for i in range(rows) for j in range(columns)]
        total = Buffer("total", (group,), out.dtype)

        def lanes(body: Callable[[Expr], Stmt]) -> Stmt:
            lane = Var("lane", "int64")
            return loop(lane, group, body(lane), annotations={LANES: True})

        def results(lane: Expr) -> Stmt:
            values = [
                store(out, [*axes, i, j, lane], self.value(n, t, s, i, j, v * group + lane))
                for i, j in positions
            ]
            found = [load(out, [*axes, i, j, lane]) for i, j in positions]
            return seq(*values, store(total, [lane], _sum_of_pairs(found)))

        def multiply_add(at: Sequence[Expr]) -> Stmt:
            r, c, k, i, j = at
            pixel = [n, (t * rows + i) * step + r, (s * columns + j) * step + c, k]

            def summed(lane: Expr) -> Stmt:
                factor = load(window, [r, c, k, v * group + lane])
                where = [*axes, i, j, lane]
                return store(out, where, load(out, where) + load(source, pixel) * factor)

            return lanes(summed)

        def zero(i: int, j: int) -> Stmt:
            return lanes(lambda lane: store(out, [*axes, i, j, lane], const(0, out.dtype)))

        found = absolute(_sum_of_pairs([load(total, [lane]) for lane in range(group)]))
        decl = out.dtype.decl
        limit = np.finfo(out.dtype.numpy).max if decl is None else decl.finite_range[1]
        largest = const(float(limit), out.dtype)
        sums_by_definition = nest([taps, tap_columns, channels, *out.shape[4:6]], multiply_add, "k")
        recompute = seq(*(zero(*at) for at in positions), sums_by_definition)
        body = Alloc(total, seq(lanes(results), If(found <= largest, Seq(()), recompute)))
        point, own = tuple(Range(a, const(1)) for a in axes), Range(v * group, const(group))
        reads = (
            Region(made, tuple(self.region(n, t, s, own))),
            Region(
                source,
                (
                    point[0],
                    Range(t * (rows * step), (rows - 1) * step + taps),
                    Range(s * (columns * step), (columns - 1) * step + tap_columns),
                    full_range(channels),
                ),
            ),
            Region(window, (*map(full_range, window.shape[:3]), own)),
        )
        writes = Region(out, (*point, *map(full_range, out.shape[4:])))
        over = [IterVar(a, full_range(size), "spatial") for a, size in zip(axes, out.shape[:4], strict=True)]
        return nest(
            out.shape[:4],
            lambda at: Block(
                f"{self.mark}_checked",
                tuple(over),
                tuple(at),
                reads,
                (writes,),
                body,
                annotations={self.mark: "checked"},
            ),
        )


def full_range(size: Expr) -> Range:
    """All indices of a dim of this size."""
    return Range(const(0), size)


def _sum_of_pairs(terms: Sequence[Expr]) -> Expr:
    """Sum terms as a balanced tree, so that additions are independent."""
    half = len(terms) // 2
    return _sum_of_pairs(terms[:half]) + _sum_of_pairs(terms[half:]) if half else terms[0]
