"""What this package gives to dlc: the target kind `c`, its code generator, and the device `c`."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    from dlc_backend_c.kind import KIND

    return [KIND]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    from dlc_backend_c.codegen import CCodegen

    return [CCodegen()]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    from dlc_backend_c.device import CDevice

    return [CDevice()]
