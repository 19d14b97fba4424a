"""The kinds of nodes, and other properties, that decide which nodes one kernel computes."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node, functions_of, involves_texts
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op.declare import OpDecl, lowering_of, plan_of
from dlc_core.op.std import scans
from dlc_core.op.std.norm import LRN
from dlc_core.op.std.programs import CALL_TIR
from dlc_core.passes.heuristics import FUSION
from dlc_core.tir.interface import kind_of_program

POINTWISE = ("elementwise", "broadcast")
ANCHORS = ("contraction", "reduction")
JOINING = (*POINTWISE, "injective")

VIEWS = frozenset({"reshape", "squeeze", "unsqueeze", "flatten"})
"""Ops whose result is the input's memory under another shape."""
BETWEEN_KERNELS = frozenset({"band", "join_bands"})
"""Ops between kernels, which determine the memory that kernels read and write."""
DATA_MOVEMENT = frozenset({"transpose", "slice", "broadcast_to", "flip", "roll", "tile", "repeat"})
"""Ops that only choose which element is read."""
COSTLY = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "div", "mod", "fmod",
    "floordiv", "pow", "reciprocal", "sigmoid", "tanh", "erf", "gelu", "silu", "mish", "softplus",
    "softsign", "elu", "selu", "celu", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "asinh", "acosh", "atanh",
))  # fmt: skip
"""Elementwise ops that cost more to compute twice than to store and load."""

DUPLICATED = frozenset({"dequantize"})
"""Elementwise ops that each consumer computes itself if their input is narrower than their result: storing
and loading the result would cost more."""


def kind_of(value: Node) -> str:
    """Return the fusion kind of a node. Nodes of kind "structural" and "host" are in no group."""
    decl = value.op
    if not isinstance(decl, OpDecl):
        return "structural"
    if involves_texts(value):
        return "host"
    if decl.name in BETWEEN_KERNELS:
        return "structural"
    if decl.name in VIEWS:
        return "view"
    if lowering_of(value) is None or functions_of(value):
        return "host"
    if not isinstance(value.type, TensorType):
        return "opaque"
    return kind_of_program(value.attrs["program"]) if decl is CALL_TIR else decl.kind


def is_duplicated(value: Node) -> bool:
    """Whether recomputing a node that widens its input is cheaper than storing its result."""
    return value.op.name in DUPLICATED and value.args[0].dtype.bits < value.dtype.bits


def fuses_data_movement(anchor: Node) -> bool:
    """Whether the plan of a contraction allows data movement in its kernel."""
    plan = plan_of(anchor)
    return plan is not None and plan.fuses_data_movement


def interpolates(value: Node) -> bool:
    """Whether each result of a node is computed from several neighbours, which other results read too."""
    return value.op.name == "resize" and value.attrs["mode"] != "nearest"


def is_windowed(value: Node) -> bool:
    """Whether a reduction may read each element of its input for several results."""
    return "kernel" in value.attrs or value.op is LRN or value.op in scans.OPS


def _count(shape: Sequence[Dim]) -> int | None:
    total = 1
    for dim in shape:
        if not isinstance(dim, int):
            return None
        total *= dim
    return total


def is_smaller(shape: Sequence[Dim], other: Sequence[Dim]) -> bool:
    """Whether a tensor has clearly fewer elements than another; unknown counts as smaller."""
    a, b = _count(shape), _count(other)
    if a is None or b is None:
        return tuple(shape) != tuple(other)
    return FUSION.broadcast_ratio * a <= b


def keeps_innermost(view: Node) -> bool:
    """Whether reading through a reshape needs no division by a constant in the innermost loop.

    The innermost dim of the input is the product of some of the innermost dims of the result: it stays, or is
    split.
    """
    before = [d for d in view.args[0].shape if d != 1]
    after = [d for d in view.shape if d != 1]
    if not before or not after:
        return True
    if before[-1] == after[-1]:
        return True
    inner = 1
    for dim in reversed(after):
        if not isinstance(dim, int) or not isinstance(before[-1], int):
            return False
        inner *= dim
        if inner >= before[-1]:
            return inner == before[-1]
    return False


__all__ = [
    "ANCHORS",
    "COSTLY",
    "DATA_MOVEMENT",
    "JOINING",
    "POINTWISE",
    "VIEWS",
    "fuses_data_movement",
    "is_duplicated",
    "is_smaller",
    "is_windowed",
    "keeps_innermost",
    "kind_of",
]
