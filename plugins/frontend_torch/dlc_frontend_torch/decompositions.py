"""Decompositions: which operators of torch are converted as they are, and which by simpler ones.

torch.export and AOT autograd decompose operators to the Core ATen set. Operators with a converter of their
own are kept whole where that makes better kernels (attention, normalization, activations).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from dlc_frontend_torch import aten as _converters  # registers them
from dlc_frontend_torch.decomposed import DECOMPOSED
from dlc_frontend_torch.random_ops import DRAWN
from dlc_frontend_torch.registry import CONVERTERS

assert _converters

FURTHER = (
    torch.ops.aten.grid_sampler_2d.default,
    torch.ops.aten.batch_norm_backward.default,
    torch.ops.aten.rrelu_with_noise_backward.default,
)
"""Operators without a converter that torch can decompose, and that its table for Core ATen lacks."""


def for_export(custom: Container[str] = ()) -> Any:
    """The table for `ExportedProgram.run_decompositions`. Composite operators with a converter, and the
    `custom` ones, are kept.
    """
    table = torch.export.default_decompositions()
    table.update({**get_decompositions(FURTHER), **DECOMPOSED})
    for operator in list(table.keys()):
        if _name(operator) in CONVERTERS or _name(operator) in custom:
            table.pop(operator)
    return table


def for_autograd() -> dict[Any, Callable[..., Any]]:
    """The table for AOT autograd. Composite operators are decomposed before it is consulted."""
    kept = {*CONVERTERS, *DRAWN}  # random numbers are those of torch, in its order
    return {op: rule for op, (name, rule) in _core().items() if name not in kept}


@cache
def _core() -> dict[Any, tuple[str, Callable[..., Any]]]:
    """torch's decompositions with the operators' names. torch takes long to collect them."""
    table = {**core_aten_decompositions(), **get_decompositions(FURTHER), **DECOMPOSED}
    return {op: (_name(op), rule) for op, rule in table.items()}


def _name(operator: Any) -> str:
    text = str(operator)
    return text if text.count(".") == 2 else f"{text}.default"


__all__ = ["for_autograd", "for_export"]
