"""Counts of n-grams: TfIdfVectorizer on numbers, and on strings by their indices in the pool."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import STRING
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter

MAX_COLUMNS = 1 << 24
Grams: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


def _pools(c: Call, flat: Sequence[int]) -> list[tuple[int, Grams, Sequence[int]]]:
    """For each wanted n: n, the n-grams [count, n], and the columns of the result that count them."""
    begins, columns = [*c.integers("ngram_counts"), len(flat)], c.integers("ngram_indexes")
    least, most = c.integer("min_gram_length"), c.integer("max_gram_length")
    pools = []
    done = 0
    for n, (begin, end) in enumerate(itertools.pairwise(begins), 1):
        count = (end - begin) // n
        if not 0 <= begin <= end <= len(flat) or done + count > len(columns):
            raise c.error(f"the pool of {n}-grams from {begin} to {end} does not fit the attributes")
        if count and least <= n <= most:
            grams = np.asarray(flat[begin : begin + count * n], np.int64).reshape(count, n)
            pools.append((n, grams, columns[done : done + count]))
        done += count
    return pools


def _count(c: Call, rows: Node, grams: Grams, skip: int) -> Node | None:
    """Count each n-gram in each row, with items `skip` apart; None if rows are too short."""
    size, n = rows.shape[1], grams.shape[1]
    if isinstance(size, int):
        positions: Dim = size - (n - 1) * skip
        if positions < 1:
            return None
    else:
        # Pad symbolic rows with a value that no n-gram contains.
        positions, other = size, next(k for k in range(grams.size + 1) if k not in grams)
        rows = std.pad(rows, pads=(0, 0, 0, (n - 1) * skip), value=float(other)) if n > 1 else rows
    same: Node | None = None
    for item in range(n):
        begin = item * skip
        part = std.slice(rows, begins=(begin,), ends=(begin + positions,), axes=(1,))
        here = std.equal(std.unsqueeze(part, axes=(2,)), c.const(grams[:, item], rows.dtype))
        same = here if same is None else std.logical_and(same, here)
    assert same is not None
    return std.reduce_sum(c.cast(same, "float32"), axes=(1,))


@converter("TfIdfVectorizer", 9)
def tf_idf_vectorizer(c: Call, x: Node) -> Node:
    mode, skips = c.choice("mode", "", ("TF", "IDF", "TFIDF")), c.integer("max_skip_count")
    indexes = c.integers("ngram_indexes")
    if len(x.shape) > 2 or not indexes or min(indexes) < 0 or skips < 0:
        raise c.error(f"n-grams of {x.type} at {indexes} with {skips} skips")
    rows = std.reshape(x, shape=(1, -1)) if len(x.shape) < 2 else x
    texts = c.texts("pool_strings", None)
    flat = c.integers("pool_int64s") if texts is None else []
    if (texts is None) is (x.dtype is STRING):
        raise c.error(f"n-grams of {x.type} in a pool of {'numbers' if texts is None else 'texts'}")
    if texts is not None:
        rows = std.text_index(rows, keys=tuple(dict.fromkeys(texts)))
        order = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        flat = [order[text] for text in texts]
    columns = max(indexes) + 1
    if columns > MAX_COLUMNS:
        raise c.unsupported(f"counts of {columns} n-grams")
    counts, owners = [], list[int]()
    for n, grams, own in _pools(c, flat):
        # Skips do not affect single items, which are counted once.
        for skip in range(1, 2 if n == 1 else skips + 2):
            made = _count(c, rows, grams, skip)
            if made is not None:
                counts.append(made)
                owners += own
    total = std.full(shape=(rows.shape[0], columns), value=0.0, dtype="float32")
    if counts:
        found = std.concat(*counts, axis=1)
        shape = tuple(found.shape)
        positions = std.broadcast_to(std.reshape(c.const(owners, "int64"), shape=(1, -1)), shape=shape)
        total = std.scatter_elements(total, positions, found, axis=1, reduction="add")
    weights = c.reals("weights", None)
    if mode == "IDF":
        total = c.cast(std.greater(total, c.const(0, "float32")), "float32")
    if weights and mode != "TF":
        by_column = np.ones(columns, np.float32)
        by_column[: len(weights)] = weights[:columns]
        total = std.mul(total, c.const(by_column, "float32"))
    return total if len(x.shape) == 2 else std.reshape(total, shape=(columns,))
