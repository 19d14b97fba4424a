"""The target kind `opencl`: a device by its number, or a device described by options.

Compiling needs no device. Without `-device` the code uses only features that every current device has, and
runs on the first device. With `-device` the device's properties are used. Explicit options override them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_backend_opencl.platforms import find_device, problem, pyopencl
from dlc_backend_opencl.pocl import vector_registers
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import TargetError
from dlc_core.runtime.machine.resources import processor_facts
from dlc_core.target import BYTE_DOTS, COMPUTED, Description, Option, TargetKind

FP64, SHUFFLES = "cl_khr_fp64", "cl_khr_subgroup_shuffle"
INTEGER_DOTS = "cl_khr_integer_dot_product"

OPTIONS = (
    Option("platform", "str", "", "the platform of the device: a number, or a part of its name; empty: any"),
    Option(
        "device",
        "str",
        "",
        "the device that code is for: a number, or a part of its name; empty: any; the first one runs it",
    ),
    Option(
        "group-threads", "int", 0, "the maximum number of threads of a group; 0: that of the device, or 256"
    ),
    Option("shared-bytes", "int", 0, "bytes of shared memory of a group; 0: those of the device, or 32 KiB"),
    Option("subgroup", "int", 0, "threads of a subgroup; 0: those of the device, or none"),
    Option(
        "vector-bits",
        "int",
        0,
        "vector bits of a CPU, whose groups have one thread; 0: those of the device, or code for GPUs",
    ),
    Option("cores", "int", 0, "compute units; 0: those of the device, or 16"),
    Option("extensions", "strs", (), "extensions of the device, such as cl_khr_fp64"),
)

DLPACK = 4
"""The DLPack type of OpenCL devices."""
AXES = ("x", "y", "z")
_GROUPS = (1 << 31) - 1
"""The maximum number of groups along an axis. OpenCL limits only the number of threads, which has at least 32
bits.
"""
WIDEST = 256
"""The maximum number of bits of vectors. Some drivers of CPUs fail with wider ones."""
PROCESSOR = "processor"
"""The key in `Description.extra` that says that groups have one thread (see `processors`)."""
_LANES = 64
"""The multiply-adds per cycle of a compute unit of a GPU. Drivers do not report it; usual values are 64 and
128.
"""
_CPU_SHARED = 256 << 10
"""The bytes of shared memory of a group on CPUs, so that it stays in cache: CPUs have no separate local
memory.
"""


def description(options: Mapping[str, Any]) -> Description:
    """The description that schedules read. Raises TargetError for invalid options, and if the named device
    does not exist.
    """
    threads, shared = options["group-threads"] or 256, options["shared-bytes"] or 32 << 10
    for name in ("group-threads", "shared-bytes", "subgroup", "vector-bits", "cores"):
        if options[name] < 0:
            raise TargetError(f"target option -{name}={options[name]}: must not be negative")
    for name in ("subgroup", "vector-bits"):
        if options[name] & (options[name] - 1):
            raise TargetError(f"target option -{name}={options[name]}: not a power of two")
    if 0 < options["vector-bits"] < 32:
        raise TargetError(f"target option -vector-bits={options['vector-bits']}: too narrow for a vector")
    sides = (threads, threads, min(threads, 64))
    cores, subgroup, line = 16, 0, 64
    vector_bits, registers = options["vector-bits"], Description.vector_registers
    extensions = frozenset(options["extensions"])
    dtypes, frequency = COMPUTED, Description.frequency
    if is_named(options):
        device = find_device(options["platform"], options["device"])
        threads = options["group-threads"] or device.max_work_group_size
        sides = tuple(min(threads, side) for side in device.max_work_item_sizes)
        shared = options["shared-bytes"] or min(device.local_mem_size, _CPU_SHARED)
        cores, line = device.max_compute_units, device.global_mem_cacheline_size or line
        frequency = 1e6 * device.max_clock_frequency or frequency
        if device.type & pyopencl().device_type.CPU:
            vector_bits = vector_bits or min(WIDEST, 32 * device.native_vector_width_float)
            registers = vector_registers(processor_facts())
        extensions |= frozenset(device.extensions.split())
        if FP64 not in extensions:
            dtypes = tuple(name for name in COMPUTED if name != "float64")
    if SHUFFLES in extensions:
        subgroup = options["subgroup"]
    return Description(
        parallel=False,
        dtypes=dtypes,
        cores=options["cores"] or cores,
        vector_bits=vector_bits,
        vector_registers=registers,
        fma=True,
        cache_line=line,
        access_align=16,
        memory_scopes=("global", "shared", "local"),
        thread_axes={
            **{f"block.{axis}": _GROUPS for axis in AXES},
            **{f"thread.{axis}": side for axis, side in zip(AXES, sides, strict=True)},
        },
        group_threads=threads,
        shared_bytes=shared,
        subgroup=subgroup,
        intrinsics=extensions,
        dots=BYTE_DOTS if INTEGER_DOTS in extensions else (),
        vector_units=Description.vector_units if vector_bits else _LANES,
        frequency=frequency,
        extra={PROCESSOR: True} if vector_bits else {},
    )


def is_named(options: Mapping[str, Any]) -> bool:
    """Whether the options name a device, whose properties are then queried."""
    return bool(options["platform"] or options["device"])


def identity(options: Mapping[str, Any]) -> str:
    """A text for cache keys: the device that the options name, and its driver."""
    if not is_named(options):
        return ""
    device = find_device(options["platform"], options["device"])
    return f"{device.platform.name} {device.name} {device.driver_version}"


KIND = TargetKind(
    name="opencl",
    doc="OpenCL devices: GPUs, and CPUs through PoCL",
    codegen="opencl",
    device="opencl",
    foreign=("opencl",),
    options=OPTIONS,
    describe=description,
    problem=problem,
    identity=identity,
    keys=("opencl", "gpu"),
    device_type=DLPACK,
)

SIMULATED_KIND = TargetKind(
    name="opencl_simulated",
    doc="the OpenCL C of the kind opencl, simulated on the CPU; needs no driver",
    codegen="opencl",
    device="opencl_simulated",
    foreign=("opencl",),
    options=(
        *OPTIONS,
        Option("check", "bool", False, "report accesses out of bounds and races between threads"),
    ),
    describe=description,
    problem=compiler_problem,
    identity=identity,
    keys=("opencl", "gpu"),
)

__all__ = [
    "AXES",
    "DLPACK",
    "FP64",
    "INTEGER_DOTS",
    "KIND",
    "PROCESSOR",
    "SHUFFLES",
    "SIMULATED_KIND",
    "WIDEST",
    "description",
    "is_named",
]
