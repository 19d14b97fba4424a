"""Ensembles of decision trees of the domain ai.onnx.ml.

All trees are traversed together, level by level. The state is the current node of each tree for each row. A
step gathers the nodes' features and thresholds. The successor of a leaf is the leaf itself, so the number of
steps is the depth of the deepest tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.ml import ML, labels_of, post_transform
from dlc_frontend_onnx.location import quoted

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MAX_LEVELS = 256
MAX_CELLS = 1 << 26
"""Limit of entries of the table of leaf weights."""

_COMPARE = {
    "LEQ": std.less_equal,
    "LT": std.less,
    "GTE": std.greater_equal,
    "GT": std.greater,
    "EQ": std.equal,
    "NEQ": std.not_equal,
}


@dataclass
class Forest:
    """Nodes as columns. The branches of a leaf are the leaf itself; `leaves` has its (target, weight)
    pairs.
    """

    features: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    then: list[int] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    leaves: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    roots: list[int] = field(default_factory=list)

    def add(self, feature: int, value: float, mode: str, missing: bool) -> int:
        """Append a node whose branches are set later."""
        position = len(self.features)
        self.features.append(feature)
        self.values.append(value)
        self.modes.append(mode)
        self.missing.append(missing)
        self.then.append(position)
        self.other.append(position)
        return position

    def leaf(self, weights: Sequence[tuple[int, float]]) -> int:
        position = self.add(0, 0.0, "LEQ", False)
        self.leaves[position] = list(weights)
        return position

    def levels(self, c: Call) -> int:
        """The number of steps from the roots to the deepest leaf."""
        current, count = set(self.roots), 0
        while not current <= self.leaves.keys():
            current = {branch for node in current for branch in (self.then[node], self.other[node])}
            count += 1
            if count > len(self.features):
                raise c.error("the nodes of a tree form a cycle")
        if count > MAX_LEVELS:
            raise c.unsupported(f"trees of {count} levels; at most {MAX_LEVELS} are supported")
        return count


def _leaves(c: Call, x: Node, forest: Forest) -> Node:
    """The leaf of each tree for each row: [rows, trees]."""
    trees = len(forest.roots)
    state = std.broadcast_to(c.const(forest.roots, "int64"), shape=(x.shape[0], trees))
    tables = {
        name: c.const(getattr(forest, name), kind)
        for name, kind in (("features", "int64"), ("then", "int64"), ("other", "int64"))
    }
    limits = c.const(forest.values, x.dtype)
    inner = [position for position in range(len(forest.features)) if position not in forest.leaves]
    modes = sorted({forest.modes[position] for position in inner})
    kinds = c.const([modes.index(m) if m in modes else 0 for m in forest.modes], "int8")
    missing = c.const(forest.missing, "bool")
    for _ in range(forest.levels(c)):
        found = std.gather_elements(x, std.gather(tables["features"], state), axis=1)
        limit = std.gather(limits, state)
        holds = _COMPARE[modes[0]](found, limit)
        for number, mode in enumerate(modes[1:], 1):
            here = std.equal(std.gather(kinds, state), c.const(number, "int8"))
            holds = std.where(here, _COMPARE[mode](found, limit), holds)
        if any(forest.missing):
            holds = std.logical_or(holds, std.logical_and(std.isnan(found), std.gather(missing, state)))
        state = std.where(holds, std.gather(tables["then"], state), std.gather(tables["other"], state))
    return state


def scores_of(c: Call, given: Node, forest: Forest, targets: int, aggregate: str) -> Node:
    """The weights of the reached leaves, aggregated over the trees: [rows, targets]."""
    if len(given.shape) != 2 or not forest.roots:
        raise c.error(f"{len(forest.roots)} trees for {given.type}")
    x = given if given.dtype.is_float else c.cast(given, "float32")
    used = max((forest.features[p] for p in range(len(forest.features)) if p not in forest.leaves), default=0)
    if min(forest.features) < 0 or (isinstance(x.shape[1], int) and used >= x.shape[1]):
        raise c.error(f"a tree reads feature {used} of {given.type}")
    if targets < 1:
        raise c.error(f"{targets} targets")
    if len(forest.features) * targets > MAX_CELLS:
        raise c.unsupported(f"{len(forest.features)} nodes with {targets} targets")
    ends = np.finfo(x.dtype.numpy)
    rest = {"MIN": ends.max, "MAX": ends.min}.get(aggregate, 0)
    weights = np.full((len(forest.features), targets), rest, x.dtype.numpy)
    for position, entries in forest.leaves.items():
        for target, weight in entries:
            if not 0 <= target < targets:
                raise c.error(f"a leaf has a weight of target {target} of {targets}")
            weights[position, target] = weight if rest else weights[position, target] + weight
    reached = std.gather(c.const(weights, x.dtype), _leaves(c, x, forest))
    if aggregate in ("MIN", "MAX"):
        return (std.reduce_min if aggregate == "MIN" else std.reduce_max)(reached, axes=(1,))
    total = std.reduce_sum(reached, axes=(1,))
    return std.div(total, c.const(len(forest.roots), x.dtype)) if aggregate == "AVERAGE" else total


T = TypeVar("T")


def _index(c: Call, values: Sequence[T], position: int, what: str) -> T:
    if not 0 <= position < len(values):
        raise c.error(f"there is no {what} {position}")
    return values[position]


class _Plain:
    """The trees of TreeEnsemble: lists of nodes and leaves, and the concatenated members of sets."""

    def __init__(self, c: Call) -> None:
        self.c = c
        self.forest = Forest()
        self.features = c.integers("nodes_featureids")
        count = len(self.features)
        self.splits = self.column(c.tensor("nodes_splits"), count, "nodes_splits")
        numbers = self.column(c.tensor("nodes_modes"), count, "nodes_modes", "iu")
        self.modes = [_index(c, MODES, int(m), "mode") for m in numbers]
        self.branches = [
            self.column(c.integers(name), count, name)
            for name in ("nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs")
        ]
        tracks = c.integers("nodes_missing_value_tracks_true", None)
        self.missing = self.column(tracks or (0,) * count, count, "nodes_missing_value_tracks_true")
        weights = np.asarray(c.tensor("leaf_weights"))
        self.weights = self.column(weights, weights.size, "leaf_weights")
        self.targets = self.column(c.integers("leaf_targetids"), len(self.weights), "leaf_targetids")
        members = c.tensor("membership_values", None)
        self.sets = _sets([] if members is None else np.asarray(members).reshape(-1).tolist())
        self.leaves: dict[int, int] = {}

    def column(self, values: Any, count: int, name: str, kinds: str = "iuf") -> list[Any]:
        given = np.asarray(values)
        if given.dtype.kind not in kinds:
            raise self.c.error(f"{name} must be numbers")
        made = given.reshape(-1).tolist()
        if len(made) != count:
            raise self.c.error(f"{name} has {len(made)} entries, not {count}")
        return list(made)

    def leaf(self, number: int) -> int:
        if number not in self.leaves:
            target = _index(self.c, self.targets, number, "leaf")
            self.leaves[number] = self.forest.leaf([(target, self.weights[number])])
        return self.leaves[number]

    def built(self, roots: Sequence[int]) -> Forest:
        """All trees. The sets of members belong to the nodes of mode MEMBER, in the order of the nodes."""
        wanting = self.modes.count("MEMBER")
        if len(self.sets) != wanting:
            raise self.c.error(f"{len(self.sets)} sets of members for {wanting} nodes that need one")
        first, chains, sets = list[int](), list[list[int]](), iter(self.sets)
        for number, mode in enumerate(self.modes):
            # Membership becomes a chain of equality tests; for the empty set, one with NaN, which is false.
            values = (next(sets) or [math.nan]) if mode == "MEMBER" else [self.splits[number]]
            chain = [
                self.forest.add(
                    self.features[number], v, "EQ" if mode == "MEMBER" else mode, bool(self.missing[number])
                )
                for v in values
            ]
            first.append(chain[0])
            chains.append(chain)
        then, then_leaf, other, other_leaf = self.branches
        for number, chain in enumerate(chains):
            yes, no = (
                self.leaf(ids[number]) if leaf[number] else _index(self.c, first, ids[number], "node")
                for ids, leaf in ((then, then_leaf), (other, other_leaf))
            )
            for position, after in zip(chain, [*chain[1:], no]):
                self.forest.then[position], self.forest.other[position] = yes, after
        self.forest.roots = [_index(self.c, first, root, "node") for root in roots]
        return self.forest


def _sets(values: Sequence[float]) -> list[list[float]]:
    """Sets of members; NaN ends each."""
    made: list[list[float]] = [[]]
    for value in values:
        if value != value:
            made.append([])
        else:
            made[-1].append(value)
    return made[:-1]


@converter("TreeEnsemble", 5, ML)
def tree_ensemble(c: Call, x: Node) -> Node:
    c.ignore("nodes_hitrates")
    aggregate = _index(c, AGGREGATES, c.integer("aggregate_function", 1), "aggregate")
    kind = _index(c, TRANSFORMS, c.integer("post_transform", 0), "transform")
    forest = _Plain(c).built(c.integers("tree_roots"))
    made = scores_of(c, x, forest, c.integer("n_targets", 1), aggregate)
    return post_transform(c, made, kind)


def _numbers(c: Call, name: str, default: Any = ()) -> list[float]:
    """Floats that are a list attribute or, in later versions, a tensor attribute."""
    given, tensor = c.reals(name, None), c.tensor(f"{name}_as_tensor", None)
    found = given if tensor is None else np.asarray(tensor).reshape(-1).tolist()
    return list(default if found is None else found)


def _named(c: Call, prefix: str) -> Forest:
    """The trees of TreeEnsembleRegressor and TreeEnsembleClassifier. Nodes are identified by tree and
    number.
    """
    c.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    forest = Forest()
    keys = list(zip(c.integers("nodes_treeids"), c.integers("nodes_nodeids")))
    modes, features, values = (
        c.texts("nodes_modes"),
        c.integers("nodes_featureids"),
        _numbers(c, "nodes_values"),
    )
    branches = list(zip(c.integers("nodes_truenodeids"), c.integers("nodes_falsenodeids")))
    missing = c.integers("nodes_missing_value_tracks_true", None) or (0,) * len(keys)
    if len({len(keys), len(modes), len(features), len(values), len(branches), len(missing)}) != 1:
        raise c.error("the attributes of the nodes differ in length")
    positions: dict[tuple[int, int], int] = {}
    roots: dict[int, int] = {}
    for number, key in enumerate(keys):
        mode = modes[number].removeprefix("BRANCH_")
        if mode == "LEAF":
            positions[key] = forest.leaf([])
        elif mode in _COMPARE:
            positions[key] = forest.add(features[number], values[number], mode, bool(missing[number]))
        else:
            raise c.error(f"there is no mode {quoted(modes[number])} of nodes")
        roots.setdefault(key[0], positions[key])
    forest.roots = list(roots.values())
    for key, (yes, no) in zip(keys, branches):
        if positions[key] not in forest.leaves:
            for column, target in ((forest.then, yes), (forest.other, no)):
                if (key[0], target) not in positions:
                    raise c.error(f"tree {key[0]} has no node {target}")
                column[positions[key]] = positions[key[0], target]
    owners = zip(c.integers(f"{prefix}_treeids"), c.integers(f"{prefix}_nodeids"))
    entries = zip(owners, c.integers(f"{prefix}_ids"), _numbers(c, f"{prefix}_weights"))
    for owner, target, weight in entries:
        if positions.get(owner) not in forest.leaves:
            raise c.error(f"node {owner[1]} of tree {owner[0]}, which has a weight, is no leaf")
        forest.leaves[positions[owner]].append((target, weight))
    return forest


def _based(c: Call, scores: Node) -> Node:
    base = _numbers(c, "base_values")
    return std.add(scores, c.const(base, scores.dtype)) if base else scores


@converter("TreeEnsembleRegressor", 1, ML)
def tree_ensemble_regressor(c: Call, x: Node) -> Node:
    aggregate = c.choice("aggregate_function", "SUM", AGGREGATES)
    scores = scores_of(c, x, _named(c, "target"), c.integer("n_targets", 1), aggregate)
    return c.cast(post_transform(c, _based(c, scores), c.text("post_transform", "NONE")), "float32")


@converter("TreeEnsembleClassifier", 1, ML)
def tree_ensemble_classifier(c: Call, x: Node) -> Sequence[Node]:
    labels = labels_of(c, "classlabels_int64s")
    count = labels.shape[0]
    if len(set(c.integers("class_ids"))) == 1 and count == 2:
        raise c.unsupported("TreeEnsembleClassifier of two classes with the weights of one class")
    scores = _based(c, scores_of(c, x, _named(c, "class"), count, "SUM"))
    chosen = std.gather(labels, std.argmax(scores, axis=1))
    made = post_transform(c, scores, c.text("post_transform", "NONE"))
    return chosen, c.cast(made, "float32")
