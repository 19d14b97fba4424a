"""From graphs to tensor programs: groups to PrimFuncs, calls to `main`, values to arena offsets."""

from dlc_core.passes.base import Pass
from dlc_core.passes.lower.group import LowerGroups
from dlc_core.passes.lower.main import BuildMain

PASSES: tuple[type[Pass], ...] = (LowerGroups, BuildMain)

__all__ = ["PASSES", "BuildMain", "LowerGroups"]
