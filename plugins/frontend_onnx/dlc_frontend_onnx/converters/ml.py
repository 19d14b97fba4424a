"""Operators of ai.onnx.ml on numbers: scalers, linear models, encoders. Trees are in `trees`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import STRING, DType
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter

ML = "ai.onnx.ml"


def _float(c: Call, x: Node) -> Node:
    return x if x.dtype.name in ("float32", "float64") else c.cast(x, "float32")


def post_transform(c: Call, scores: Node, kind: str) -> Node:
    """Scores of classes or targets, along the last axis, transformed by the attribute post_transform."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return std.sigmoid(scores)
    if kind == "SOFTMAX":
        return std.softmax(scores, axis=-1)
    if kind == "SOFTMAX_ZERO":
        # Zero scores stay zero and are left out of the softmax.
        zero = c.const(0, scores.dtype)
        kept = std.not_equal(scores, zero)
        among = std.where(kept, scores, c.const(float("-inf"), scores.dtype))
        return std.where(kept, std.softmax(among, axis=-1), zero)
    raise c.unsupported(f"the post_transform {kind}")


@converter("Binarizer", 1, ML)
def binarizer(c: Call, x: Node) -> Node:
    threshold = c.real("threshold", 0.0)
    limit = threshold if x.dtype.is_float else np.floor(threshold)
    return c.cast(std.greater(x, c.const(limit, x.dtype)), x.dtype)


@converter("ArrayFeatureExtractor", 1, ML)
def array_feature_extractor(c: Call, x: Node, positions: Node) -> Node:
    """x at indices of its last axis. The result for a vector is a matrix with one row."""
    picked = std.gather(x, std.reshape(positions, shape=(-1,)), axis=-1)
    return std.unsqueeze(picked, axes=(0,)) if len(x.shape) == 1 else picked


@converter("Scaler", 1, ML)
def scaler(c: Call, x: Node) -> Node:
    wide = _float(c, x)
    made = wide
    for name, combine in (("offset", std.sub), ("scale", std.mul)):
        numbers = c.reals(name, None)
        if numbers is not None:
            made = combine(made, c.const(numbers[0] if len(numbers) == 1 else numbers, wide.dtype))
    return c.cast(made, "float32")


@converter("Normalizer", 1, ML)
def normalizer(c: Call, x: Node) -> Node:
    """Rows divided by their maximum, sum of magnitudes, or Euclidean norm; rows of zeros are unchanged."""
    wide = c.cast(x, "float32")
    fold: Any = {"MAX": std.reduce_max, "L1": std.reduce_l1, "L2": std.reduce_l2}[
        c.choice("norm", "MAX", ("MAX", "L1", "L2"))
    ]
    below = fold(wide, axes=(len(x.shape) - 1,), keepdims=True)
    zero, one = c.const(0, "float32"), c.const(1, "float32")
    return std.div(wide, std.where(std.equal(below, zero), one, below))


@converter("Imputer", 1, ML)
def imputer(c: Call, x: Node) -> Node:
    """Replaces the value that marks missing elements by one number, or by one per feature."""
    names = ("imputed_value_floats", "replaced_value_float")
    c.ignore(*names, "imputed_value_int64s", "replaced_value_int64")
    if x.dtype.is_float:
        filling, missing = c.reals(names[0]), c.real(names[1], 0.0)
    else:
        filling, missing = c.integers("imputed_value_int64s"), c.integer("replaced_value_int64", 0)
    gap = std.isnan(x) if missing != missing else std.equal(x, c.const(missing, x.dtype))
    return std.where(gap, c.const(filling[0] if len(filling) == 1 else filling, x.dtype), x)


@converter("FeatureVectorizer", 1, ML)
def feature_vectorizer(c: Call, *xs: Node) -> Node:
    """The first features of each input, as many as the attribute specifies, concatenated."""
    counts = c.integers("inputdimensions", None)
    if counts is not None and len(counts) != len(xs):
        raise c.error(f"{len(counts)} numbers of features for {len(xs)} inputs")
    rows = []
    for index, x in enumerate(xs):
        wide = c.cast(x if len(x.shape) == 2 else std.reshape(x, shape=(1, -1)), "float32")
        if counts is not None and wide.shape[1] != counts[index]:
            wide = std.slice(wide, begins=(0,), ends=(counts[index],), axes=(1,))
        rows.append(wide)
    return std.concat(*rows, axis=1)


