"""The dot-product instructions of processors for narrow elements.

They are found by compiling probes and reading the assembly, like the other facts of `host.py`. If there is no
instruction for a pair of dtypes, other instructions compute the sum. Integer sums are exact modulo 2**32,
like those of the dot-product instructions. Saturating instructions are never used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dlc_backend_llvm.cpu import HostCpu
from dlc_core.support.record import record
from dlc_core.target.description import Dot

PROBES = """
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define void @probe_bfloat(ptr %a) {
  %x = load <16 x float>, ptr %a, align 64
  %y = fptrunc <16 x float> %x to <16 x bfloat>
  store <16 x bfloat> %y, ptr %a, align 64
  ret void
}
define void @probe_words(ptr %a) {
  %x = load <32 x i16>, ptr %a, align 64
  %y = add <32 x i16> %x, <i16 1, i16 2, i16 3, i16 4, i16 5, i16 6, i16 7, i16 8, i16 1, i16 2, i16 3, i16 4,
    i16 5, i16 6, i16 7, i16 8, i16 1, i16 2, i16 3, i16 4, i16 5, i16 6, i16 7, i16 8, i16 1, i16 2, i16 3,
    i16 4, i16 5, i16 6, i16 7, i16 8>
  store <32 x i16> %y, ptr %a, align 64
  ret void
}
""" + "".join(
    f"""
define i32 @probe_{name}(ptr %a, ptr %b) {{
  %x = load <16 x i8>, ptr %a, align 16
  %y = load <16 x i8>, ptr %b, align 16
  %p = {left} <16 x i8> %x to <16 x i32>
  %q = sext <16 x i8> %y to <16 x i32>
  %m = mul <16 x i32> %p, %q
  %r = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %m)
  ret i32 %r
}}
"""
    for name, left in (("mixed", "zext"), ("signed", "sext"))
)
"""LLVM IR whose assembly shows which instructions a processor has."""

_FOUND = {
    "vcvtneps2bf16": r"probe_bfloat:(?:(?!probe_).)*\bvcvtneps2bf16\s+\(%\w+\), %ymm",
    "vpdpbusd": r"probe_mixed:(?:(?!probe_).)*\bvpdpbusd\b",
    "bfcvtn": r"probe_bfloat:(?:(?!probe_).)*\bbfcvtn\b",
    "sdot": r"probe_signed:(?:(?!probe_).)*\bsdot\b",
    "usdot": r"probe_mixed:(?:(?!probe_).)*\busdot\b",
    "words512": r"probe_words:(?:(?!probe_).)*%zmm",
    "words256": r"probe_words:(?:(?!probe_).)*%ymm",
    "words128": r"probe_words:(?:(?!probe_).)*%xmm",
}


def read_probes(text: str) -> frozenset[str]:
    """The dot-product instructions in the assembly of `PROBES`."""
    return frozenset(name for name, form in _FOUND.items() if re.search(form, text, re.DOTALL))


@record(frozen=True)
class Instruction:
    """An LLVM intrinsic that takes accumulators and two vectors with elements `element`. `names` has its name
    for each number of lanes.
    """

    names: dict[int, str]
    element: str


_BF16 = "llvm.x86.avx512bf16.dpbf16ps."
_VNNI = "llvm.x86.avx512.vpdpbusd."
_NEON = "llvm.aarch64.neon."
_X86 = {4: "128", 8: "256", 16: "512"}
_PAIRS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
"""Intrinsics that sum two products of int16, by lanes. With operands in the range of bytes they cannot
overflow.
"""


def instruction(cpu: HostCpu, a: str, b: str) -> Instruction | None:
    """The instruction for operands of these dtypes; None if the processor has none."""
    if (a, b) == ("bfloat16", "bfloat16"):
        if "vcvtneps2bf16" in cpu.dots:
            return Instruction({n: _BF16 + bits for n, bits in _X86.items()}, "bfloat")
        if "bfcvtn" in cpu.dots:
            return Instruction({4: _NEON + "bfdot.v4f32.v8bf16"}, "bfloat")
    signs = {("uint8", "int8"): "usdot", ("int8", "int8"): "sdot", ("uint8", "uint8"): "udot"}
    how = signs.get((a, b))
    if how == "usdot" and "vpdpbusd" in cpu.dots:
        return Instruction({n: _VNNI + bits for n, bits in _X86.items() if n <= cpu.lanes(32)}, "i8")
    if how is not None and ("sdot" if how == "udot" else how) in cpu.dots:
        return Instruction({4: f"{_NEON}{how}.v4i32.v16i8"}, "i8")
    return None


def rounds_bfloat16(cpu: HostCpu) -> bool:
    """Whether rounding float32 to bfloat16 is an instruction."""
    return bool(cpu.dots & {"vcvtneps2bf16", "bfcvtn"})


def pairs_of_words(cpu: HostCpu) -> dict[int, str]:
    """The intrinsics of `_PAIRS` that a processor has."""
    return {n: name for n, name in _PAIRS.items() if f"words{32 * n}" in cpu.dots}


_BYTES = (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"))
DOTS = (
    Dot("bfloat16", "bfloat16", "float32", 2, 16),
    *(Dot(a, b, "int32", 4, 16) for a, b in _BYTES),
)
"""All dot products that some processor has."""


def dots_of(cpu: HostCpu) -> Iterator[Dot]:
    """The dot products that are faster than multiply-adds of wide elements."""
    lanes = cpu.lanes(32)
    bytes_too = "vpdpbusd" in cpu.dots or "sdot" in cpu.dots or lanes in pairs_of_words(cpu)
    for dot in DOTS:
        if bytes_too if dot.acc == "int32" else instruction(cpu, dot.a, dot.b) is not None:
            yield replace(dot, lanes=lanes, steps=_steps(cpu, dot))


def _steps(cpu: HostCpu, dot: Dot) -> int:
    """The cost in instructions: 2 if an instruction for the other signedness is used and its result
    corrected.
    """
    alike = dot.acc != "int32" or not cpu.dots & {"vpdpbusd", "sdot"}
    return 1 if alike or instruction(cpu, dot.a, dot.b) or instruction(cpu, dot.b, dot.a) else 2


__all__ = ["DOTS", "PROBES", "dots_of", "instruction", "pairs_of_words", "read_probes", "rounds_bfloat16"]
