"""The hooks of the slice."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl


@hookimpl
def dlc_rules() -> Iterable[Declaration]:
    from dlc_core.algorithms.attention.matcher import RULES

    return RULES


@hookimpl
def dlc_passes() -> Iterable[Declaration]:
    from dlc_core.algorithms.attention.graph_pass import Attention

    return (Attention,)


@hookimpl
def dlc_plans() -> Iterable[Declaration]:
    from dlc_core.algorithms.attention.plan import PLANS

    return PLANS


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_core.algorithms.attention.cpu_rule import TiledAttentionRule
    from dlc_core.algorithms.attention.gpu_matrix_rule import OnlineAttentionRule
    from dlc_core.algorithms.attention.gpu_rule import TwoPassAttentionRule

    return (TiledAttentionRule(), OnlineAttentionRule(), TwoPassAttentionRule())
