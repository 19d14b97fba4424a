"""The declaration of the card's runtime in C (`c_runtime/dpu_device.c`), which exported models call."""

from __future__ import annotations

from pathlib import Path

from dlc_core.backend.deploy import DeviceRuntime, pack_launches, simulated_kernels
from dlc_core.target import Artifact


def code(artifact: Artifact) -> bytes:
    """The launches of an artefact, and its kernels as a library of this machine, as the device runs them. For
    a real card, the vendor's compiler would make the code of the kernels here.
    """
    from dlc_backend_dpu.device import DpuDevice

    return pack_launches(artifact, simulated_kernels(artifact, DpuDevice.spelling))


RUNTIME = DeviceRuntime(
    "dpu",
    "dpu_device_api",
    sources=(Path(__file__).parent / "c_runtime" / "dpu_device.c",),
    libraries=("dl", "pthread"),
    code=code,
)

__all__ = ["RUNTIME"]
