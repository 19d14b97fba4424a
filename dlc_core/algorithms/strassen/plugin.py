"""The hooks of the slice."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl


@hookimpl
def dlc_ops() -> Iterable[Declaration]:
    from dlc_core.algorithms.strassen import op, product_rows

    return (*op.OPS, *product_rows.OPS)


@hookimpl
def dlc_plans() -> Iterable[Declaration]:
    from dlc_core.algorithms.strassen.plan import StrassenPlan

    return (StrassenPlan,)


@hookimpl
def dlc_passes() -> Iterable[Declaration]:
    from dlc_core.algorithms.strassen.graph_pass import Strassen

    return (Strassen,)


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_core.algorithms.strassen.rule import StrassenRule
    from dlc_core.algorithms.strassen.two_level_rule import TwoLevelStrassenRule

    return (TwoLevelStrassenRule(), StrassenRule())
