"""The core's passes over graphs, and the rewrite rules that they apply."""

from dlc_core.passes.graph.cse import CommonSubexpressions
from dlc_core.passes.graph.dead_code import DeadCode
from dlc_core.passes.graph.expand_composites import ExpandComposites
from dlc_core.passes.graph.fold_constants import FoldConstants
from dlc_core.passes.graph.fuse import Fuse
from dlc_core.passes.graph.infer import Infer
from dlc_core.passes.graph.simplify import RULES, CanonicalCasts, Simplify

PASSES = (
    Infer,
    Simplify,
    FoldConstants,
    ExpandComposites,
    CanonicalCasts,
    CommonSubexpressions,
    DeadCode,
    Fuse,
)

__all__ = [
    "PASSES",
    "RULES",
    "CanonicalCasts",
    "CommonSubexpressions",
    "DeadCode",
    "ExpandComposites",
    "FoldConstants",
    "Fuse",
    "Infer",
    "Simplify",
]
