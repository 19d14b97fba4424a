"""The declarations of this package: two target kinds, their code generator and devices."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, Deferred, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    return [
        Deferred("opencl", "dlc_backend_opencl.kind:KIND", {"host_rank": 0}),
        Deferred("opencl_simulated", "dlc_backend_opencl.kind:SIMULATED_KIND", {"host_rank": 0}),
    ]


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_backend_opencl.processors import RULES

    return RULES


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    return [
        Deferred("opencl", "dlc_backend_opencl.codegen:CODEGEN"),
    ]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    return [
        Deferred("opencl", "dlc_backend_opencl.device:DEVICE"),
        Deferred("opencl_simulated", "dlc_backend_opencl.simulated:DEVICE"),
    ]
