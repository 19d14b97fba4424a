"""Models for level 3 of the conformance kit, given by the core and by plugins through the hook `dlc_models`.

    @hookimpl
    def dlc_models():
        return [Models("npu-zoo", load_cases, slow=True)]      # load_cases() returns Cases

A plugin's cases are named after the group, `models/npu-zoo/<case>`, and made on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dlc_core.graph.node import Function
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import NDArray
from dlc_core.op.reference import evaluate
from dlc_core.plugin.registry import registry
from dlc_core.target import COMPUTED, Target
from dlc_core.testing.blocks import BLOCKS
from dlc_core.testing.cases import Case, Tolerance, Trial, outputs_of
from dlc_core.testing.networks import NETWORKS, mobilenet

TOLERANCES: dict[str, Tolerance] = {
    "float32": (1e-3, 1e-4),
    "float64": (1e-10, 1e-11),
    "float16": (3e-2, 1e-2),
    "bfloat16": (6e-2, 4e-2),
}
"""(rtol, atol) of results of magnitude one, after dozens of layers."""


@dataclass(frozen=True)
class Models:
    """A group of models with inputs and expected outputs.

    `cases` returns them. Their names become `models/<name>/<case>`, or `models/<name>` for a case with an
    empty name. `slow` models run only in the slow tests. `dtype` is the dtype of their arithmetic, which a
    target may not support.
    """

    name: str
    cases: Callable[[], Iterable[Case]]
    slow: bool = False
    dtype: str = ""

    def named(self) -> Iterator[Case]:
        """The cases under the kit's names."""
        for case in self.cases():
            yield replace(case, name=f"models/{self.name}/{case.name}".rstrip("/"))

    def is_for(self, target: Target) -> bool:
        """Whether the target computes in the models' dtype."""
        return not self.dtype or self.dtype in (target.describe().dtypes or COMPUTED)


def _case(make: Callable[[], IRModule]) -> Iterator[Case]:
    """The case of a network: random inputs, and the results of the ops' references."""
    with np.errstate(over="ignore"):  # mask values exceed the largest narrow float
        module = make()
    function: Function = module["main"]
    feeds = inputs_for(function)
    with np.errstate(all="ignore"):
        expected = outputs_of(evaluate(function, dict(zip(function.params, feeds, strict=True))))
    yield Case("", module, [Trial(feeds, expected)], TOLERANCES)


def inputs_for(function: Function, seed: int = 1) -> list[NDArray]:
    """Normal floats and small indices for the inputs of a network."""
    rng = np.random.default_rng(seed)
    drawn = []
    for param in function.params:
        assert isinstance(param.type, TensorType)
        shape, kind = param.type.static_shape(), param.type.dtype
        values = rng.standard_normal(shape) if kind.is_float else rng.integers(0, 50, shape)
        drawn.append(values.astype(kind.numpy))
    return drawn


def _all() -> Iterator[Models]:
    for name, block in BLOCKS.items():
        for dtype in TOLERANCES:
            yield Models(f"{name}/{dtype}", partial(_case, partial(block, dtype)), dtype != "float32", dtype)
    networks: dict[str, Callable[[], IRModule]] = {**NETWORKS, "mobilenet": partial(mobilenet, 64)}
    for name, network in networks.items():
        yield Models(f"micro-{name}/float32", partial(_case, network), name != "keywords", "float32")


MODELS: Sequence[Models] = tuple(_all())
"""The models of the core."""


def all_models() -> dict[str, Models]:
    """The groups of the core and of all plugins, by name."""
    return {group.name: group for group in (*MODELS, *registry().models.values())}


__all__ = ["MODELS", "TOLERANCES", "Models", "all_models", "inputs_for"]
