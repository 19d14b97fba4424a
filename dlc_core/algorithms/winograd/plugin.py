"""The hooks of the slice."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl


@hookimpl
def dlc_ops() -> Iterable[Declaration]:
    from dlc_core.algorithms.winograd.op import OPS

    return OPS


@hookimpl
def dlc_passes() -> Iterable[Declaration]:
    from dlc_core.algorithms.winograd.graph_pass import Winograd

    return (Winograd,)


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_core.algorithms.winograd.rule import WinogradRule

    return (WinogradRule(),)
