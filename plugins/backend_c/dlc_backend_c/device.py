"""The device `c`: it compiles C sources by this machine's C compiler and runs them in this process."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_backend_c.codegen import FORMAT
from dlc_core.backend import Library, LibraryEntry, load_library
from dlc_core.runtime.device import HostMemory
from dlc_core.target import Artifact


class CDevice(HostMemory):
    """This process's memory and cores.  Handles are addresses."""

    name = "c"
    formats = (FORMAT,)
    dlpack_device = (1, 0)

    def load(self, artifact: Artifact) -> Library:
        """Compile and map the code; none of it runs yet."""
        return load_library(artifact)

    def launch(
        self, entry: LibraryEntry, buffers: Sequence[int], scalars: Sequence[int], threads: int
    ) -> None:
        """Returns when the work is done."""
        entry(buffers, scalars, threads)


DEVICE = CDevice()

__all__ = ["DEVICE", "CDevice"]
