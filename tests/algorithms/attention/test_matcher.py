"""The rules that recognise attention keep results; `simplify` leaves them to the pass."""

from __future__ import annotations

import pytest

from dlc_core.algorithms.attention.matcher import RULES
from dlc_core.plugin.registry import registry
from dlc_core.rewrite import check_rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_preserves_results(rule):
    assert rule.doc
    assert check_rule(rule) > 0


def test_the_registry_has_the_rules():
    assert {rule.name for rule in RULES} <= set(registry().rules)
    assert {rule.applied_by for rule in RULES} == {"attention"}
