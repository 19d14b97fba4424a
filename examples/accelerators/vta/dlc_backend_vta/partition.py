"""Which parts of a graph go to the machine, through the hook `dlc_partitioners`."""

from __future__ import annotations

import math

from dlc_backend_vta.config import Config
from dlc_backend_vta.program import compile_function
from dlc_backend_vta.support import ANCHORS, CHECKS, Verdict, accepts, sizes
from dlc_core.backend import Partitioner, Region, RegionPattern
from dlc_core.graph import post_order
from dlc_core.ir.types import TensorType
from dlc_core.rewrite import Match, match_any
from dlc_core.target import Artifact, Target


def _accepts(found: Match, target: Target) -> Verdict:
    return accepts(found.root, Config.of(target.values()))


def _worth(region: Region, target: Target) -> Verdict:
    """A region needs something that the machine is good at, and room in the card's memory.

    Alone, a few additions stay on the host.
    """
    nodes = [each for each in post_order(region.function.body) if isinstance(each.type, TensorType)]
    if not any(each.op.name in ANCHORS for each in nodes):
        return "it has no product, no maximum over windows and no requantization"
    size = sum(math.prod(sizes(each)) * each.dtype.itemsize for each in nodes)
    room = Config.of(target.values()).dram_mb << 20
    return True if size <= room else f"its tensors have {size} bytes, the card {room}"


def _compile(region: Region, target: Target) -> Artifact:
    return compile_function(region.name, region.function, target)


def partitioner() -> Partitioner:
    """The declaration of the hook: each operation is a pattern, and neighbours become one region."""
    patterns = tuple(RegionPattern(name, match_any(name), _accepts) for name in CHECKS)
    return Partitioner("vta", "vta", patterns, _compile, _worth)


__all__ = ["partitioner"]
