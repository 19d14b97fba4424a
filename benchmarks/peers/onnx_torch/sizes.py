"""Shapes and values computed from them, as integers: sizes need no tensors. Hand-written modules do the same,
and it prevents graph breaks of `torch.compile`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.peers.onnx_torch.ops import DTYPES, Node, record


@dataclass(frozen=True)
class Sizes:
    """A list of integers, or a single one. Those that depend on inputs are proxies of `torch.fx`."""

    items: Sequence[Any]
    single: bool = False

    @property
    def value(self) -> Any:
        return self.items[0] if self.single else list(self.items)

    def tensor(self) -> Any:
        """The value as a tensor, for operators on tensors."""
        return record(torch.tensor, self.value)


def as_sizes(value: Any) -> Sizes | None:
    """`Sizes` of a constant with at most one dimension, else None."""
    if isinstance(value, torch.Tensor) and value.dim() < 2 and value.dtype in (torch.int64, torch.bool):
        return Sizes(value.reshape(-1).tolist(), value.dim() == 0)
    return value if isinstance(value, Sizes) else None


def shape_of(node: Node, x: Any) -> Sizes:
    known = node.shapes[0]
    rank = node.rank()
    items = [x.shape[axis] if known is None or known[axis] is None else known[axis] for axis in range(rank)]
    return Sizes(items[node.get("start", 0) : node.get("end")])


def _of_two(function: Callable[..., Any]) -> Callable[..., Sizes]:
    def of_two(node: Node, a: Sizes, b: Sizes) -> Sizes:
        count = max(len(a.items), len(b.items))
        first, second = (list(each.items) * (count if len(each.items) == 1 else 1) for each in (a, b))
        return Sizes([record(function, x, y) for x, y in zip(first, second)], a.single and b.single)

    return of_two


def _where(node: Node, condition: Sizes, a: Sizes, b: Sizes) -> Sizes:
    count = max(len(each.items) for each in (condition, a, b))
    columns = [list(each.items) * (count if len(each.items) == 1 else 1) for each in (condition, a, b)]
    items = [record(_either, *row) for row in zip(*columns)]
    return Sizes(items, condition.single and a.single and b.single)


def _either(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def _divided(a: int, b: int) -> int:
    """Division towards zero."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _gather(node: Node, data: Sizes, indices: Sizes) -> Sizes:
    return Sizes([data.items[each] for each in indices.items], indices.single)


def _slice(node: Node, data: Sizes, *bounds: Sizes) -> Sizes:
    given = [each.items[0] for each in bounds]
    start, end = given[:2] or (node.get("starts")[0], node.get("ends")[0])
    return Sizes(data.items[start : end : given[3] if len(given) > 3 else 1])


def _concat(node: Node, *values: Sizes) -> Sizes:
    return Sizes([item for value in values for item in value.items])


def _product(node: Node, data: Sizes, axes: Sizes | None = None) -> Sizes:
    total = 1
    for each in data.items:
        total = total * each
    return Sizes([total], not node.get("keepdims", 1))


def _cast(node: Node, data: Sizes) -> Any:
    """A value that is not an integer any more becomes a tensor."""
    dtype = DTYPES[node.get("to")]
    return data if dtype in (torch.int64, torch.int32) else data.tensor().to(dtype)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Add": _of_two(operator.add), "Sub": _of_two(operator.sub), "Mul": _of_two(operator.mul),
    "Div": _of_two(_divided), "Max": _of_two(max), "Min": _of_two(min), "Equal": _of_two(operator.eq),
    "Where": _where, "Gather": _gather, "Slice": _slice, "Concat": _concat, "ReduceProd": _product,
    "Squeeze": lambda node, data, axes=None: Sizes(data.items, single=True),
    "Unsqueeze": lambda node, data, axes=None: Sizes(data.items),
    "Cast": _cast,
    "Identity": lambda node, data: data,
}  # fmt: skip
"""Operators on sizes, which occur between a Shape and a Reshape."""
