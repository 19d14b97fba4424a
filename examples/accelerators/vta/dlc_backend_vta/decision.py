"""The schedule of a layer as a decision of the compiler: forced by users, tried and recorded by tuners.

The candidates are the best schedules by the cycle model, the fastest first. A tuner tries them in this order
with the whole model, and its records name the option of each layer. Such a record holds for all layers of the
same shape on the same machine.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from dlc_backend_vta.config import Config
from dlc_backend_vta.layers import Layer
from dlc_backend_vta.search import candidates, shape_of
from dlc_backend_vta.tiling import RESIDENT, Plan
from dlc_core.decisions import Decision

TILING = Decision(
    "vta.tiling",
    "The tile sizes of a layer, the operand that stays on the chip, and double buffering.",
    RESIDENT,
    has_values=True,
    recordable=True,
)


def decide(layer: Layer, config: Config) -> Plan:
    """The schedule of a layer: the best one by the cycle model, unless another is forced or recorded.

    Raises UnsupportedError where none fits.
    """
    listed = candidates(layer, config)
    cycles = {plan.tiling: cost for plan, cost in listed}
    tiling = TILING.pick(
        listed[0][0].tiling,
        lambda: list(cycles),
        lambda one: one.resident,
        lambda one: one.label,
        where=subject(layer),
        cost=lambda one: cycles[one],
    )
    return Plan(layer, tiling, config)


def subject(layer: Layer) -> str:
    """Names all that the cycles of a layer depend on besides the machine: its sizes, and a hash of the rest.

    The numbers that its steps compute with, and where constants lie, are no part of it.
    """
    vectors = None if layer.vectors is None else replace(layer.vectors, base=0, offset=0)
    weights = None if layer.weights is None else replace(layer.weights, base=0, offset=0)
    steps = tuple(replace(step, first=0, second=0) for step in layer.steps)
    shape = replace(shape_of(layer), vectors=vectors, weights=weights, steps=steps, fill=0)
    sizes = f"{layer.images}x{layer.channels}x{layer.rows}x{layer.columns}"
    taps = "x".join(map(str, layer.kernel))
    return f"{layer.kind}-{sizes}-of-{layer.inputs}x{taps}-{sha256(repr(shape).encode()).hexdigest()[:12]}"


__all__ = ["TILING", "decide", "subject"]
