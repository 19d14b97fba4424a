"""Recognition of attention masks: the keys that they hide from each query."""

from __future__ import annotations

from math import isinf

import numpy as np

from dlc_core.graph.node import Node, const_array
from dlc_core.ir.types import Dim
from dlc_core.op.infer import simplify
from dlc_core.op.std import BY_NAME as OPS

ADD, SUB, WHERE, ARANGE, FULL = (OPS[name] for name in ("add", "sub", "where", "arange", "full"))
LESS, LESS_EQUAL = OPS["less"], OPS["less_equal"]
GREATER, GREATER_EQUAL = OPS["greater"], OPS["greater_equal"]
RESHAPE, BROADCAST, UNSQUEEZE, CAST = (OPS[name] for name in ("reshape", "broadcast_to", "unsqueeze", "cast"))

LOW = -1e30
"""A number below all scores that absorbs them: LOW + score rounds to LOW."""


def is_zero(value: Node) -> bool:
    """Whether a value is known to be 0."""
    if value.op is FULL:
        return bool(value.attrs["value"] == 0)
    array = const_array(value)
    return array is not None and not np.any(array)


def diagonal(mask: Node, scores: Node) -> tuple[Dim, bool] | None:
    """Match a causal mask, which hides exactly the keys after a diagonal; None for other masks.

    Returns the number of keys before that of the first query, and whether hidden keys have the score -inf.
    The mask is a constant, or selects by a constant or by a comparison of positions.
    """
    if mask.op is not WHERE:
        return _constant_diagonal(mask, scores)
    visible, shown, other = mask.args
    low = const_array(other)
    if low is None or low.size != 1 or not float(low.reshape(-1)[0]) <= LOW:
        return None
    if mask is not scores and not is_zero(shown):
        return None
    hard = isinf(float(low.reshape(-1)[0]))
    past = _compared(visible, scores)
    if past is None:
        fixed = _constant_diagonal(visible, scores)
        return None if fixed is None else (fixed[0], hard)
    # If a finite mask hides all keys of a query, softmax makes their weights equal, and hides none.
    return (past, hard) if hard or (isinstance(past, int) and past >= 0) else None


def _constant_diagonal(mask: Node, scores: Node) -> tuple[int, bool] | None:
    rows, columns = scores.shape[-2:]
    array = const_array(mask)
    if array is None or array.ndim < 2 or array.shape[-2:] != (rows, columns) or array.size != rows * columns:
        return None
    plain = array.reshape(rows, columns)
    visible = plain if plain.dtype == bool else plain == 0
    hidden = np.zeros(0) if plain.dtype == bool else plain[~visible].astype(np.float64)
    if not np.all(hidden <= LOW):
        return None
    past = int(np.sum(visible[0])) - 1
    expected = np.arange(columns) <= np.arange(rows)[:, None] + past
    return (past, bool(np.all(np.isinf(hidden)))) if past >= 0 and np.array_equal(visible, expected) else None


def _compared(visible: Node, scores: Node) -> Dim | None:
    """The `past` of a comparison of positions by which query i sees the keys j <= i + past; else None."""
    if visible.op not in (LESS, LESS_EQUAL, GREATER, GREATER_EQUAL) or any(
        d != 1 for d in visible.shape[:-2]
    ):
        return None
    if visible.shape[-2:] != scores.shape[-2:]:
        return None
    left, right = visible.args if visible.op in (LESS, LESS_EQUAL) else visible.args[::-1]
    key, query = _positions(left), _positions(right)
    if key is None or query is None or key[0] != 1 or query[0] != 2:
        return None
    return simplify(query[1] - key[1] - (1 if visible.op in (LESS, GREATER) else 0))


def _positions(value: Node) -> tuple[int, Dim] | None:
    """Match integers that count up by one along an axis: (the axis, 1 for the last; the first integer)."""
    if value.op is ARANGE:
        counts_by_one = value.dtype.is_int and value.attrs["step"] == 1
        return (1, value.attrs["start"]) if counts_by_one else None
    if value.op in (ADD, SUB):
        inside, number = value.args
        array = const_array(number)
        found = _positions(inside) if array is not None and array.size == 1 else None
        if found is None or array is None or inside.type != value.type:
            return None
        step = int(array.reshape(-1)[0])
        return found[0], simplify(found[1] + (step if value.op is ADD else -step))
    if value.op in (CAST, BROADCAST) and value.dtype.is_int:
        return _positions(value.args[0])
    if value.op not in (RESHAPE, UNSQUEEZE):
        return None
    found = _positions(value.args[0])
    wide = [i for i, d in enumerate(reversed(value.shape), 1) if d != 1]
    inner = [d for d in value.args[0].shape if d != 1]
    return (wide[0], found[1]) if found is not None and len(wide) == len(inner) == 1 else None


__all__ = ["LOW", "diagonal", "is_zero"]
