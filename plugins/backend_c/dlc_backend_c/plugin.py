"""The declarations of this package: the kinds `c` and `c_emulated`, their code generators and devices."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, Deferred, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    return [
        Deferred("c", "dlc_backend_c.kind:KIND", {"host_rank": 10}),
        Deferred("c_emulated", "dlc_backend_c.emulated:KIND", {"host_rank": 0}),
    ]


@hookimpl
def dlc_target_tags() -> Iterable[Declaration]:
    from dlc_backend_c.tags import TAGS

    return TAGS


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    return [
        Deferred("c", "dlc_backend_c.codegen:CODEGEN"),
        Deferred("c_emulated", "dlc_backend_c.emulated:CODEGEN"),
    ]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    return [
        Deferred("c", "dlc_backend_c.device:DEVICE"),
        Deferred("c_emulated", "dlc_backend_c.emulated:DEVICE"),
    ]


@hookimpl
def dlc_measures() -> Iterable[Declaration]:
    return [Deferred("c", "dlc_backend_c.boards.tuning:MEASURE")]
