"""The plans of attention: how a kernel computes it.

The queries of a tile, and the keys of a panel, are computed together.  Each plan has its lowering and its
schedule rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from dlc_core import te
from dlc_core.algorithms.attention.online import online
from dlc_core.algorithms.attention.stages import stages_of
from dlc_core.algorithms.attention.tiled import tiled
from dlc_core.algorithms.attention.tiled_dots import tiled_dots
from dlc_core.algorithms.attention.two_pass import two_pass
from dlc_core.diag import UsageError
from dlc_core.ir.dtype import dtype
from dlc_core.ir.plan import Plan
from dlc_core.ir.types import TensorType
from dlc_core.support.record import record


@record(frozen=True)
class AttentionPlan(Plan):
    """The base class of plans: a tile has `rows` queries, a panel has `panel` keys.

    UsageError if a size is below 1.
    """

    fuses_data_movement: ClassVar[bool] = True
    rows: int
    panel: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise UsageError(f"the plan {self.name!r}: {each.name} is {value}", hint="it is at least 1")


@record(frozen=True)
class Tiled(AttentionPlan):
    """All scores of a tile of queries are stored, panel by panel, before their softmax.

    For a single query both sizes are 1.
    """

    name: ClassVar[str] = "attention.tiled"

    def lower(self, type_: TensorType, attrs: Mapping[str, Any], *tensors: te.Tensor) -> te.Tensor:
        q, k, v, *masks = tensors
        return tiled(type_, stages_of(self.rows, self.panel, type_, attrs, q, k, masks), q, k, v)


@record(frozen=True)
class TiledDots(Tiled):
    """`Tiled`, whose products are dot products: of `group` elements of the dtype `operands` for each of
    `lanes` accumulators in float32.  A panel has whole vectors of keys.
    """

    name: ClassVar[str] = "attention.tiled_dots"
    operands: str
    group: int
    lanes: int

    def lower(self, type_: TensorType, attrs: Mapping[str, Any], *tensors: te.Tensor) -> te.Tensor:
        q, k, v, *masks = tensors
        stages = stages_of(self.rows, self.panel, type_, attrs, q, k, masks)
        return tiled_dots(type_, stages, dtype(self.operands), self.group, self.lanes, q, k, v)


@record(frozen=True)
class TwoPass(AttentionPlan):
    """A group of `thread_rows` × `thread_columns` threads computes the scores of a tile twice and stores them
    nowhere.
    """

    name: ClassVar[str] = "attention.two_pass"
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        """Threads of the group."""
        return self.thread_rows * self.thread_columns

    def lower(self, type_: TensorType, attrs: Mapping[str, Any], *tensors: te.Tensor) -> te.Tensor:
        q, k, v, *masks = tensors
        return two_pass(type_, stages_of(self.rows, self.panel, type_, attrs, q, k, masks), q, k, v)


@record(frozen=True)
class Online(AttentionPlan):
    """Subgroups with a matrix unit compute a tile with online softmax; each takes the rows of one product.

    `unit` is the name of the unit.  `lanes` threads share a row of its results, and each of them holds
    `neighbours` neighbouring elements.  `double_buffered` says whether keys and values are double-buffered.
    """

    name: ClassVar[str] = "attention.online"
    unit: str
    subgroups: int
    lanes: int
    neighbours: int
    double_buffered: bool

    def lower(self, type_: TensorType, attrs: Mapping[str, Any], *tensors: te.Tensor) -> te.Tensor:
        q, k, v, *masks = tensors
        stages = stages_of(self.rows, self.panel, type_, attrs, q, k, masks)
        return online(type_, stages, (self.lanes, self.neighbours), q, k, v)


PLANS = (Tiled, TiledDots, TwoPass, Online)

__all__ = ["PLANS", "AttentionPlan", "Online", "Tiled", "TiledDots", "TwoPass"]
