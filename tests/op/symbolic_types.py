"""Types of samples with symbolic dims in place of some sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dlc_core.ir.expr import Var
from dlc_core.ir.types import Dim, TensorType


def symbolic(
    types: Sequence[TensorType], rng: random.Random, keep_ones: bool = False
) -> tuple[list[TensorType], dict[Var, int]]:
    """The types with symbolic dims in place of some sizes, and the sizes of these dims.

    Equal sizes may become one dim.  With `keep_ones` sizes of 1, which broadcast, stay.
    """
    result: list[TensorType] = []
    sizes: dict[Var, int] = {}
    for type_ in types:
        shape: list[Dim] = []
        for size in type_.shape:
            same = [v for v, n in sizes.items() if n == size]
            if (keep_ones and size == 1) or rng.random() < 0.35:
                shape.append(size)
            elif same and rng.random() < 0.4:
                shape.append(rng.choice(same))
            else:
                fresh = Var(f"d{len(sizes)}")
                shape.append(fresh)
                sizes[fresh] = size
        result.append(TensorType(tuple(shape), type_.dtype))
    return result, sizes


__all__ = ["symbolic"]
