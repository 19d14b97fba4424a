"""Support vector machines of the domain ai.onnx.ml.

A classifier has a score for each pair of classes; its sign selects one of the two. The probabilities of pairs
are converted to probabilities of classes by the second method of Wu, Lin and Weng, "Probability estimates for
multi-class classification by pairwise coupling" (JMLR 5, 2004), with the iteration and the stopping criterion
of LIBSVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node, get_item, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_frontend_onnx.closures import close
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.ml import ML, labels_of, post_transform, scores_of_two

MAX_STEPS = 100
"""Limit of iterations for the probabilities of classes."""
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

Numbers = np.ndarray[Any, Any]


def _rows(c: Call, x: Node) -> Node:
    return c.cast(x if len(x.shape) == 2 else std.reshape(x, shape=(1, -1)), "float32")


def _kernels(c: Call, x: Node, vectors: Numbers) -> Node:
    """The kernel function of rows and vectors: [rows, vectors]."""
    kind = c.choice("kernel_type", "LINEAR", KERNELS)
    gamma, offset, degree = (*(c.reals("kernel_params", None) or ()), 0.0, 0.0, 0.0)[:3]
    if x.shape[1] != vectors.shape[1]:
        raise c.error(f"vectors of {vectors.shape[1]} features for {x.type}")
    if kind == "RBF":
        gap = std.sub(std.unsqueeze(x, axes=(1,)), c.const(vectors, "float32"))
        squares = std.reduce_sum(std.mul(gap, gap), axes=(2,))
        return std.exp(std.mul(squares, c.const(-gamma, "float32")))
    made = std.matmul(x, c.const(np.ascontiguousarray(vectors.T), "float32"))
    if kind == "LINEAR":
        return made
    made = std.add(std.mul(made, c.const(gamma, "float32")), c.const(offset, "float32"))
    return std.tanh(made) if kind == "SIGMOID" else std.pow(made, c.const(degree, "float32"))


def _vectors(c: Call, x: Node, count: int) -> Numbers:
    """The support vectors, one per row."""
    numbers = np.asarray(c.reals("support_vectors"), np.float32)
    if count < 1 or numbers.size % count:
        raise c.error(f"{numbers.size} numbers do not make {count} support vectors")
    return numbers.reshape(count, -1)


@converter("SVMRegressor", 1, ML)
def svm_regressor(c: Call, x: Node) -> Node:
    wide = _rows(c, x)
    factors = np.asarray(c.reals("coefficients"), np.float32)
    offset = c.reals("rho", None) or (0.0,)
    count = c.integer("n_supports", 0)
    if count > 0:
        made = _kernels(c, wide, _vectors(c, wide, count))
        if factors.size != count:
            raise c.error(f"{factors.size} coefficients for {count} support vectors")
        made = std.matmul(made, c.const(factors.reshape(-1, 1), "float32"))
    else:
        c.ignore("support_vectors")
        made = _kernels(c, wide, factors.reshape(1, -1))
    made = std.add(made, c.const(offset[0], "float32"))
    kind = c.text("post_transform", "NONE")
    if c.flag("one_class"):
        above = std.greater(made, c.const(0, "float32"))
        return std.where(above, c.const(1, "float32"), c.const(-1, "float32"))
    return post_transform(c, made, kind)


@converter("SVMClassifier", 1, ML)
def svm_classifier(c: Call, x: Node) -> Sequence[Node]:
    wide = _rows(c, x)
    labels = labels_of(c, "classlabels_ints")
    kind = c.text("post_transform", "NONE")
    counts = tuple(c.integers("vectors_per_class", None) or ())
    factors = np.asarray(c.reals("coefficients"), np.float32)
    slopes, shifts = (c.reals(name, None) or () for name in ("prob_a", "prob_b"))
    offsets = np.asarray(c.reals("rho"), np.float32)
    if not sum(counts):
        c.ignore("support_vectors")
        return _linear(c, wide, labels, factors, float(offsets[0]), kind)
    classes, count = len(counts), sum(counts)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if labels.shape[0] != classes or classes < 2 or factors.size != (classes - 1) * count:
        raise c.error(f"{factors.size} coefficients and {count} vectors for {labels.shape[0]} classes")
    if len(offsets) != len(pairs) or any(slopes and len(s) != len(pairs) for s in (slopes, shifts)):
        raise c.error(f"{len(offsets)} offsets for {len(pairs)} pairs of classes")
    spread = _pair_factors(factors.reshape(classes - 1, count), counts, pairs)
    similarities = _kernels(c, wide, _vectors(c, wide, count))
    scores = std.add(std.matmul(similarities, c.const(spread, "float32")), c.const(offsets, "float32"))
    if slopes:
        likely = _of_classes(c, _of_pairs(c, scores, slopes, shifts, pairs, classes))
        return _voted(c, scores, labels, pairs), post_transform(c, likely, kind)
    if classes == 2:
        return _two(c, scores, labels, bool((factors >= 0).all()), kind)
    return _voted(c, scores, labels, pairs), post_transform(c, scores, kind)


def _voted(c: Call, scores: Node, labels: Node, pairs: Sequence[tuple[int, int]]) -> Node:
    """The labels of the classes with most votes of pairs; of equal counts the first."""
    won, lost = (np.zeros((len(pairs), max(max(pair) for pair in pairs) + 1)) for _ in range(2))
    for position, (i, j) in enumerate(pairs):
        won[position, i] = lost[position, j] = 1
    first = c.cast(std.greater(scores, c.const(0, "float32")), "float32")
    votes = std.add(
        std.matmul(first, c.const(won, "float32")),
        std.matmul(std.sub(c.const(1, "float32"), first), c.const(lost, "float32")),
    )
    return std.gather(labels, std.argmax(votes, axis=1))


def _linear(c: Call, x: Node, labels: Node, factors: Numbers, offset: float, kind: str) -> Sequence[Node]:
    """A linear classifier with a row of factors per class."""
    classes = labels.shape[0]
    if not isinstance(classes, int) or factors.size % classes:
        raise c.error(f"{factors.size} coefficients for {classes} classes")
    c.ignore("kernel_type", "kernel_params")
    weights = np.ascontiguousarray(factors.reshape(classes, -1).T)
    scores = std.add(std.matmul(x, c.const(weights, "float32")), c.const(offset, "float32"))
    return std.gather(labels, std.argmax(scores, axis=1)), post_transform(c, scores, kind)


def _pair_factors(factors: Numbers, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Numbers:
    """The factor of each vector for each pair of classes, [vectors, pairs]; 0 for vectors of other
    classes.
    """
    begins = np.concatenate([[0], np.cumsum(counts)])
    spread = np.zeros((factors.shape[1], len(pairs)), np.float32)
    for position, (i, j) in enumerate(pairs):
        own, other = slice(begins[i], begins[i + 1]), slice(begins[j], begins[j + 1])
        spread[own, position] = factors[j - 1, own]
        spread[other, position] = factors[i, other]
    return spread


def _two(c: Call, scores: Node, labels: Node, positive: bool, kind: str) -> Sequence[Node]:
    """Two classes with the score of the second. If all factors are positive, the threshold is 0.5."""
    limit = 0.5 if positive else 0.0
    above = std.squeeze(std.greater(scores, c.const(limit, "float32")), axes=(1,))
    return std.gather(labels, c.cast(above, "int64")), scores_of_two(c, scores, kind)


def _of_pairs(
    c: Call,
    scores: Node,
    slopes: Sequence[float],
    shifts: Sequence[float],
    pairs: Sequence[tuple[int, int]],
    classes: int,
) -> Node:
    """The probability of a class against another, [rows, classes, classes]; 0 on the diagonal."""
    wide = std.add(std.mul(scores, c.const(slopes, "float32")), c.const(shifts, "float32"))
    likely = std.clip(std.sigmoid(std.neg(wide)), min=1e-7, max=float(np.float32(1) - np.float32(1e-7)))
    first, second = (np.zeros((len(pairs), classes * classes), np.float32) for _ in range(2))
    for position, (i, j) in enumerate(pairs):
        first[position, i * classes + j] = 1
        second[position, j * classes + i] = 1
    rest = std.sub(c.const(1, "float32"), likely)
    both = std.add(
        std.matmul(likely, c.const(first, "float32")), std.matmul(rest, c.const(second, "float32"))
    )
    return std.reshape(both, shape=(-1, classes, classes))


def _of_classes(c: Call, pairs: Node) -> Node:
    """The class probabilities [rows, classes] that best match the pairwise ones."""
    rows, classes = pairs.shape[0], pairs.shape[1]
    assert isinstance(classes, int)
    other = c.const(1 - np.eye(classes), "float32")
    squares = std.reduce_sum(std.mul(std.mul(pairs, pairs), other), axes=(1,))
    diagonal = std.mul(std.unsqueeze(squares, axes=(1,)), c.const(np.eye(classes), "float32"))
    q = std.sub(diagonal, std.mul(std.mul(pairs, std.transpose(pairs, axes=(0, 2, 1))), other))
    kept = TensorType((rows, classes), pairs.dtype)
    start = std.full(shape=kept.shape, value=1 / classes, dtype="float32")
    rounds, now = param("rounds", TensorType((), DType("int64"))), param("now", kept)
    held = param("q", q.tensor_type)
    state = (c.const(0, "int64"), start, q)
    some = std.reduce_any(_unconverged(c, held, now))
    again = std.logical_and(std.less(rounds, c.const(MAX_STEPS, "int64")), some)
    made = _coupled(c, held, now)
    own = (rounds, now, held)
    cond, _ = close("unconverged", own, [again], (), {})
    body, _ = close("couple", own, [std.add(rounds, c.const(1, "int64")), made, held], (), {})
    return get_item(std.while_(*state, cond=cond, body=body), 1)


def _parts(q: Node, p: Node) -> tuple[Node, Node]:
    """q p for each row, and p q p."""
    product = std.squeeze(std.matmul(q, std.unsqueeze(p, axes=(2,))), axes=(2,))
    return product, std.reduce_sum(std.mul(p, product), axes=(1,), keepdims=True)


def _unconverged(c: Call, q: Node, p: Node) -> Node:
    """Which rows have not converged, [rows, 1]."""
    product, total = _parts(q, p)
    classes = p.shape[1]
    assert isinstance(classes, int)
    off = std.reduce_max(std.abs(std.sub(product, total)), axes=(1,), keepdims=True)
    return std.greater_equal(off, c.const(0.005 / classes, "float32"))


def _coupled(c: Call, q: Node, p: Node) -> Node:
    """One step for each class in sequence, for rows that have not converged."""
    unconverged = _unconverged(c, q, p)
    product, total = _parts(q, p)
    classes = q.shape[1]
    assert isinstance(classes, int)
    one, made = c.const(1, "float32"), p
    for t in range(classes):
        row = std.squeeze(std.slice(q, begins=(t,), ends=(t + 1,), axes=(1,)), axes=(1,))
        pivot = std.slice(row, begins=(t,), ends=(t + 1,), axes=(1,))
        here = std.slice(product, begins=(t,), ends=(t + 1,), axes=(1,))
        step = std.div(std.sub(total, here), pivot)
        grown = std.add(one, step)
        more = std.mul(step, std.add(std.mul(step, pivot), std.add(here, here)))
        total = std.div(std.div(std.add(total, more), grown), grown)
        product = std.div(std.add(product, std.mul(step, row)), grown)
        hot = c.const(np.eye(classes, dtype=np.float32)[t], "float32")
        made = std.div(std.add(made, std.mul(step, hot)), grown)
    return std.where(unconverged, made, p)
