"""winograd: convolutions of 3 × 3 windows computed by tiles, if the cost model predicts a gain.

Law: results stay within tolerance; the root mean square error is at most three times that of a sum in order,
for random inputs and the convolution's weights; tiles with larger errors are refused. Values that are not
finite spread as in the definition.

    conv(x, w, b)   =>   winograd_conv(x, winograd_weights(w), w, b)       w constant, channels last

The stride is 1 or 2. Tiles have as many columns as rows or, for stride 1, half as many. The latter have fewer
transformed weights, which helps late layers, where all threads are memory-bound on the weights.

For dilated windows, the pixels of each phase form an image with windows without gaps. For 3-D convolutions,
the planes of a window become channels of images (see `planes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.algorithms.minimal_filtering.matching import filtering_core, plain_conv, planned_images
from dlc_core.algorithms.winograd.choice import PLANES, TILES, Layer, choose_form
from dlc_core.algorithms.winograd.errors import winograd_growth
from dlc_core.algorithms.winograd.op import CONV as TILED
from dlc_core.algorithms.winograd.op import WEIGHTS
from dlc_core.algorithms.winograd.planes import as_images
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node, const_array, rewrite
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.schedule.rules.cpu.core import FLOAT, Core
from dlc_core.support.record import record

RESHAPE, TRANSPOSE = OPS["reshape"], OPS["transpose"]


@record(frozen=True)
class Winograd(GraphPass):
    """Use Winograd's algorithm for 3 × 3 convolutions if cheaper, with tiles of `tiles` rows of results and
    as many columns or half as many. The empty tuple allows none.

    This is only for machines with vector cores, for which the cost model holds.
    """

    name: ClassVar[str] = "winograd"
    min_level: ClassVar[int] = 3
    exact: ClassVar[bool] = False
    tiles: tuple[int, ...] = TILES

    def __post_init__(self) -> None:
        if any(tile not in TILES for tile in self.tiles):
            raise UsageError(f"winograd with tiles of {self.tiles}", hint="tiles are 2 or 4")

    def run_function(self, function: Function, context: PassContext) -> Function:
        core = filtering_core(context)
        if core is None or not self.tiles:
            return function

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            return tiled(old, args) or volumes(old, args)

        def volumes(old: Node, args: tuple[Node, ...]) -> Node | None:
            flat = as_images(old, args)
            if flat is None:
                return None
            moved = flat.args[0].tensor_type
            single_tap = moved.shape[-1] == args[0].shape[-1]
            found = tiled(flat, flat.args, 0.0 if single_tap else _copy_cycles(moved, core))
            if found is None:
                # Only one tap in depth is inside of the input.
                is_view = single_tap and args[1].shape[0] != 1
                reasons = {
                    "volume": "one tap in depth is inside of the input: its planes are images",
                    "images": f"{moved} would be a copy of the input for each tap",
                }
                chosen = PLANES.choose(
                    "images" if is_view else "volume",
                    where=_kind_of(old),
                    refused=reasons.__getitem__,
                    spans=old.spans,
                )
                if chosen == "images":
                    found = flat
            return None if found is None else RESHAPE.build(found, shape=old.shape)

        def tiled(old: Node, args: tuple[Node, ...], copy_cycles: float = 0.0) -> Node | None:
            layer = _layer(old, core.lanes)
            if layer is None:
                return None
            steps = old.attrs["dilation"] or (1, 1)
            tile = choose_form(
                layer,
                _phases(layer, steps),
                self.tiles,
                core,
                lambda each: _growth(old, each, layer.stride),
                extra_cycles=copy_cycles + _phase_copy_cycles(args[0], old, steps, core),
                where=_kind_of(old),
                spans=old.spans,
            )
            if tile is None:
                return None
            attrs = {"tile": tile[0], "across": tile[1], "stride": layer.stride}
            weights = WEIGHTS.build(args[1], **attrs)
            padding = [p // steps[i % 2] for i, p in enumerate(old.attrs["padding"] or (0,) * 4)]
            x = _separate_phases(args[0], steps)
            made = TILED.build(x, weights, *args[1:], **attrs, padding=padding)
            return _interleave_phases(made, old, steps)

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)


def _kind_of(value: Node) -> str:
    """Return a text that identifies the kind of a convolution; equal kinds share decision and kernels."""
    return f"{value.args[0].shape} {value.args[1].shape} {dict(value.attrs)}"


def _growth(value: Node, tile: tuple[int, int], stride: int) -> float:
    """The rounding error of tiles with the weights of a convolution, relative to the direct sum."""
    w = const_array(value.args[1])
    return math.inf if w is None else winograd_growth(w, *tile, stride)


def _layer(value: Node, lanes: int) -> Layer | None:
    """The sizes of a convolution that tiles can compute; None for others.  Channels are whole vectors."""
    if not plain_conv(value) or tuple(value.args[1].shape[:2]) != (3, 3):
        return None
    steps = value.attrs["strides"] or (1, 1)
    if steps not in ((1, 1), (2, 2)):
        return None
    sizes: tuple[Dim, ...] = (*value.shape[1:3], value.args[0].shape[3], value.shape[3])
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) or known[2] % lanes or known[3] % lanes:
        return None
    down, across = value.attrs["dilation"] or (1, 1)
    if (down, across) != (1, 1) and steps != (1, 1):
        return None
    rows, columns = value.args[0].shape[1:3]
    padding = value.attrs["padding"] or (0,) * 4
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    if any(size % down for size in (rows, *padding[::2])) or any(
        size % across for size in (columns, *padding[1::2])
    ):
        return None
    height, width, inputs, outputs = known
    return Layer(planned_images(value.shape[0]), height, width, inputs, outputs, steps[0])


# Dilated windows: a result reads pixels of only one phase, so each phase is an independent image.


def _phases(layer: Layer, steps: Sequence[int]) -> Layer:
    down, across = steps
    batch = layer.batch * down * across
    return replace(layer, batch=batch, height=layer.height // down, width=layer.width // across)


def _phase_copy_cycles(x: Node, y: Node, steps: Sequence[int], core: Core) -> float:
    """Cycles to separate phases and to interleave their results."""
    if all(step == 1 for step in steps):
        return 0.0
    return sum(_copy_cycles(each.tensor_type, core) for each in (x, y))


def _copy_cycles(value: TensorType, core: Core) -> float:
    """Cycles to copy a tensor of known sizes."""
    elements = math.prod(size for size in value.shape if isinstance(size, int))
    return 2 * FLOAT * elements / core.bandwidth_beyond_l2


def _separate_phases(x: Node, steps: Sequence[int]) -> Node:
    """Separate the phases of [n, rows, columns, c] into images of one phase each."""
    if all(step == 1 for step in steps):
        return x
    n, rows, columns, channels = x.shape
    (down, across), high, wide = steps, rows // steps[0], columns // steps[1]
    split = RESHAPE.build(x, shape=(n, high, down, wide, across, channels))
    phases = TRANSPOSE.build(split, axes=(0, 2, 4, 1, 3, 5))
    return RESHAPE.build(phases, shape=(n * down * across, high, wide, channels))


def _interleave_phases(y: Node, old: Node, steps: Sequence[int]) -> Node:
    """Interleave the results of phases to the result of `old`."""
    if all(step == 1 for step in steps):
        return y
    n, rows, columns, channels = old.shape
    down, across = steps
    split = RESHAPE.build(y, shape=(n, down, across, rows // down, columns // across, channels))
    pixels = TRANSPOSE.build(split, axes=(0, 3, 1, 4, 2, 5))
    return RESHAPE.build(pixels, shape=old.shape)
