"""Every registered rule, evaluated on values for which floating-point identities do not hold."""

from __future__ import annotations

import pytest

from dlc_core.passes.graph import RULES
from dlc_core.rewrite import check_rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_preserves_results(rule):
    assert check_rule(rule) > 0


def test_names_are_unique_and_documented():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(rule.doc for rule in RULES)
