"""The plan of a GEMM by Strassen's algorithm: the graph pass makes it, the schedule rule applies it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dlc_core.algorithms.strassen import choice
from dlc_core.algorithms.strassen.op import MATMUL
from dlc_core.ir.plan import Plan
from dlc_core.schedule.rules.cpu.register_tile import Tile
from dlc_core.support.record import record


@record(frozen=True)
class StrassenPlan(Plan):
    """The register tile of the products, and whether all products of a row tile come before the next tile."""

    name: ClassVar[str] = "strassen"
    rows: int
    vectors: int
    by_tiles: bool

    @staticmethod
    def of(plan: choice.Plan) -> StrassenPlan:
        """Make the op's plan from the one that the cost model has chosen."""
        return StrassenPlan(plan.tile.rows, plan.tile.vectors, plan.by_tiles)

    @property
    def chosen(self) -> choice.Plan:
        """The plan for the schedule rule; its cycles are unknown."""
        return choice.Plan(Tile(self.rows, self.vectors), 0.0, self.by_tiles)

    def lower(self, type_: Any, attrs: Mapping[str, Any], *tensors: Any) -> Any:
        """Lower the op as without a plan: the plan affects only the schedule."""
        assert MATMUL.lower is not None
        return MATMUL.lower(type_, attrs, *tensors)


__all__ = ["StrassenPlan"]
