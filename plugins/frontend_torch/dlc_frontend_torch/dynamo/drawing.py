"""Random numbers of a graph: `Draw`. torch draws them, before the compiled code runs.

So a compiled model takes the same numbers from torch's generator as eager, and gets the same dropout masks.
The operators read only the shapes of their operands, thus none of the graph's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dlc_frontend_torch.dynamo.sizes import Sizes


class Draw:
    """Calls a random operator. `sizes` finds the sizes of a call."""

    def __init__(self, node: Any, sizes: Sizes) -> None:
        dropout = node.target is torch.ops.aten.native_dropout.default
        self._target, self._sizes = _mask if dropout else node.target, sizes
        self._args, self._kwargs = node.args, node.kwargs

    def __call__(self, arguments: Sequence[Any]) -> torch.Tensor:
        """The numbers for a call of the graph with these arguments, contiguous."""
        args = [self._value(each, arguments) for each in self._args]
        kwargs = {name: self._value(each, arguments) for name, each in self._kwargs.items()}
        drawn: torch.Tensor = self._target(*args, **kwargs)
        return drawn.contiguous()

    def _value(self, given: Any, arguments: Sequence[Any]) -> Any:
        if isinstance(given, torch.fx.Node):
            return self._value(given.meta["val"], arguments)
        if isinstance(given, torch.Tensor):
            # Numbers are drawn in the order of the memory.
            size = [self._sizes.value(each, arguments) for each in given.shape]
            stride = [self._sizes.value(each, arguments) for each in given.stride()]
            return torch.empty_strided(size, stride, dtype=given.dtype)
        if isinstance(given, (list, tuple)):
            return [self._value(each, arguments) for each in given]
        return self._sizes.value(given, arguments) if isinstance(given, torch.SymInt) else given


def _mask(x: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:
    """The mask of dropout, drawn as eager's dropout does."""
    del train
    return torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p)


__all__ = ["Draw"]
