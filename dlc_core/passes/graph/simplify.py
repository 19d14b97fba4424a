"""simplify: apply the rewrite rules to a fixpoint.

Law: the function computes the same values; bits change only through rules that are marked `approximate`,
which run from `opt_level` 2 on.

    relu(relu(x)) + 0      =>      relu(x)            (of integers; of floats only + -0.0 is removed)

A `collections.Counter` under `rule_counts` in the context's config counts the applications of each rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from dlc_core.graph.node import Function
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph import rules_arith, rules_cast, rules_conv, rules_matmul, rules_shape, rules_slice
from dlc_core.rewrite import Rule, rewrite_function
from dlc_core.support.record import record

RULES: tuple[Rule, ...] = (
    *rules_arith.RULES,
    *rules_cast.RULES,
    *rules_shape.RULES,
    *rules_slice.RULES,
    *rules_matmul.RULES,
    *rules_conv.RULES,
)
"""The core's own rules, in the order in which they are tried."""


@record(frozen=True)
class Simplify(GraphPass):
    """Apply the core's rules and those of plugins; `skip` names rules to leave out."""

    name: ClassVar[str] = "simplify"
    settings: ClassVar[tuple[str, ...]] = ("rule_counts",)
    min_level: ClassVar[int] = 1
    exact: ClassVar[bool] = False
    drops_spans: ClassVar[bool] = True
    skip: tuple[str, ...] = ()

    def run_function(self, function: Function, context: PassContext) -> Function:
        approximate = context.opt_level >= 2
        rules = [
            rule
            for rule in dict.fromkeys((*RULES, *context.rules))
            if rule.applied_by == self.name
            and rule.name not in self.skip
            and not context.leaves_out(rule.name)
            and (approximate or not rule.approximate)
        ]
        return apply_rules(function, rules, context)


@record(frozen=True)
class CanonicalCasts(GraphPass):
    """canonical_casts: only the rules of casts, for pipelines that must not change anything else."""

    name: ClassVar[str] = "canonical_casts"
    min_level: ClassVar[int] = 1

    def run_function(self, function: Function, context: PassContext) -> Function:
        return apply_rules(function, rules_cast.RULES, context)


def apply_rules(function: Function, rules: Sequence[Rule], context: PassContext) -> Function:
    """Apply rules until none matches. The context's `rule_counts`, if there is one, counts applications."""
    result, counts = rewrite_function(function, rules)
    total = context.config.get("rule_counts")
    if isinstance(total, Counter):
        total.update(counts)
    return result
