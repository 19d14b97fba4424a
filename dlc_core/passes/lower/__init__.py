"""Lowering from graphs to tensor programs: groups to PrimFuncs, calls to `main`, values to arena offsets."""

from dlc_core.passes.base import Pass
from dlc_core.passes.lower.costs import RecordCosts
from dlc_core.passes.lower.describe import DescribeGraph
from dlc_core.passes.lower.group import LowerGroups
from dlc_core.passes.lower.host import HostRegions, HostSegments
from dlc_core.passes.lower.instrument import Instrument
from dlc_core.passes.lower.joins import JoinParts
from dlc_core.passes.lower.loops import GrowLoops
from dlc_core.passes.lower.main import BuildMain
from dlc_core.passes.lower.results import CopyResults
from dlc_core.passes.lower.updates import UpdateInPlace

PASSES: tuple[type[Pass], ...] = (
    GrowLoops,
    HostSegments,
    JoinParts,
    LowerGroups,
    UpdateInPlace,
    CopyResults,
    RecordCosts,
    BuildMain,
    Instrument,
    HostRegions,
    DescribeGraph,
)

__all__ = [
    "PASSES",
    "BuildMain",
    "CopyResults",
    "DescribeGraph",
    "GrowLoops",
    "HostRegions",
    "HostSegments",
    "Instrument",
    "JoinParts",
    "LowerGroups",
    "RecordCosts",
    "UpdateInPlace",
]
