"""What this package gives to dlc: target kinds, their code generator and devices."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    from dlc_backend_cuda.kind import KIND, SIMULATED_KIND

    return [KIND, SIMULATED_KIND]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    from dlc_backend_cuda.codegen import CudaCodegen

    return [CudaCodegen()]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    from dlc_backend_cuda.device import CudaDevice
    from dlc_backend_cuda.simulated import SimulatedCuda

    return [CudaDevice(), SimulatedCuda()]
