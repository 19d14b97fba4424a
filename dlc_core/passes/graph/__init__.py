"""The core's passes over graphs, and the rewrite rules that they apply."""

from dlc_core.passes.graph.fuse import Fuse
from dlc_core.passes.graph.rules_arith import RULES as ARITH_RULES
from dlc_core.passes.graph.rules_cast import RULES as CAST_RULES
from dlc_core.passes.graph.rules_shape import RULES as SHAPE_RULES
from dlc_core.passes.graph.rules_slice import RULES as SLICE_RULES

RULES = (*ARITH_RULES, *CAST_RULES, *SHAPE_RULES, *SLICE_RULES)
PASSES = (Fuse,)

__all__ = ["PASSES", "RULES", "Fuse"]
