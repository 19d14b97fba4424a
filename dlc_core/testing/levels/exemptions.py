"""Tests of the target's exemptions, which are part of every suite."""

from __future__ import annotations

from dlc_core.target import Target
from dlc_core.testing.catalogue import useless
from dlc_core.testing.levels.base import Level
from dlc_core.testing.runner import expectations_of


class ExemptionsLevel(Level):
    """It has no level, so it runs with all levels."""

    def test_exemptions_are_of_use(self, target: Target) -> None:
        """An exemption that matches no case is misspelt or obsolete."""
        unused = useless(expectations_of(target.kind.name))
        assert not unused, [e.name for e in unused]


__all__ = ["ExemptionsLevel"]
