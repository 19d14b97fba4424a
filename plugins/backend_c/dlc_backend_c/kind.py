"""The target kind `c`: any machine with a C compiler. The name of a processor, or options, describe it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from dlc_backend_c.dsp import DOTS
from dlc_backend_c.mve import MVE_DOTS
from dlc_backend_c.processors import processor
from dlc_core.backend.compiler import compiler_problem, compiler_version
from dlc_core.diag import TargetError
from dlc_core.ir.module import IRModule
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.target import COMPUTED, Description, Option, TargetKind
from dlc_core.tir.stmt import PrimFunc

WEIGHTS = ("array", "binary", "object")
"""The forms of the weights in exported sources."""

OPTIONS = (
    Option("mcpu", "str", "", "processor, such as cortex-m7, cortex-a72 or native; empty: any"),
    Option("march", "str", "", "instruction set for the C compiler, such as rv64gcv or x86-64-v3"),
    Option(
        "vector-bits", "int", -1, "bits of vectors; 0: standard C without vectors; -1: those of the processor"
    ),
    Option(
        "num-threads",
        "int",
        1,
        "threads of an executable, by OpenMP; 0: the cores that this process may use",
    ),
    Option(
        "weights",
        "str",
        "array",
        "form in exported sources: array (in the C), binary (a file to load), object (a section)",
    ),
    Option(
        "stream-rows",
        "int",
        0,
        "rows per band of depth-first tiling of the first layers; 0: no such tiling",
    ),
    Option("opt-for", "str", "speed", "speed: unrolled register tiles; size: plain loops"),
)


WIDTHS = (0, *(1 << bits for bits in range(6, 12)))
"""The possible vector widths in bits: 64 to 2048, or 0 for none."""


IN_ORDER: Mapping[str, Any] = {
    "single_issue": True,
    "fma_per_cycle": 1.0,
    "loads_per_cycle": 1.0,
    "fma_latency": 1.0,
    "vector_units": 1,
}
"""The facts of a core that starts one instruction per cycle."""


def vector_bits(options: Mapping[str, Any]) -> int:
    """The vector width in bits for these options; 0 is standard C."""
    if options["opt-for"] == "size":
        return 0
    given: int = options["vector-bits"]
    return given if given >= 0 else processor(options["mcpu"]).vector_bits


def description(options: Mapping[str, Any]) -> Description:
    """The description that schedules read. Raises TargetError for invalid options."""
    for name, words in (("opt-for", ("speed", "size")), ("weights", WEIGHTS)):
        if options[name] not in words:
            raise TargetError(f"target option -{name}={options[name]}: not {' or '.join(words)}")
    for name, known in (("vector-bits", (-1, *WIDTHS)), ("num-threads", None), ("stream-rows", None)):
        value = options[name]
        if value < 0 if known is None else value not in known:
            hint = f"one of {', '.join(map(str, known))}" if known else "0 or more"
            raise TargetError(f"target option -{name}={value}", hint=hint)
    cpu = processor(options["mcpu"])
    bits = vector_bits(options)
    threads = options["num-threads"] or usable_cores()
    return Description(
        vector_bits=bits,
        vector_registers=cpu.vector_registers if bits else cpu.registers,
        integer_registers=cpu.integer_registers,
        fma=cpu.fma,
        caches=cpu.caches,
        stack_bytes=256 if cpu.address_bits == 32 else 1 << 16,
        value_align=64 if bits or threads > 1 else 8,
        cores=threads,
        parallel=threads > 1,
        dtypes=COMPUTED,
        extra={"stream_rows": options["stream-rows"]},
        short_code=options["opt-for"] == "size",
        control=True,
        dots=MVE_DOTS if cpu.mve else DOTS if cpu.dsp else (),
        **(IN_ORDER if cpu.micro else {}),
    )


def index_type(options: Mapping[str, Any], module: IRModule) -> str:
    """The type of indices: 32 bits on 32-bit machines if all sizes are known to fit, else 64 bits."""
    if processor(options["mcpu"]).address_bits > 32:
        return "int64_t"
    for func in module.of_kind(PrimFunc).values():
        shapes = [buffer.static_shape() for buffer in func.buffers]
        if func.scalars or any(s is None or prod(s) * 8 >= 1 << 31 for s in shapes):
            return "int64_t"
    return "int32_t"


def identity(options: Mapping[str, Any]) -> str:
    """A text for cache keys: the processor that `native` means, and the compiler."""
    cpu = processor(options["mcpu"])
    return f"{cpu} {compiler_version()}"


KIND = TargetKind(
    name="c",
    doc="C for any machine: compiled and run here, or exported as sources",
    codegen="c",
    device="c",
    options=OPTIONS,
    describe=description,
    problem=compiler_problem,
    host_rank=10,
    identity=identity,
    keys=("cpu",),
)
