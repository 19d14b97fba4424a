"""What this package gives to dlc: the kind `opencl`, its code generator and its device."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    from dlc_backend_opencl.kind import KIND

    return [KIND]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    from dlc_backend_opencl.codegen import OpenclCodegen

    return [OpenclCodegen()]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    from dlc_backend_opencl.device import OpenclDevice

    return [OpenclDevice()]
