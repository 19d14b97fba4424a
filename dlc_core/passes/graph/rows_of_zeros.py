"""Whether a graph makes whole rows of zeros: borders of windows, tokens that are masked.

A product's rows that are exactly 0 by their definition are rounding of other rows where sums of rows are
multiplied.  What is divided by its own length afterwards turns that into numbers of any size.
"""

from __future__ import annotations

import numpy as np

from dlc_core.graph.node import Node, const_array
from dlc_core.passes.graph.grouping import MOVES, VIEWS

MOVED = MOVES | VIEWS | {"concat", "gather"}
FACTORS = VIEWS | {"cast", "broadcast_to"}


def has_rows_of_zeros(value: Node) -> bool:
    """Whether it is known that rows of a value may be 0 though those of the function's inputs are not."""
    seen: set[Node] = set()
    left = [value]
    while left:
        x = left.pop()
        if x in seen or not x.args:
            continue
        seen.add(x)
        name = x.op.name
        if name == "pad" or (name == "where" and any(map(_is_zero, x.args[1:]))):
            return True
        if name == "mul" and any(map(_is_mask, x.args)):
            return True
        if name == "concat" and any(map(_is_zero, x.args)):
            return True
        if name in MOVED:
            left += x.args if name == "concat" else x.args[:1]
    return False


def _is_zero(x: Node) -> bool:
    found = const_array(x)
    return found is not None and not np.asarray(found).any()


def _is_mask(x: Node) -> bool:
    """Whether a factor of whole rows is made of what is true or false, or of integers."""
    if not x.shape or x.shape[-1] != 1:
        return False
    while x.op.name in FACTORS and x.args:
        if x.op.name == "cast" and not x.args[0].dtype.is_float:
            return True
        x = x.args[0]
    return False


__all__ = ["has_rows_of_zeros"]
