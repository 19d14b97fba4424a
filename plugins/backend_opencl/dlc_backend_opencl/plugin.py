"""What this package gives to dlc: two target kinds, their code generator and devices."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    from dlc_backend_opencl.kind import KIND, SIMULATED_KIND

    return [KIND, SIMULATED_KIND]


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_backend_opencl.processors import RULES

    return RULES


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    from dlc_backend_opencl.codegen import OpenclCodegen

    return [OpenclCodegen()]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    from dlc_backend_opencl.device import OpenclDevice
    from dlc_backend_opencl.simulated import SimulatedOpencl

    return [OpenclDevice(), SimulatedOpencl()]
