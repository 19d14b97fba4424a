"""Random numbers: uniform, normal, Bernoulli, multinomial.

With the attribute `seed` the numbers equal those of ONNX's reference implementation (see the op `random`).
Without it every call draws different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter


def _seed(c: Call) -> int | None:
    given = c.real("seed", None)
    if given is None or given != given:
        return None
    if not 0 <= given < 1 << 32:
        raise c.unsupported(f"the seed {given}", hint="seeds are from 0 to 2**32 - 1")
    return int(given)


def draw(
    c: Call, shape: Sequence[Dim], dtype: DType | str, distribution: str = "uniform", **bounds: float
) -> Node:
    """Random numbers of a distribution, by the node's seed if it has one."""
    return std.random(
        shape=tuple(shape), distribution=distribution, seed=_seed(c), instance=c.draw(), dtype=dtype, **bounds
    )


def _random(c: Call, shape: Sequence[Dim], dtype: DType) -> Node:
    distribution = "uniform" if "Uniform" in c.node.op else "normal"
    names = {"uniform": (("low", 0.0), ("high", 1.0)), "normal": (("mean", 0.0), ("scale", 1.0))}[
        distribution
    ]
    a, b = (c.real(name, default) for name, default in names)
    return draw(c, shape, dtype, distribution, a=a, b=b)


@converter("RandomUniform RandomNormal", 1)
def random(c: Call) -> Node:
    return _random(c, c.integers("shape"), c.dtype("dtype", None) or DType("float32"))


@converter("RandomUniformLike RandomNormalLike", 1)
def random_like(c: Call, x: Node) -> Node:
    return _random(c, x.shape, c.dtype("dtype", None) or x.dtype)


@converter("Bernoulli", 15)
def bernoulli(c: Call, chances: Node) -> Node:
    to: Any = c.dtype("dtype", None) or chances.dtype
    return c.cast(std.less(draw(c, chances.shape, "float64"), c.cast(chances, "float64")), to)


@converter("Multinomial", 7)
def multinomial(c: Call, logits: Node) -> Node:
    """Classes by unnormalized log probabilities: the number of cumulative sums that a draw is not below."""
    count, to = c.integer("sample_size", 1), c.dtype("dtype", None) or DType("int32")
    if len(logits.shape) != 2 or count < 0 or not to.is_int:
        raise c.error(f"{count} samples of {to} from {logits.type}")
    below = std.cumsum(std.softmax(c.cast(logits, "float64"), axis=-1), axis=1)
    drawn = draw(c, (logits.shape[0], count), "float64")
    passed = std.greater_equal(std.unsqueeze(drawn, axes=(2,)), std.unsqueeze(below, axes=(1,)))
    found = std.reduce_sum(c.cast(passed, "int64"), axes=(2,))
    # The last cumulative sum may be slightly less than 1.
    return c.cast(std.minimum(found, c.dims_tensor((logits.shape[1] - 1,))), to)