@converter("OneHotEncoder", 1, ML)
def one_hot_encoder(c: Call, x: Node) -> Node:
    c.ignore("zeros")
    if x.dtype is STRING:
        texts = c.texts("cats_strings")
        categories: Sequence[int] = range(len(texts))
        wide = std.text_index(x, keys=texts)
    else:
        categories = c.integers("cats_int64s")
        wide = c.cast(x, "int64")
    return c.cast(std.equal(std.unsqueeze(wide, axes=(-1,)), c.const(categories, "int64")), "float32")


def _pairs(c: Call, what: str) -> np.ndarray[Any, Any]:
    """The keys or values of a LabelEncoder, from the attribute that has them."""
    for suffix, kind in (("int64s", "int64"), ("floats", "float32")):
        given = c.integers(f"{what}_{suffix}", None) if kind == "int64" else c.reals(f"{what}_{suffix}", None)
        if given is not None:
            return np.asarray(given, kind)
    texts = c.texts(f"{what}_strings", None)
    if texts is not None:
        return np.array(texts, object)
    given = c.tensor(f"{what}_tensor", None)
    if given is None:
        raise c.error(f"LabelEncoder has no {what}")
    return np.asarray(given).reshape(-1)


@converter("LabelEncoder", 1, ML)
def label_encoder_of_texts(c: Call, x: Node) -> Node:
    """Map strings to their class indices, or class indices to strings."""
    texts = c.texts("classes_strings")
    default = c.text("default_string", "_Unused"), c.integer("default_int64", -1)
    if x.dtype is STRING:
        position = std.text_index(x, keys=texts, default=len(texts))
        return std.gather(c.const([*range(len(texts)), default[1]], "int64"), position)
    last = c.const(len(texts), "int64")
    inside = std.logical_and(std.greater_equal(x, c.const(0, "int64")), std.less(x, last))
    return std.gather(_table(c, [*texts, default[0]], STRING), std.where(inside, x, last))


@converter("LabelEncoder", 2, ML)
def label_encoder(c: Call, x: Node) -> Node:
    """The value of the key that equals an element, or the default."""
    c.ignore("default_string", "default_int64", "default_float")
    keys, values = _pairs(c, "keys"), _pairs(c, "values")
    if len(keys) != len(values) or not len(keys):
        raise c.error(f"{len(keys)} keys for {len(values)} values")
    to, of = c.numpy_dtype(values, "the values"), c.numpy_dtype(keys, "the keys")
    if of.kind != x.dtype.kind or of.bits > x.dtype.bits:
        raise c.error(f"keys of {of} for elements of {x.dtype}")
    default = _default(c, to)
    if x.dtype is STRING:
        position = std.text_index(x, keys=tuple(keys), default=len(keys))
        return std.gather(_table(c, [*values, default], to), position)
    among = c.const(keys, x.dtype)
    same = std.equal(std.unsqueeze(x, axes=(-1,)), among)
    if x.dtype.is_float and np.isnan(keys).any():
        gaps = std.logical_and(std.isnan(std.unsqueeze(x, axes=(-1,))), std.isnan(among))
        same = std.logical_or(same, gaps)
    # Of equal keys the last one is used.
    position = std.argmax(c.cast(same, "int8"), axis=-1, select_last=True)
    found = std.gather(_table(c, values, to), position)
    other = std.squeeze(_table(c, [default], to), axes=(0,))
    return std.where(std.reduce_any(same, axes=(-1,)), found, other)


def _default(c: Call, to: DType) -> Any:
    """The value of elements that are not keys."""
    given = c.tensor("default_tensor", None)
    if given is not None:
        if given.size != 1 or c.numpy_dtype(given, "the default") is not to:
            raise c.error(f"a default of {given.size} elements of {given.dtype} for values of {to}")
        return given.reshape(-1)[0]
    if to is STRING:
        return c.text("default_string", "_Unused")
    return c.real("default_float", -0.0) if to.is_float else c.integer("default_int64", -1)


