"""Algebraic rewrites of graphs: rules as data, the matcher, the driver that applies them, and tests of
rules."""

from dlc_core.rewrite.check import check_rule
from dlc_core.rewrite.driver import Rewriter, Rewritten, rewrite_body, rewrite_function
from dlc_core.rewrite.pattern import (
    Match,
    Pattern,
    any_op,
    attr,
    const_var,
    match,
    match_any,
    match_op,
    mismatch,
    number,
    var,
)
from dlc_core.rewrite.rule import Rule

__all__ = [
    "Match",
    "Pattern",
    "Rewriter",
    "Rewritten",
    "Rule",
    "any_op",
    "attr",
    "check_rule",
    "const_var",
    "match",
    "match_any",
    "match_op",
    "mismatch",
    "number",
    "rewrite_body",
    "rewrite_function",
    "var",
]
