"""Which parts of a graph go to the machine, through the hook `dlc_partitioners`."""

from __future__ import annotations

from dlc_backend_vta.config import Config
from dlc_backend_vta.program import compile_function
from dlc_backend_vta.support import ANCHORS, CHECKS, Verdict, accepts
from dlc_core.graph import post_order
from dlc_core.rewrite import Match, match_any
from dlc_core.target import Artifact, Target
from dlc_core.target.partitioner import Partitioner, Region, RegionPattern


def _accepts(found: Match, target: Target) -> Verdict:
    return accepts(found.root, Config.of(target.values()))


def _worth(region: Region, target: Target) -> Verdict:
    """A region needs something that the machine is good at: alone, a few additions stay on the host."""
    if any(each.op.name in ANCHORS for each in post_order(region.function.body)):
        return True
    return "it has no product, no maximum over windows and no requantization"


def _compile(region: Region, target: Target) -> Artifact:
    return compile_function(region.name, region.function, target)


def partitioner() -> Partitioner:
    """What the hook gives: each operation is a pattern, and neighbours become one region."""
    patterns = tuple(RegionPattern(name, match_any(name), _accepts) for name in CHECKS)
    return Partitioner("vta", "vta", patterns, _compile, _worth)


__all__ = ["partitioner"]
