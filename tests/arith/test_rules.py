"""Every rewrite rule: both sides are equal over a small domain if its conditions hold."""

from __future__ import annotations

from itertools import product

import pytest

from dlc_core.arith import Analyzer, Rule, eval_expr, rules
from dlc_core.arith.rules import LITERALS, candidates, instantiate, match
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Expr, Var, const, free_vars

SMALL = range(-4, 5)


def _domain(var: Var) -> range:
    return range(2) if var.dtype.is_bool else SMALL


def _value(e: Expr, env: dict[Var, int]) -> int | None:
    try:
        return eval_expr(e, env)
    except UsageError:
        return None


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.name)
def test_rule_holds_over_a_small_domain(rule: Rule) -> None:
    variables = free_vars(rule.pattern)
    assert set(free_vars(rule.replacement, *rule.when)) <= set(variables)
    checked = 0
    for values in product(*(_domain(v) for v in variables)):
        env = dict(zip(variables, values, strict=True))
        if any(_value(cond, env) != 1 for cond in rule.when):
            continue
        left = _value(rule.pattern, env)
        if left is None:
            continue
        checked += 1
        assert left == _value(rule.replacement, env), f"{rule.pattern} and {rule.replacement} differ at {env}"
    assert checked > 0


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.name)
def test_rule_is_a_candidate_for_its_own_pattern(rule: Rule) -> None:
    values = {v: const(i + 2) for i, v in enumerate(sorted(LITERALS, key=lambda v: v.name))}
    pattern = rule.pattern
    assert match(pattern, pattern, {}) is (not any(v in LITERALS for v in free_vars(pattern)))
    concrete = instantiate(pattern, {v: values.get(v, v) for v in free_vars(pattern)})
    assert rule in candidates(concrete)
    assert match(pattern, concrete, {})


def test_names_are_unique() -> None:
    names = [rule.name for rule in rules()]
    assert len(names) == len(set(names))


def test_conditions_are_checked_before_a_rule_applies() -> None:
    x = Var("x")
    analyzer = Analyzer()
    assert analyzer.simplify((x // 4) // 3) is x // 12
    negative = analyzer.simplify((x // 4) // const(-3))
    assert all(eval_expr(negative, {x: value}) == (value // 4) // -3 for value in range(-40, 40))


def test_symbolic_conditions_are_proved() -> None:
    x, y, z = Var("x"), Var("y"), Var("z")
    e = (x // y) // z
    assert Analyzer().simplify(e) is e
    known = Analyzer()
    known.declare_dim(y)
    known.declare_dim(z)
    assert known.simplify(e) is x // (y * z)
