"""Limits of the work for one query: expressions on which the analysis once took exponentially many steps."""

from __future__ import annotations

import pytest

from dlc_core.arith import Analyzer, prove
from dlc_core.ir.expr import Expr, Var, const, maximum, minimum

x, y, n = (Var(name) for name in "xyn")
V = [Var(f"v{k}") for k in range(32)]


def _analyzer() -> Analyzer:
    analyzer = Analyzer()
    for var in (*V, n):
        analyzer.declare_dim(var, 0)
    return analyzer


def _nested(depth: int) -> Expr:
    """Conditions whose levels use the one below twice, once negated."""
    cond = x < y
    for k in range(depth):
        cond = (cond & (V[k] < minimum(x, V[k + 10]))) | (~cond & (V[k] < x))
    return cond


def test_negations_of_shared_conditions_take_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level once took twice the goals of the level below: 200,000 for 12 levels."""
    goals = 0
    nonneg = prove.Prover._nonneg

    def counted(self: prove.Prover, p: prove.Poly, depth: int = prove.DEPTH_SIMPLIFY) -> bool:
        nonlocal goals
        goals += 1
        return nonneg(self, p, depth)

    monkeypatch.setattr(prove.Prover, "_nonneg", counted)
    _analyzer().simplify(_nested(20))
    assert 0 < goals < 3000


def _clamps(depth: int) -> Expr:
    e: Expr = x
    for k in range(depth):
        e = minimum(e * 2 + V[k], maximum(e, V[k + 10])) + e
    return e


def test_a_query_has_a_budget_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last step, goals are proved by intervals alone, and the next query starts with all steps."""
    free = _analyzer()
    free.simplify(_clamps(8))
    budget = 50
    assert free.steps > 4 * budget
    for module in ("prove", "simplify", "analyzer"):
        monkeypatch.setattr(f"dlc_core.arith.{module}.QUERY_STEPS", budget)
    limited = _analyzer()
    simple = limited.simplify(_clamps(8))
    assert limited.steps <= budget
    assert limited.simplify(simple) is simple
    before = limited.steps
    assert limited.prove(minimum(n, 4) * 2 + V[0] >= 0)
    assert limited.prove(minimum(x, n) <= n)
    assert limited.steps > before


def test_an_exhausted_query_proves_only_what_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    average = minimum(x, y) * 2 <= x + y
    assert _analyzer().prove(average)
    for module in ("prove", "simplify", "analyzer"):
        monkeypatch.setattr(f"dlc_core.arith.{module}.QUERY_STEPS", 0)
    analyzer = _analyzer()
    assert analyzer.prove(n + const(1) >= 1)
    assert not analyzer.prove(average), "not known without a step"
