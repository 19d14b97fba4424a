"""winograd: convolutions of 3 × 3 windows computed by tiles, where the target's description says it pays.

Law: results stay within tolerance; with tiles of 4 the root mean square error grows about four times.

    conv(x, w, b)   =>   winograd_conv(x, winograd_weights(w), b)       w constant, stride 1, channels last
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dlc_core.diag import UsageError
from dlc_core.graph.node import CONST, Function, Node, rewrite
from dlc_core.ir.types import Dim
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.mixed_precision import lowers_activations
from dlc_core.schedule.rules.cpu.winograd_plan import Core, Layer, direct_cycles, plan

CONV, WEIGHTS, TILED = (OPS[name] for name in ("conv", "winograd_weights", "winograd_conv"))
TILES = (2, 4)
GAIN = 0.9
"""Part of the direct convolution's cost that tiles must stay below to be worth the rounding."""


@dataclass(frozen=True)
class Winograd(GraphPass):
    """3 × 3 convolutions by tiles of `tiles` × `tiles` results, where cheaper; the empty tuple: none.

    Only for machines whose loops run on cores with vectors: what is known of costs is known of these.
    """

    name: ClassVar[str] = "winograd"
    place: ClassVar[tuple[float, ...]] = (720,)
    min_level: ClassVar[int] = 3
    exact: ClassVar[bool] = False
    tiles: tuple[int, ...] = TILES

    def __post_init__(self) -> None:
        if any(tile not in TILES for tile in self.tiles):
            raise UsageError(f"winograd with tiles of {self.tiles}", hint="tiles are 2 or 4")

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None:
            return function
        machine = context.target.describe()
        lanes = machine.lanes(32)
        # Of narrow elements the products are as fast, and transforms would round once more.
        if lanes < 2 or machine.thread_axes or not self.tiles or lowers_activations(context):
            return function
        threads = machine.cores if machine.parallel else 1
        core = Core(lanes, machine.usable_registers, machine.caches, threads)

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            layer = _layer(old, lanes)
            if layer is None:
                return None
            best = min((plan(layer, tile, core) for tile in self.tiles), key=lambda found: found.cycles)
            if best.cycles > GAIN * direct_cycles(layer, core):
                return None
            weights = WEIGHTS.build(args[1], tile=best.tile)
            return TILED.build(args[0], weights, *args[2:], tile=best.tile, padding=old.attrs["padding"])

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)


def _layer(value: Node, lanes: int) -> Layer | None:
    """The sizes of a convolution that tiles can compute, in whole vectors of channels."""
    if value.op is not CONV or value.args[1].op is not CONST or value.dtype.name != "float32":
        return None
    attrs, kernel = value.attrs, value.args[1].shape
    plain = all(_is_one(attrs, name) for name in ("strides", "dilation")) and attrs["groups"] == 1
    last = attrs["layout"] == "NXC" and attrs["kernel_layout"] == "XIO"
    wide = attrs["out_dtype"] is None or attrs["out_dtype"].name == "float32"
    if not (plain and last and wide) or len(kernel) != 4 or tuple(kernel[:2]) != (3, 3):
        return None
    sizes: tuple[Dim, ...] = (*value.shape[:3], value.args[0].shape[3], value.shape[3])
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) or known[3] % lanes or known[4] % lanes:
        return None
    return Layer(*known)


def _is_one(attrs: Mapping[str, Any], name: str) -> bool:
    return attrs[name] is None or all(v == 1 for v in attrs[name])
