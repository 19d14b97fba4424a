"""The declarations of this package: target kinds, their code generator and devices."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, Deferred, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    return [
        Deferred("cuda", "dlc_backend_cuda.kind:KIND", {"host_rank": 0}),
        Deferred("cuda_simulated", "dlc_backend_cuda.kind:SIMULATED_KIND", {"host_rank": 0}),
    ]


@hookimpl
def dlc_target_tags() -> Iterable[Declaration]:
    from dlc_backend_cuda.tags import TAGS

    return TAGS


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    return [
        Deferred("cuda", "dlc_backend_cuda.codegen:CODEGEN"),
    ]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    return [
        Deferred("cuda", "dlc_backend_cuda.device:DEVICE"),
        Deferred("cuda_simulated", "dlc_backend_cuda.simulated:DEVICE"),
    ]
