"""The properties of a processor, read from this machine or derived from the text of a target.

    host_cpu() -> HostCpu                                   this machine (cached)
    describe(triple, cpu="", features="", *, cores=4) -> HostCpu      any machine, from text
    usable_cores() -> int                                   min(affinity, cgroup quota rounded up)

This machine is described by its *features*, because many virtual machines report a wrong CPU name. On x86-64
the `cpu` for LLVM is therefore the highest level (such as `x86-64-v3`) whose features this machine has,
together with the full list of features. There is no table of the vector units of CPUs. Instead, a fused
multiply-add of 16 floats is compiled, and the registers in the assembly are read.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from dlc_backend_llvm.amx import tiles_allowed
from dlc_backend_llvm.binding import LOCK, installed, llvm
from dlc_backend_llvm.cpu import AMX, LEVELS, HostCpu
from dlc_backend_llvm.dots import PROBES, read_probes
from dlc_backend_llvm.trial import CALLS, assembly, tried, unknown_names
from dlc_backend_llvm.triples import check_served, full_triple, normal_arch
from dlc_core.diag import TargetError
from dlc_core.disk_cache import disk_cached
from dlc_core.driver.digests import code_stamp
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.runtime.machine.resources import TYPICAL_CACHES, cache_sizes, processor_facts

_HALF_WIDE = {"znver4": 256}
"""Processors whose arithmetic units are narrower than their vector registers, with the width of the units in
bits.
"""

_PROBE = """
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.floor.v16f32(<16 x float>)
define void @probe(ptr %a) {
  %x = load <16 x float>, ptr %a, align 64
  %y = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %x, <16 x float> %x)
  store <16 x float> %y, ptr %a, align 64
  ret void
}
define void @probe_rounding(ptr %a) {
  %x = load <16 x float>, ptr %a, align 64
  %y = call <16 x float> @llvm.floor.v16f32(<16 x float> %x)
  store <16 x float> %y, ptr %a, align 64
  ret void
}
define void @probe_float16(ptr %a) {
  %x = load <16 x half>, ptr %a, align 64
  %y = fpext <16 x half> %x to <16 x float>
  %d = fadd <16 x float> %y, %y
  %z = fptrunc <16 x float> %d to <16 x half>
  store <16 x half> %z, ptr %a, align 64
  ret void
}
"""


@lru_cache(maxsize=1)
def host_cpu() -> HostCpu:
    """This machine. The result is cached, so affinity and quota are read once; `usable_cores` reads them
    again.

    The answers of LLVM are also stored on disk for other processes.
    """
    words, stamp = processor_facts(), installed()
    if words and stamp:
        # The key contains the source of the probes and of the code that reads the assembly.
        cache_key = "\n".join((stamp, words, code_stamp(str(Path(__file__).parent))))
        known = disk_cached("host", cache_key, _query_llvm)
    else:
        known = _query_llvm()
    triple, cpu, features, bits, registers, fma, rounding, float16, dots, units = json.loads(known)
    sizes, cores = cache_sizes(), usable_cores()
    return HostCpu(
        triple, cpu, features, bits, registers, fma, *sizes, cores, rounding, float16, frozenset(dots), units
    )


def is_host(triple: str, cpu: str, features: str) -> bool:
    """Whether these are the names of `host_cpu()`.  LLVM has given them, so a trial is not needed."""
    try:
        host = host_cpu()
    except TargetError:  # no code is generated for this machine, but it may compile for others
        return False
    return (triple, cpu, features) == (host.triple, host.cpu, host.features)


def _query_llvm() -> bytes:
    """The triple, cpu, features and vector properties of this machine, as JSON."""
    with LOCK:
        binding = llvm()
        triple = binding.get_process_triple()
        check_served(triple)
        table = dict(binding.get_host_cpu_features())
        name = binding.get_host_cpu_name()
    cpu = name
    if normal_arch(triple) == "x86_64":
        cpu = "x86-64"
        for level, names in LEVELS.items():
            if not all(table.get(feature) for feature in names.split()):
                break
            cpu = level
        table["prefer-256-bit"] = False
        if any(table.get(feature) for feature in AMX) and not tiles_allowed():
            table.update(dict.fromkeys((*AMX, "amx-tile"), False))
    features = ",".join(("+" if on else "-") + feature for feature, on in sorted(table.items()))
    *facts, dots = vector_facts(triple, cpu, features)
    return json.dumps([triple, cpu, features, *facts, sorted(dots), _units(name, facts[0])]).encode()


def _units(cpu: str, bits: int) -> int:
    """The number of multiply-adds of vectors of `bits` bits that a processor starts per cycle. `cpu` is its
    LLVM name.
    """
    return 1 if bits > _HALF_WIDE.get(cpu, bits) else 2


def describe(triple: str, cpu: str = "", features: str = "", *, cores: int = 4) -> HostCpu:
    """The properties of a machine that is given by names.

    An empty `cpu` is the architecture's baseline (rv64gc for RISC-V). Cache sizes are typical ones (32 KB,
    512 KB, 8 MB). Raises TargetError if LLVM does not know the triple, the cpu or a feature.
    """
    check_served(triple)
    arch = normal_arch(triple)
    words = [word.strip() for word in features.split(",") if word.strip()]
    foreign = bool(cpu or words)
    for word in words:
        if word[0] not in "+-" or len(word) < 2:
            raise TargetError(
                f"bad feature {word!r} in a feature list",
                hint="write +name to enable a feature, -name to disable it",
            )
    if not all(text.isascii() and text.isprintable() for text in (cpu, *words)):
        raise TargetError(
            f"the cpu {cpu!r} or the features {features!r} have characters that no name has",
            hint="use LLVM's names",
        )
    asked = [
        (text, "processor" if text == cpu else "feature") for text in (cpu, *words) if text[-4:] == "help"
    ]
    if asked:  # LLVM prints its names to standard error, and goes on
        raise unknown_names(triple, asked)
    if arch == "x86_64":
        cpu = cpu or "x86-64"
        words.insert(0, "+64bit")
        if not any(word[1:] == "prefer-256-bit" for word in words):
            words.append("-prefer-256-bit")
    elif arch == "riscv64" and not cpu:
        cpu = "generic-rv64"
        words = ["+m", "+a", "+f", "+d", "+c", *words]
    elif arch == "wasm32":
        words.insert(0, "+simd128")
    cpu = cpu or "generic"
    text = ",".join(words)
    facts = vector_facts(triple, cpu, text, foreign=foreign)
    if arch == "wasm32":
        facts = facts[0], facts[1], _is_relaxed(text), *facts[3:]
    units = _units(cpu, facts[0])
    return HostCpu(triple, cpu, text, *facts[:3], *TYPICAL_CACHES, cores, *facts[3:], units)


def _is_relaxed(features: str) -> bool:
    """Whether WebAssembly has the vector multiply-adds of relaxed SIMD."""
    signs = {word[1:]: word[0] for word in features.split(",")}
    return signs.get("relaxed-simd") == "+"


@lru_cache(maxsize=64)
def vector_facts(
    triple: str, cpu: str, features: str, *, foreign: bool = False
) -> tuple[int, int, bool, bool, bool, frozenset[str]]:
    """(vector bits, vector registers, fma, rounding, float16, dots) of a machine, read from assembly.

    `foreign` means that a user named the cpu or the features. LLVM may then end the process, so that the
    probe is compiled in another one.
    """
    # LLVM has no conversions to bfloat16 for WebAssembly, and ends the process.
    text = _PROBE + CALLS if normal_arch(triple) == "wasm32" else _PROBE + PROBES + CALLS
    machine = (full_triple(triple), cpu, features, abi_name(triple, features), text)
    if not foreign:
        listing = assembly(*machine)
    elif stamp := installed():
        key = "\n".join((stamp, *machine))
        listing = disk_cached("machine", key, lambda: tried(*machine).encode()).decode()
    else:
        listing = tried(*machine)
    first, _, rest = listing.partition("probe_rounding:")
    second, _, rest = rest.partition("probe_float16:")
    third, _, dots = rest.partition("probe_calls:")[0].partition("probe_bfloat:")
    rounding, float16 = "floorf" not in second, not re.search(r"__(extendhfsf2|truncsfhf2|gnu_)", third)
    found = read_probes("probe_bfloat:" + dots)
    return *_read_probe(normal_arch(triple), first, third), rounding, float16, found


def abi_name(triple: str, features: str) -> str:
    """The name of the calling convention for LLVM. It is only needed on RISC-V, where it depends on the
    widest floats.
    """
    if normal_arch(triple) != "riscv64":
        return ""
    signs = {word[1:]: word[:1] for word in features.split(",")}
    if signs.get("f") == "-":
        return "lp64"
    return "lp64f" if signs.get("d") == "-" else "lp64d"


def _read_probe(arch: str, text: str, addition: str) -> tuple[int, int, bool]:
    """(vector bits, registers, fma) from the assembly of a fused multiply-add and of an addition. Without an
    FMA instruction the former consists of calls.
    """
    if arch == "x86_64":
        fma = "vfmadd" in text
        if "%zmm" in addition:
            return 512, 32, fma
        return (256 if "%ymm" in addition else 128), 16, fma
    if arch == "aarch64":
        return (128, 32, True) if re.search(r"\bfmla(\.4s|\s+v\d+\.4s)", text) else (0, 32, True)
    if arch == "riscv64":
        scalar = bool(re.search(r"\bfmadd\.s\b", text))
        if "vfmadd" not in text and "vfmacc" not in text:
            return 0, 32, scalar
        groups = {"m1": 512, "m2": 256, "m4": 128, "m8": 64}
        found = re.search(r"vset(?:i?)vli\s+[^\n]*\be32, (m[1248])\b", text)
        return (groups[found.group(1)] if found else 128), 32, True
    if arch == "wasm32":
        return (128 if "f32x4.add" in addition else 0), 16, False
    has_vectors = re.search(r"\bvadd\.f32\s+[dq]\d", addition)  # without NEON, floats are in s registers
    return (128 if has_vectors else 0), 16, "fmaf" not in text


__all__ = ["HostCpu", "abi_name", "describe", "host_cpu", "is_host", "usable_cores", "vector_facts"]
