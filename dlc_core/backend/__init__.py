"""Base classes of backends: a code generator of the C family, and a simulated device that runs its code.

    class NpuCodegen(SourceCodegen):
        name, kinds, format = "npu", ("npu",), "npu-c"

    class NpuDevice(SimulatedDevice):
        name, formats = "npu", ("npu-c",)

Both are complete, so a package with these lines and a target kind runs all models. A vendor replaces one part
at a time: first the table of the language and the writer, then the device.

Backends of devices that run kernels over thread axes inherit `LaunchCodegen` and `LaunchDevice` instead (see
`launching`).

A vendor that already has a compiler for parts of a model declares a `Partitioner` instead (see
`dlc_core.target.partitioner`).
"""

from typing import TYPE_CHECKING

from dlc_core.support.lazy import names_of

if TYPE_CHECKING:
    from dlc_core.backend.blocks import Blocks
    from dlc_core.backend.codegen import SourceCodegen
    from dlc_core.backend.launches import Kernel, Launch, LaunchList, find_entry, read_launches
    from dlc_core.backend.launching import LaunchCodegen, LaunchDevice, LaunchEntry, LaunchProgram
    from dlc_core.backend.library import Library, LibraryEntry, load_library
    from dlc_core.backend.queue import CommandQueue, Event
    from dlc_core.backend.simt import SimtProgram, Spelling, load_simt
    from dlc_core.backend.simulated import SimulatedDevice, SimulatedEntry, SimulatedProgram
    from dlc_core.target.partitioner import Part, Partitioner, Region, RegionPattern
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            "blocks": "Blocks",
            "codegen": "SourceCodegen",
            "launches": "Kernel Launch LaunchList find_entry read_launches",
            "launching": "LaunchCodegen LaunchDevice LaunchEntry LaunchProgram",
            "library": "Library LibraryEntry load_library",
            "queue": "CommandQueue Event",
            "simt": "SimtProgram Spelling load_simt",
            "simulated": "SimulatedDevice SimulatedEntry SimulatedProgram",
            "dlc_core.target.partitioner": "Part Partitioner Region RegionPattern",
        },
    )

__all__ = [
    "Blocks",
    "CommandQueue",
    "Event",
    "Kernel",
    "Launch",
    "LaunchCodegen",
    "LaunchDevice",
    "LaunchEntry",
    "LaunchList",
    "LaunchProgram",
    "Library",
    "LibraryEntry",
    "Part",
    "Partitioner",
    "Region",
    "RegionPattern",
    "SimtProgram",
    "SimulatedDevice",
    "SimulatedEntry",
    "SimulatedProgram",
    "SourceCodegen",
    "Spelling",
    "find_entry",
    "load_library",
    "load_simt",
    "read_launches",
]
