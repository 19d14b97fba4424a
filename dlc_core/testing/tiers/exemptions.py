"""Tests of every suite besides its tiers: the exemptions of the target are valid."""

from __future__ import annotations

from dlc_core.target import Target
from dlc_core.testing.catalogue import useless
from dlc_core.testing.runner import expectations_of
from dlc_core.testing.tiers.base import Tier


class ExemptionsTier(Tier):
    """It belongs to no level, so that it runs with each."""

    def test_exemptions_are_of_use(self, target: Target) -> None:
        """An exemption that covers no case is misspelt, or of what is gone."""
        unused = useless(expectations_of(target.kind.name))
        assert not unused, [e.name for e in unused]


__all__ = ["ExemptionsTier"]
