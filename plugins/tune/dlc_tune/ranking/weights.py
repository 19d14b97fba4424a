"""Files of trained models, in LightGBM's own text format.

    save_weights(booster, "weights.txt")
    ranker = learned_ranker(weights="weights.txt")

A file from elsewhere is checked before the library reads it: its size, the names of its features, and that
every tree is one, with children and features that exist. The library itself trusts what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlc_core.diag import UsageError
from dlc_tune.ranking.features import NAMES
from dlc_tune.ranking.model import library

MAX_BYTES = 16 << 20
"""The most bytes of a file. A model of 60 trees takes 100 kB."""
MAX_LEAVES = 1 << 12
"""The most leaves of a tree."""
_PER_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
_PER_SPLIT = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")


def save_weights(booster: Any, path: str | Path) -> None:
    """Write a model to a text file."""
    Path(path).write_text(booster.model_to_string(), encoding="utf-8")


def load_weights(path: str | Path) -> Any:
    """The LightGBM Booster of a file. Raises UsageError if it is not one of `save_weights`, or if its
    features are not those of this version.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise _refused(path, f"it has {size:,} bytes, more than {MAX_BYTES:,}")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, str(error)) from error
    problem = problem_of(text)
    if problem:
        raise _refused(path, problem)
    lightgbm = library()
    try:
        return lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise _refused(path, str(error)) from error


def problem_of(text: str) -> str:
    """Why a text is no model with the features of this version; empty if it is one."""
    head, *trees = text.partition("end of trees")[0].split("\nTree=")
    fields = dict(_fields(head))
    if not head.startswith("tree\n") or not trees:
        return "it is no model of LightGBM"
    if fields.get("feature_names", "").split() != list(NAMES):
        return "its features are not those of this version"
    if fields.get("max_feature_idx") != str(len(NAMES) - 1) or fields.get("num_class") != "1":
        return "its head contradicts its features"
    if fields.get("num_tree_per_iteration") != "1" or len(fields.get("tree_sizes", "").split()) != len(trees):
        return "its head contradicts its trees"
    for number, tree in enumerate(trees):
        problem = _problem_of_tree(dict(_fields(tree)))
        if problem:
            return f"tree {number} {problem}"
    return ""


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            yield name, value


def _problem_of_tree(fields: Mapping[str, str]) -> str:
    try:
        leaves = int(fields["num_leaves"])
        if (
            not 1 <= leaves <= MAX_LEAVES
            or fields.get("num_cat") != "0"
            or fields.get("is_linear", "0") != "0"
        ):
            return "is of another kind"
        if leaves == 1:
            return "" if len(fields["leaf_value"].split()) == 1 else "has no value"
        values = {name: [float(word) for word in fields[name].split()] for name in (*_PER_LEAF, *_PER_SPLIT)}
    except (KeyError, ValueError) as error:
        return f"lacks a number: {error}"
    wrong = [name for name in _PER_LEAF if len(values[name]) != leaves]
    wrong += [name for name in _PER_SPLIT if len(values[name]) != leaves - 1]
    if wrong:
        return f"has another number of {wrong[0]}s"
    if any(not 0 <= feature < len(NAMES) for feature in values["split_feature"]):
        return "splits by a feature that does not exist"
    # Each node but the root is the child of one node: a negative number n is the leaf -n - 1.
    children = sorted(int(child) for side in ("left_child", "right_child") for child in values[side])
    if children != [*range(-leaves, 0), *range(1, leaves - 1)]:
        return "has children that do not form a tree"
    parents = [
        (int(child), node)
        for side in ("left_child", "right_child")
        for node, child in enumerate(values[side])
        if child > 0
    ]
    return "has children that do not form a tree" if any(child <= node for child, node in parents) else ""


def _refused(path: str | Path, why: str) -> UsageError:
    return UsageError(
        f"{path} holds no weights of the cost model",
        why=why,
        hint="make them by `python -m dlc_tune.ranking.train RECORDS WEIGHTS`",
    )


__all__ = ["load_weights", "problem_of", "save_weights"]
