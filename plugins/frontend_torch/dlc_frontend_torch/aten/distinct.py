"""Distinct elements and slices, in ascending order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.graph.node import Node, get_item
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_frontend_torch.aten.indexing import fresh
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

FLAGS = ("sorted", "return_inverse", "return_counts")
"""The last arguments of the operators, in order. The results are ascending, whatever `sorted` is, as torch's
are on the CPU.
"""


@aten("_unique _unique2")
def unique(c: Call, x: Node, *given: bool, **named: bool) -> list[Node]:
    """The elements, and as far as asked for the number of each element of x, and the counts. NaNs are all
    different, as slices with NaN are in dlc.
    """
    values, *more = _found(c, c.reshape(x, (product(x.shape), 1)), 0, _flags(given, named))
    return [c.reshape(values, c.symbols.shape(c.value[0].shape)), *more]


@aten("unique_dim")
def unique_dim(c: Call, x: Node, dim: int, *given: bool, **named: bool) -> list[Node]:
    """The slices along a dim, and the results after them as for elements."""
    return _found(c, x, c.axis(dim, len(x.shape)), _flags(given, named))


def _flags(given: Sequence[bool], named: Mapping[str, bool]) -> list[bool]:
    """Whether the numbers of elements, and the counts, are wanted."""
    flags = {**dict(zip(FLAGS, given, strict=False)), **named}
    return [flags.get(name, False) for name in FLAGS[1:]]


def _found(c: Call, x: Node, axis: int, wanted: Sequence[bool]) -> list[Node]:
    """The distinct slices along an axis, and the results after it as far as they are wanted."""
    shapes = [c.symbols.shape(each.shape) for each in c.value]
    if 0 in x.shape:
        return [c.full(shape, 0, c.dtype_of(each)) for shape, each in zip(shapes, c.value, strict=True)]
    made = std.unique(x, count=fresh(c, c.value[0].shape[axis if len(shapes[0]) > 1 else 0]), axis=axis)
    values, _, inverse, counts = (get_item(made, place) for place in range(4))
    more = [
        c.reshape(each, shape) if kept else c.full(shape, 0, "int64")
        for each, kept, shape in zip((inverse, counts), wanted, shapes[1:], strict=False)
    ]
    return [values, *more]
