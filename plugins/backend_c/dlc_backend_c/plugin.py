"""What this package gives to dlc: the kinds `c` and `c_emulated`, their code generators and devices."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.hooks import Declaration, hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    from dlc_backend_c.emulated import EMULATED_KIND
    from dlc_backend_c.kind import KIND

    return [KIND, EMULATED_KIND]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    from dlc_backend_c.codegen import CCodegen
    from dlc_backend_c.emulated import EmulatedCodegen

    return [CCodegen(), EmulatedCodegen()]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    from dlc_backend_c.device import CDevice
    from dlc_backend_c.emulated import EmulatedDevice

    return [CDevice(), EmulatedDevice()]
