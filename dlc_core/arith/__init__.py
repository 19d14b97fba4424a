"""Integer analysis for symbolic shapes, loop bounds, schedules and lowering.

`Analyzer` simplifies and proves under ranges of variables (`bind`, `declare_dim`) and scoped assumptions
(`assume`):

>>> from dlc_core.ir.expr import Var
>>> i, j, n = Var("i"), Var("j"), Var("n")
>>> analyzer = Analyzer()
>>> analyzer.declare_dim(n, low=1)
>>> analyzer.bind(i, 0, n)
>>> analyzer.bind(j, 0, 8)
>>> analyzer.simplify((i * 8 + j) // 8)
i
>>> analyzer.prove(i * 8 + j < n * 8)
True
>>> analyzer.const_bounds(j * 4 + 3)
(3, 31)

Division is floor division with Python's meaning; integers do not wrap.  `eval_expr` evaluates one expression,
`compile_exprs` turns many into a Python function.
"""

from __future__ import annotations

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.evaluate import compile_exprs, eval_expr
from dlc_core.arith.interval import INF, Interval
from dlc_core.arith.iter_divide import DividedIter, IterDivision, divide_iter_map
from dlc_core.arith.iter_inverse import inverse_iter_map
from dlc_core.arith.iter_map import IterMap, IterMark, IterSplit, IterSum, detect_iter_map
from dlc_core.arith.rules import Rule, rules
from dlc_core.arith.sets import IntSet, set_of
from dlc_core.arith.solve import Solution, solve_condition, solve_dim, solve_dims

__all__ = [
    "INF",
    "Analyzer",
    "DividedIter",
    "IntSet",
    "Interval",
    "IterDivision",
    "IterMap",
    "IterMark",
    "IterSplit",
    "IterSum",
    "Rule",
    "Solution",
    "compile_exprs",
    "detect_iter_map",
    "divide_iter_map",
    "eval_expr",
    "inverse_iter_map",
    "rules",
    "set_of",
    "solve_condition",
    "solve_dim",
    "solve_dims",
]
