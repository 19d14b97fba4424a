"""OpInfo samples as functions of tensors: `Case`, `cases`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from dlc_core.support.record import record

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "bool")
COMPLEX_DTYPES = ("complex64", "complex128")
"""dtypes whose samples count in no score, but can be judged too."""
SEED = 0


@record(frozen=True)
class Case:
    """One sample: `function` of `tensors`, which returns what the operator returns."""

    index: int
    dtype: str
    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]


def operators() -> dict[str, Any]:
    """The OpInfos by name. A variant's name follows a dot: "div.floor_rounding"."""
    from torch.testing._internal import common_methods_invocations as invocations

    # torch.compile does not capture setting a seed. The caller of a sample sets it.
    invocations.wrapper_set_seed = _called
    return {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in invocations.op_db}


def _called(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def cases(info: Any, dtype: str, limit: int | None, *, gradients: bool = False) -> Iterator[Case]:
    """At most `limit` samples of an OpInfo, spread evenly over all of them; the same ones in each run.

    With `gradients`, floating tensors of the samples require gradients.
    """
    kind = getattr(torch, dtype)
    supported = info.supported_backward_dtypes("cpu") if gradients else info.supported_dtypes("cpu")
    if kind not in supported or (gradients and not (info.supports_autograd and kind.is_floating_point)):
        return
    _seed()
    samples = list(info.sample_inputs("cpu", kind, requires_grad=gradients))
    for index in _spread(len(samples), limit):
        sample = samples[index]
        leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        function = _function(info.op, leaves, spec, places)
        yield Case(index, dtype, function, tuple(leaves[place] for place in places))


def _seed() -> None:
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    random.seed(SEED)


def _spread(count: int, limit: int | None) -> Sequence[int]:
    if limit is None or count <= limit:
        return range(count)
    return [number * count // limit for number in range(limit)]


def _function(op: Any, leaves: Sequence[Any], spec: Any, places: Sequence[int]) -> Callable[..., Any]:
    def call(*tensors: Any) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(given, spec)
        return op(first, *args, **kwargs)

    return call


__all__ = ["COMPLEX_DTYPES", "DTYPES", "Case", "cases", "operators"]
