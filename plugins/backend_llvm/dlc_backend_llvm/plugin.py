"""What this package gives to dlc: the target kinds `llvm` and `emulated`, their code generator,
and the devices `cpu` and `emulator`."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    from dlc_backend_llvm.kind import EMULATED, KIND

    return [KIND, EMULATED]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    from dlc_backend_llvm.codegen import LlvmCodegen
    from dlc_backend_llvm.nvptx import NvptxCodegen

    return [LlvmCodegen(), NvptxCodegen()]


@hookimpl
def dlc_tensor_intrins() -> Iterable[Declaration]:
    from dlc_backend_llvm.dots import DOTS
    from dlc_core.schedule.dots import dot_intrins

    return [intrin for dot in DOTS for intrin in dot_intrins(dot)]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    from dlc_backend_llvm.device import CpuDevice
    from dlc_backend_llvm.emulator.device import EmulatorDevice

    return [CpuDevice(), EmulatorDevice()]
