"""The device `cuda`: memory, programs and one in-order stream of a CUDA device of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_backend_cuda import nvrtc
from dlc_backend_cuda.codegen import ARCH, BINARY, CODE_BYTES, CODEGEN, PTX, TEXT
from dlc_backend_cuda.driver import PycudaDriver
from dlc_backend_cuda.kind import DLPACK
from dlc_core.backend.driven import DrivenDevice, Session
from dlc_core.backend.stream import Driver
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.target import Artifact, Target
from dlc_core.target.artifact import GENERATED
from dlc_core.target.confined import PlainText

PTX_RULE = PlainText(r"^[ \t]*#|(?i:\.include)\b")
"""PTX is code for any device, which the driver compiles. It needs no permission, but may not name files."""


class CudaDevice(DrivenDevice):
    """A CUDA device of this machine. It is opened on first use. `at` returns the device that a
    target names.
    """

    name = "cuda"
    formats = (BINARY, PTX, TEXT)
    source_formats = CODEGEN.source_formats

    def __init__(self, number: int = 0, open_driver: Callable[[int], Driver] = PycudaDriver) -> None:
        super().__init__(number)
        self._number = number
        self._open = open_driver
        self.dlpack_device = DLPACK, number

    def at(self, target: Target) -> CudaDevice:
        """The device that the options of a target name."""
        found: CudaDevice = self.like(int(target["device"]))
        return found

    def another(self, which: Any) -> CudaDevice:
        """The device with this number."""
        return CudaDevice(which, self._open)

    def opened(self) -> Session:
        """Open the device. Raises UnsupportedError if pycuda, the driver or a device is missing, and
        TargetError if there is no device with this number.
        """
        return Session(self._open(self._number))

    def image(self, driver: Driver, artifact: Artifact) -> bytes:
        """See `image_for`."""
        return image_for(driver, artifact)


def image_for(driver: Driver, artifact: Artifact) -> bytes:
    """The image of an artefact that the driver loads: machine code if it is for this device, else PTX. CUDA C
    is compiled now.

    Raises ArtifactError for malformed metadata, and UnsupportedError if the device is older than the code.
    """
    made = artifact.metadata.get(ARCH)
    size = artifact.metadata.get(CODE_BYTES, 0)
    if not isinstance(made, str) or not isinstance(size, int) or not 0 <= size <= len(artifact.code):
        raise ArtifactError("the metadata of the code is malformed", hint="compile the model again")
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
    ptx = artifact.code[size:]
    if artifact.reading != GENERATED:
        PTX_RULE.check(ptx)
    return ptx + b"\0"  # the driver expects a zero byte at the end


def _version(arch: str) -> tuple[int, int]:
    """(major, minor) version of an architecture. Machine code runs on devices with the same major version and
    at least the same minor version.
    """
    number = arch.removeprefix("sm_").rstrip("af")
    if not number.isdecimal():
        raise ArtifactError(
            f"the code is for {arch!r}, which is not an architecture", hint="compile the model again"
        )
    return divmod(int(number), 10)


DEVICE = CudaDevice()

__all__ = ["DEVICE", "CudaDevice", "image_for"]
