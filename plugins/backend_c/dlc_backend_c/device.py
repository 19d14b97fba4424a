"""The device `c`, which compiles C sources by this machine's C compiler and runs them in this process."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_backend_c.codegen import CODEGEN, FORMAT
from dlc_core.backend import Library, LibraryEntry, load_library
from dlc_core.runtime.device import HostMemory
from dlc_core.target import Artifact


class CDevice(HostMemory):
    """The memory and the cores of this process. Handles are addresses."""

    name = "c"
    formats = (FORMAT,)
    source_formats = CODEGEN.source_formats
    dlpack_device = (1, 0)

    def load(self, artifact: Artifact) -> Library:
        """Compile and load the code, without running any of it."""
        return load_library(artifact)

    def launch(
        self, entry: LibraryEntry, buffers: Sequence[int], scalars: Sequence[int], threads: int
    ) -> None:
        """Run an entry point, and return when it has finished."""
        entry(buffers, scalars, threads)


DEVICE = CDevice()

__all__ = ["DEVICE", "CDevice"]
