"""The device `cuda`: memory, programs and one in-order stream of a CUDA device of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_backend_cuda import nvrtc
from dlc_backend_cuda.codegen import ARCH, BINARY, CODE_BYTES, PTX, TEXT
from dlc_backend_cuda.driver import PycudaDriver
from dlc_core.backend.driven import DrivenDevice, Session
from dlc_core.backend.stream import Driver
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.target import Artifact, Target

DLPACK = 2
"""How DLPack calls devices of CUDA."""


class CudaDevice(DrivenDevice):
    """A device of this machine, opened when it is first used; `at` gives that of a target's options."""

    name = "cuda"
    formats = (BINARY, PTX, TEXT)

    def __init__(self, number: int = 0, open_driver: Callable[[int], Driver] = PycudaDriver) -> None:
        super().__init__(number)
        self._number = number
        self._open = open_driver
        self.dlpack_device = DLPACK, number

    def at(self, target: Target) -> CudaDevice:
        """The device that a target's options name."""
        found: CudaDevice = self.like(int(target["device"]))
        return found

    def another(self, which: Any) -> CudaDevice:
        """The device of a number."""
        return CudaDevice(which, self._open)

    def opened(self) -> Session:
        """The device in use.  Raises UnsupportedError without pycuda, driver or device, TargetError for a
        device that is not there.
        """
        return Session(self._open(self._number))

    def image(self, driver: Driver, artifact: Artifact) -> bytes:
        """See `image_for`."""
        return image_for(driver, artifact)


def image_for(driver: Driver, artifact: Artifact) -> bytes:
    """Return the image of an artefact for a device: machine code for it, else PTX, else text compiled now.

    Raises ArtifactError for malformed metadata, and UnsupportedError for an older device.
    """
    made = artifact.metadata.get(ARCH)
    size = artifact.metadata.get(CODE_BYTES, 0)
    if not isinstance(made, str) or not isinstance(size, int) or not 0 <= size <= len(artifact.code):
        raise ArtifactError("the code's description is malformed", hint="compile the model again")
    wanted, own = _version(made), _version(driver.arch)
    alone = made.endswith("a")
    if wanted > own or (alone and wanted != own):
        raise UnsupportedError(
            f"the code is for {made}{' alone' * alone}, and {driver.name} is {driver.arch}",
            hint=f"compile with -arch={driver.arch}",
        )
    if artifact.format == TEXT:
        return nvrtc.compile_kernels(artifact.code.decode(), made if alone else driver.arch).cubin
    if artifact.format == BINARY and wanted[0] == own[0]:
        return artifact.code[:size]
    # A text of PTX ends with a zero.
    return artifact.code[size:] + b"\0"


def _version(arch: str) -> tuple[int, int]:
    """Generation and member: machine code runs on later members of its generation."""
    number = arch.removeprefix("sm_").rstrip("af")
    if not number.isdecimal():
        raise ArtifactError(f"the code is for {arch!r}: no architecture", hint="compile the model again")
    return divmod(int(number), 10)


DEVICE = CudaDevice()

__all__ = ["DEVICE", "CudaDevice", "image_for"]
