"""`dlc.quantize`: load a model, fold constants, record ranges on data, insert quantize and dequantize."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.driver import compile as compile_module
from dlc_core.driver import load
from dlc_core.graph.node import Function, make_tuple
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.graph import (
    ExpandComposites,
    FoldBatchNorm,
    FoldConstants,
    FoldScaleAxis,
    Infer,
    Recompose,
    Simplify,
)
from dlc_core.quantization.insert import quantized_args, quantized_function
from dlc_core.quantization.ranges import METHODS, NDArray, ranges_of

ACTIVATIONS = ("uint8", "int8")
PREPARED = Pipeline(
    (Infer(), Simplify(), FoldConstants(), Recompose(), ExpandComposites(), FoldBatchNorm(), Simplify(),
     FoldConstants(), FoldScaleAxis())
)  # fmt: skip
"""Passes before calibration: batch norms are folded into weights, and ops are simplified."""


def quantize(
    model: Any,
    calibration: Iterable[Any],
    *,
    method: str = "minmax",
    percentile: float = 99.99,
    activations: str = "uint8",
    per_channel: bool = True,
    skip: Sequence[str] = (),
    target: Any = None,
    shapes: Mapping[str, Any] | None = None,
    frontend: str | None = None,
) -> IRModule:
    """The model with convolutions and products by constant weights quantized to bytes, as a module to
    compile.

    `model` is an argument of `dlc.compile`.  `calibration` are representative inputs: each is an array (if
    the model has one input), a sequence of arrays, or a dict by name.  `method` chooses the range of an
    activation: all elements ("minmax"), all but the rarest ("percentile"), or the range with the least mean
    squared error ("mse").  `activations` are "uint8" with a zero point or "int8" without; weights are int8
    without, with one scale for each output channel (`per_channel`) or one for all.  `skip` names model nodes
    that stay in floats. Calibration runs on `target`, by default this machine.

    Raises UsageError if the data does not fit, if there is no data, and if nothing can be quantized.
    """
    for value, choices, what in ((method, METHODS, "method"), (activations, ACTIVATIONS, "activations")):
        if value not in choices:
            raise UsageError(f"{what} {value!r}", hint=f"one of {', '.join(choices)}")
    if not 0.0 < percentile <= 100.0:
        raise UsageError(f"percentile {percentile}", hint="a number above 0, up to 100")
    module = PREPARED.run(load(model, frontend=frontend, shapes=shapes), PassContext())
    entry = module[module.entry]
    if not isinstance(entry, Function):
        raise UsageError("only graphs can be quantized", why=f"{module.entry!r} is not a graph")
    positions = quantized_args(entry, skip)
    if not positions:
        raise UsageError("there is nothing to quantize", why="no product by constant weights in float32")
    values = list(dict.fromkeys(old.args[position] for old, args in positions.items() for position in args))
    observed = Function(entry.name, entry.params, make_tuple(values), {"inputs": _names(entry)})
    exe = compile_module(module.with_function(module.entry, observed), target, cache=False)
    data = [_in_order(item, exe.inputs) for item in calibration]
    if not data:
        raise UsageError("no calibration data", hint="give some representative inputs")

    def run() -> Iterator[Sequence[NDArray]]:
        for item in data:
            found = exe(*item)
            yield [np.asarray(array) for array in (found if isinstance(found, tuple) else (found,))]

    ranges = dict(zip(values, ranges_of((run(), run()), len(values), method, percentile), strict=True))
    made = quantized_function(entry, positions, ranges, activations, per_channel)
    return module.with_function(module.entry, made)


def _names(entry: Function) -> tuple[str, ...]:
    return tuple(entry.attrs.get("inputs") or (p.attrs["name"] for p in entry.params))


def _in_order(item: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """One item of the data as arrays in the order of the inputs."""
    names = [value.name for value in inputs]
    if isinstance(item, Mapping):
        if set(item) != set(names):
            raise UsageError(f"calibration data for {', '.join(item)}", hint=f"inputs: {', '.join(names)}")
        return tuple(item[name] for name in names)
    arrays = tuple(item) if isinstance(item, (tuple, list)) else (item,)
    if len(arrays) != len(names):
        raise UsageError(f"{len(arrays)} arrays for {len(names)} inputs", hint=f"inputs: {', '.join(names)}")
    return arrays


__all__ = ["quantize"]
