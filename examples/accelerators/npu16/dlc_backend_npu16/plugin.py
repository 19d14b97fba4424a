"""The declarations of the package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlc_backend_npu16.device import Npu16Codegen, Npu16Device
from dlc_backend_npu16.kind import KIND, RULES
from dlc_core.hooks import hookimpl

DLC_API = "0.1"


@hookimpl
def dlc_targets() -> Iterable[Any]:
    return [KIND]


@hookimpl
def dlc_codegens() -> Iterable[Any]:
    return [Npu16Codegen()]


@hookimpl
def dlc_devices() -> Iterable[Any]:
    return [Npu16Device()]


@hookimpl
def dlc_schedule_rules() -> Iterable[Any]:
    return RULES
