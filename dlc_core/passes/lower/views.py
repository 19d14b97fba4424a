"""Views: nodes that are other names of the same bytes and free at run time, and nodes that determine where
others write."""

from __future__ import annotations

from dlc_core.graph.node import CALL_PRIM, GET, TUPLE, Node
from dlc_core.ir.types import TensorType, TupleType
from dlc_core.op.std.bands import BAND, JOIN_BANDS, band_offset, join_offsets

VIEW_OPS = frozenset({"reshape", "squeeze", "unsqueeze", "flatten"})
"""Ops that give another shape to the same elements in the same order."""


def is_view(n: Node) -> bool:
    """Whether a node's value shares the memory of its first argument or of its fields."""
    return n.op in (TUPLE, GET) or n.op.name in VIEW_OPS


def has_offset(n: Node, align: int) -> bool:
    """Whether a band is read in place, or the parts of a concatenation are computed in place.

    Each must begin at a multiple of `align` bytes. Each part of a concatenation must have its own kernel.
    """
    if n.op is BAND:
        offset = band_offset(n)
        return offset is not None and offset * n.dtype.itemsize % align == 0
    if n.op is not JOIN_BANDS:
        return False
    offsets = join_offsets(n)
    if offsets is None or any(offset * n.dtype.itemsize % align for offset in offsets):
        return False
    return len(set(n.args)) == len(n.args) and all(arg.op is CALL_PRIM for arg in n.args)


def origin(value: Node, index: int = 0) -> tuple[Node, int]:
    """Return the kernel output, parameter or constant that holds output `index` of a value."""
    while True:
        if value.op is GET:
            value, index = value.args[0], value.attrs["index"]
        elif value.op is TUPLE:
            value, index = value.args[index], 0
        elif is_view(value):
            value, index = value.args[0], 0
        else:
            return value, index


def result_types(n: Node) -> tuple[TensorType, ...]:
    """Return the tensor types of a node, one for each output."""
    if isinstance(n.type, TupleType):
        return tuple(f for f in n.type.fields if isinstance(f, TensorType))
    return (n.tensor_type,)
