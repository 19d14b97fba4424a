"""The declarations of this package: the target kind, the code generator, the device, and a rule."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_backend_dpu.device import DpuDevice
from dlc_backend_dpu.kind import KIND
from dlc_backend_dpu.language import DpuCodegen
from dlc_backend_dpu.rules import PadProduct
from dlc_core.hooks import Declaration, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    return [KIND]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    return [DpuCodegen()]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    return [DpuDevice()]


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    return [PadProduct()]
