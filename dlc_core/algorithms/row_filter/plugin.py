"""The hooks of the slice."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl


@hookimpl
def dlc_ops() -> Iterable[Declaration]:
    from dlc_core.algorithms.row_filter.op import OPS

    return OPS


@hookimpl
def dlc_passes() -> Iterable[Declaration]:
    from dlc_core.algorithms.row_filter.graph_pass import RowFilter

    return (RowFilter,)


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_core.algorithms.row_filter.rule import RowFilterRule

    return (RowFilterRule(),)
