"""The declarations of this package: the kinds `llvm`, `emulated` and `wasm32`, their code generator, devices
and tags.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Command, Declaration, Deferred, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    return [
        Deferred("llvm", "dlc_backend_llvm.kind:KIND", {"host_rank": 100}),
        Deferred("emulated", "dlc_backend_llvm.kind:EMULATED", {"host_rank": 0}),
        Deferred("wasm32", "dlc_backend_llvm.kind:WASM", {"host_rank": 0}),
    ]


@hookimpl
def dlc_target_tags() -> Iterable[Declaration]:
    from dlc_backend_llvm.tags import TAGS

    return TAGS


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    return [
        Deferred("llvm", "dlc_backend_llvm.codegen:CODEGEN"),
        Deferred("nvptx", "dlc_backend_llvm.nvptx:CODEGEN"),
    ]


@hookimpl
def dlc_tensor_intrins() -> Iterable[Declaration]:
    from dlc_backend_llvm.dots import DOTS
    from dlc_core.schedule.dots import dot_intrins

    return [intrin for dot in DOTS for intrin in dot_intrins(dot)]


@hookimpl
def dlc_commands() -> Iterable[Command]:
    about = "Write the C runtime, which runs compiled models without Python."
    return [Command("runtime", "dlc_backend_llvm.cli:runtime", about)]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    return [
        Deferred("cpu", "dlc_backend_llvm.device:DEVICE"),
        Deferred("emulator", "dlc_backend_llvm.emulator.device:DEVICE"),
        Deferred("wasm", "dlc_backend_llvm.wasm.device:DEVICE"),
    ]
