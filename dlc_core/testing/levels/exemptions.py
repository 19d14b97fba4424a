"""Tests of the target's exemptions, which are part of every suite."""

from __future__ import annotations

from dlc_core.target import Target
from dlc_core.testing.catalogue import unused_exemptions
from dlc_core.testing.levels.base import Level
from dlc_core.testing.runner import expectations_of


class ExemptionsLevel(Level):
    """Tests without a level, which run with all levels."""

    def test_exemptions_match_cases(self, target: Target) -> None:
        """An exemption that matches no case is misspelt or obsolete."""
        unused = unused_exemptions(expectations_of(target.kind.name))
        assert not unused, [e.name for e in unused]


__all__ = ["ExemptionsLevel"]
