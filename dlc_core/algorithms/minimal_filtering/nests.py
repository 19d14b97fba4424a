"""Common parts of the schedule rules for minimal filtering."""

from __future__ import annotations

from typing import ClassVar

from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.gemm_decisions import PANEL_DECISIONS
from dlc_core.schedule.rules.cpu.maps import MAP_DECISIONS
from dlc_core.schedule.rules.stages import has_static_images, stage_names
from dlc_core.tir.stmt import PrimFunc


class FilteringRule(ScheduleRule):
    """A rule for kernels whose blocks are annotated as all stages of one algorithm. All sizes are known,
    except perhaps the number of images.
    """

    decisions: ClassVar[tuple[str, ...]] = (*MAP_DECISIONS, *PANEL_DECISIONS)
    mark: ClassVar[str]
    """The annotation."""
    stages: ClassVar[tuple[str, ...]]

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return (
            not machine.description.thread_axes
            and stage_names(func, self.mark) == sorted(self.stages)
            and has_static_images(func)
        )


def dividing_lanes(size: int, lanes: int) -> int:
    """Return the widest vector of at most `lanes` elements that divides the channels."""
    while size % lanes:
        lanes //= 2
    return lanes


__all__ = ["FilteringRule", "dividing_lanes"]