def _table(c: Call, values: Any, to: DType) -> Node:
    """A vector of numbers or strings."""
    if to is STRING:
        return std.texts(values=tuple(map(str, values)), shape=(len(values),))
    return c.const(values, to)


@converter("CategoryMapper", 1, ML)
def category_mapper(c: Call, x: Node) -> Node:
    """Map strings to the numbers of their categories, or numbers to strings."""
    texts, numbers = c.texts("cats_strings"), c.integers("cats_int64s")
    default = c.text("default_string", "_Unused"), c.integer("default_int64", -1)
    if len(texts) != len(numbers):
        raise c.error(f"{len(texts)} texts for {len(numbers)} numbers")
    if x.dtype is STRING:
        position = std.text_index(x, keys=texts, default=len(texts))
        return std.gather(c.const([*numbers, default[1]], "int64"), position)
    same = std.equal(std.unsqueeze(x, axes=(-1,)), c.const(numbers, "int64"))
    position = std.argmax(c.cast(same, "int8"), axis=-1, select_last=True)
    last = c.const(len(numbers), "int64")
    position = std.where(std.reduce_any(same, axes=(-1,)), position, last)
    return std.gather(_table(c, [*texts, default[0]], STRING), position)


def labels_of(c: Call, numbers: str) -> Node:
    """The labels of a classifier: the integers of the named attribute, or strings."""
    found = c.integers(numbers, None)
    if found is not None:
        return c.const(found, "int64")
    texts = c.texts("classlabels_strings")
    return std.texts(values=texts, shape=(len(texts),))


def _linear(c: Call, x: Node, rows: int) -> Node:
    """The product with a matrix of coefficients [rows, features], plus the intercepts."""
    wide = c.cast(x if len(x.shape) == 2 else std.reshape(x, shape=(1, -1)), "float32")
    numbers = np.asarray(c.reals("coefficients"), np.float32)
    if rows < 1 or numbers.size % rows:
        raise c.error(f"{numbers.size} coefficients for {rows} results")
    made = std.matmul(wide, c.const(np.ascontiguousarray(numbers.reshape(rows, -1).T), "float32"))
    offsets = c.reals("intercepts", None)
    return made if not offsets else std.add(made, c.const(offsets, "float32"))


@converter("LinearRegressor", 1, ML)
def linear_regressor(c: Call, x: Node) -> Node:
    return post_transform(c, _linear(c, x, c.integer("targets", 1)), c.text("post_transform", "NONE"))


@converter("LinearClassifier", 1, ML)
def linear_classifier(c: Call, x: Node) -> Sequence[Node]:
    c.ignore("multi_class")
    labels = labels_of(c, "classlabels_ints")
    numbers = c.reals("coefficients")
    features = x.shape[-1] if len(x.shape) else 0
    if not isinstance(features, int) or features < 1 or len(numbers) % features:
        raise c.error(f"{len(numbers)} coefficients for {x.type}")
    kind = c.text("post_transform", "NONE")
    scores = _linear(c, x, len(numbers) // features)
    if scores.shape[1] == 1 and labels.shape[0] == 2:
        return _two_classes(c, scores, labels, kind)
    chosen = std.gather(labels, std.argmax(scores, axis=1))
    return chosen, post_transform(c, scores, kind)


def _two_classes(c: Call, score: Node, labels: Node, kind: str) -> Sequence[Node]:
    """The label and the scores of two classes with the score of the second."""
    scores = scores_of_two(c, score, kind)
    likely, limit = (std.sigmoid(score), 0.5) if kind == "LOGISTIC" else (score, 0.0)
    second = std.squeeze(std.greater(likely, c.const(limit, "float32")), axes=(1,))
    return std.gather(labels, c.cast(second, "int64")), scores


def scores_of_two(c: Call, score: Node, kind: str) -> Node:
    """The scores of two classes [rows, 2] from that of the second class, after post_transform."""
    if kind == "NONE":
        return std.concat(std.neg(score), score, axis=1)
    if kind != "LOGISTIC":
        raise c.unsupported(f"the post_transform {kind} of one score for two classes")
    likely = std.sigmoid(score)
    return std.concat(std.sub(c.const(1, "float32"), likely), likely, axis=1)
