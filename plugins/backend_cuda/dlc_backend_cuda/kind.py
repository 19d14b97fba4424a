"""The target kinds `cuda` and `cuda_simulated`, described by the number of an architecture.

Compiling needs no device: `-arch=sm_90` names the architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_backend_cuda import nvrtc
from dlc_backend_cuda.architectures import GROUPS, STATIC_SHARED, USUAL, architecture, matrix_units
from dlc_backend_cuda.driver import problem
from dlc_backend_cuda.polyfills import STAGES
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import TargetError
from dlc_core.target import BYTE_DOTS, COMPUTED, Description, Option, TargetKind
from dlc_core.tir.tensor_copy import Bulk
from dlc_core.tir.threads import SWIZZLED

OPTIONS = (
    Option("arch", "str", USUAL, "the architecture of the code, sm_70 to sm_120"),
    Option("tf32", "bool", False, "multiply float32 by matrix units, which round operands to 10 bits"),
    Option("units", "int", 0, "the number of multiprocessors; 0: that of a typical card of the architecture"),
)

CODES = ("", "binary", "text")
DEVICE_OPTIONS = (
    *OPTIONS,
    Option(
        "code",
        "str",
        "",
        "binary: machine code and PTX, by NVRTC; text: compiled when it is loaded; empty: binary with NVRTC",
    ),
    Option(
        "codegen",
        "str",
        "",
        "the code generator: empty for that of this package, or nvptx of dlc-backend-llvm",
    ),
    Option("device", "int", 0, "the number of the device that runs it"),
)

DLPACK = 2
"""The DLPack type of CUDA devices."""
AXES = ("x", "y", "z")
SIDES = (1024, 1024, 64)
"""The maximum number of threads of a group along each axis."""
WARP = 32
RESERVED_SHARED = (2 << 10) + 64
"""The bytes of a multiprocessor's shared memory that the driver reserves, and those of the barriers of tensor
copies.
"""
REGISTERS = 255
"""The maximum number of registers of a thread."""
UNIT_REGISTERS = 1 << 16
_L1_SHARED = 32 << 10
"""The bytes of L1 cache of a multiprocessor that remain if shared memory is fully used, at least."""


def description(options: Mapping[str, Any]) -> Description:
    """The description that schedules read. Raises TargetError for invalid options."""
    if options["units"] < 0:
        raise TargetError(f"target option -units={options['units']}: not a number of multiprocessors")
    each = architecture(options["arch"])
    units, units_of = options["units"] or each.units, matrix_units(each, options)
    return Description(
        parallel=False,
        dtypes=COMPUTED,
        cores=units,
        fma=True,
        caches=(_L1_SHARED, each.cache),
        cache_line=128,
        access_align=16,
        memory_scopes=("global", "shared", "local", *[SWIZZLED] * any(unit.in_place for unit in units_of)),
        thread_axes={
            **{f"block.{axis}": most for axis, most in zip(AXES, GROUPS, strict=True)},
            **{f"thread.{axis}": most for axis, most in zip(AXES, SIDES, strict=True)},
        },
        group_threads=SIDES[0],
        shared_bytes=(each.unit_shared_kib << 10) - RESERVED_SHARED if units_of else STATIC_SHARED,
        pipeline_stages=STAGES if units_of else 2,
        bulk=Bulk() if any(unit.in_place for unit in units_of) else None,
        subgroup=WARP,
        dots=BYTE_DOTS,
        thread_registers=REGISTERS,
        unit_registers=UNIT_REGISTERS,
        unit_threads=each.unit_threads,
        unit_shared_bytes=each.unit_shared_kib << 10,
        vector_units=each.multiply_adds,
        matrix_units=units_of,
        frequency=each.frequency,
        memory_bandwidth=each.bandwidth / units,
    )


def is_binary(options: Mapping[str, Any]) -> bool:
    """Whether kernels are compiled to binaries now. Raises TargetError for an invalid option `code`."""
    code = options.get("code", "text")
    if code not in CODES:
        raise TargetError(f"target option -code={code}: neither binary nor text")
    return code == "binary" or (code == "" and nvrtc.problem() is None)


def identity(options: Mapping[str, Any]) -> str:
    """The version of the compiler, for cache keys."""
    return nvrtc.version() if is_binary(options) else ""


KIND = TargetKind(
    name="cuda",
    doc="CUDA devices: machine code for an architecture, by NVRTC",
    codegen="cuda",
    device="cuda",
    foreign=("cuda",),
    options=DEVICE_OPTIONS,
    describe=description,
    problem=problem,
    identity=identity,
    keys=("cuda", "gpu"),
    device_type=DLPACK,
)

SIMULATED_KIND = TargetKind(
    name="cuda_simulated",
    doc="the CUDA C of the kind cuda, simulated on the CPU; needs no driver",
    codegen="cuda",
    device="cuda_simulated",
    foreign=("cuda",),
    options=(
        *OPTIONS,
        Option("check", "bool", False, "report accesses out of bounds and races between threads"),
    ),
    describe=description,
    problem=compiler_problem,
    keys=("cuda", "gpu"),
)

__all__ = ["AXES", "DLPACK", "KIND", "SIMULATED_KIND", "description", "is_binary"]
