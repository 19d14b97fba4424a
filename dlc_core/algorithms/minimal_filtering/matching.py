"""Common conditions of the passes for minimal filtering on machines and convolutions."""

from __future__ import annotations

from dlc_core.graph.node import CONST, Node
from dlc_core.ir.expr import as_expr, const_value
from dlc_core.ir.types import Dim
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import PassContext
from dlc_core.passes.graph.mixed_precision import lowers_activations
from dlc_core.schedule.rules.cpu.core import Core

CONV = OPS["conv"]


def filtering_core(context: PassContext) -> Core | None:
    """The core for the cost model.

    None on machines without vectors, with thread axes or with matrix units of float32, for which the cost
    model does not hold.  Also None if activations become narrow: direct products are as fast then, and
    transforms would round again.
    """
    if context.target is None:
        return None
    machine = context.target.describe()
    if not machine.multiplies_in_vectors or lowers_activations(context):
        return None
    return Core.of(machine, machine.workers)


def plain_conv(value: Node) -> bool:
    """Whether a node is an ungrouped float32 convolution of images with constant windows, channels last."""
    if value.op is not CONV or value.args[1].op is not CONST or value.dtype.name != "float32":
        return False
    attrs = value.attrs
    wide = attrs["out_dtype"] is None or attrs["out_dtype"].name == "float32"
    last = attrs["layout"] == "NXC" and attrs["kernel_layout"] == "XIO"
    return wide and last and attrs["groups"] == 1 and len(value.args[1].shape) == 4


def planned_images(batch: Dim) -> int:
    """The number of images for which plans are made: one if the batch is symbolic."""
    known = const_value(as_expr(batch))
    return 1 if known is None else int(known)


__all__ = ["CONV", "filtering_core", "plain_conv", "planned_images"]
