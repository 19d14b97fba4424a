"""What the code generator must know about a processor, read from the machine or from a target's text.

    host_cpu() -> HostCpu                                   this machine (cached)
    describe(triple, cpu="", features="", *, cores=4) -> HostCpu      any machine, from text
    usable_cores() -> int                                   min(affinity, cgroup quota rounded up)

The host is described by its *features*: the CPU's name is wrong on many virtual machines.  On x86-64 the
`cpu` given to LLVM is therefore the highest micro-architecture level (`x86-64-v3`) whose features the
machine really has, with the full feature list beside it.  What a cpu name or a feature list means for
vectors is not kept in a table here: LLVM itself is asked, by compiling a fused multiply-add of 16 floats
and reading which registers the assembly uses.
"""

from __future__ import annotations

import math
import os
import platform
import re
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dlc_backend_llvm.binding import LOCK, llvm
from dlc_core.diag import TargetError

_LEVELS = {
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
_TYPICAL_CACHES = (32 << 10, 512 << 10, 8 << 20)

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


@dataclass(frozen=True)
class HostCpu:
    """A processor as the code generator sees it.  Sizes are in bytes; caches are per core except the last
    level.
    """

    triple: str
    cpu: str
    features: str
    """Comma-separated `+name` / `-name`, as LLVM takes them."""
    vector_bits: int
    """Width of the widest vector register that code should use; 0 where there is no vector unit."""
    vector_registers: int
    fma: bool
    """Whether `llvm.fma` on floats is one instruction (else it is a libm call per lane and must be avoided).
    """
    l1d: int
    l2: int
    l3: int
    cores: int
    """Cores this process may use (affinity and cgroup quota considered)."""
    rounding: bool = True
    """Whether floor, ceil, trunc and roundeven are instructions (else libm calls per lane)."""
    float16: bool = False
    """Whether float16 <-> float32 conversion is an instruction."""

    @property
    def arch(self) -> str:
        """`x86_64`, `aarch64`, `riscv64` or the first word of any other triple, normalised."""
        return normal_arch(self.triple)

    def has(self, feature: str) -> bool:
        """Whether the feature list (or the x86-64 level named as cpu) switches `feature` on."""
        for word in reversed(self.features.split(",")):
            if word[1:] == feature:
                return word[0] == "+"
        for level, names in _LEVELS.items():
            if self.cpu >= level and self.cpu in _LEVELS and feature in names.split():
                return True
        return False

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits one vector register holds (at least 1)."""
        return max(1, self.vector_bits // bits)


def normal_arch(triple: str) -> str:
    """The architecture of a triple under one spelling: `x86_64`, `aarch64`, `riscv64`, ..."""
    word = triple.split("-")[0].lower()
    return {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}.get(word, word)


@lru_cache(maxsize=1)
def host_cpu() -> HostCpu:
    """This machine.  Cached: affinity and quota are read once; call `usable_cores` to read them again."""
    with LOCK:
        binding = llvm()
        triple = binding.get_process_triple()
        table = dict(binding.get_host_cpu_features())
        name = binding.get_host_cpu_name()
    cpu = name
    if normal_arch(triple) == "x86_64":
        cpu = "x86-64"
        for level, names in _LEVELS.items():
            if not all(table.get(feature) for feature in names.split()):
                break
            cpu = level
        table["prefer-256-bit"] = False
    features = ",".join(("+" if on else "-") + feature for feature, on in sorted(table.items()))
    facts = vector_facts(triple, cpu, features)
    return HostCpu(triple, cpu, features, *facts[:3], *_caches(), usable_cores(), *facts[3:])


def describe(triple: str, cpu: str = "", features: str = "", *, cores: int = 4) -> HostCpu:
    """The same record for a machine known by text only.

    An empty `cpu` is the architecture's baseline (for RISC-V: rv64gc).  Caches are typical sizes (32 KB,
    512 KB, 8 MB).  Raises TargetError for a triple, cpu or feature list that LLVM does not know.
    """
    arch = normal_arch(triple)
    words = [word.strip() for word in features.split(",") if word.strip()]
    asked_cpu, asked = cpu, ",".join(words)
    for word in words:
        if word[0] not in "+-" or len(word) < 2:
            raise TargetError(
                f"bad feature {word!r} in a feature list",
                hint="write +name to switch a feature on, -name to switch it off",
            )
    if arch == "x86_64":
        cpu = cpu or "x86-64"
        words.insert(0, "+64bit")
        if not any(word[1:] == "prefer-256-bit" for word in words):
            words.append("-prefer-256-bit")
    elif arch == "riscv64" and not cpu:
        cpu = "generic-rv64"
        words = ["+m", "+a", "+f", "+d", "+c", *words]
    elif not cpu:
        cpu = "generic"
    text = ",".join(words)
    if asked_cpu or asked:
        _refuse_unknown(triple, cpu, text)
    facts = vector_facts(triple, cpu, text)
    return HostCpu(triple, cpu, text, *facts[:3], *_TYPICAL_CACHES, cores, *facts[3:])


@lru_cache(maxsize=64)
def vector_facts(triple: str, cpu: str, features: str) -> tuple[int, int, bool, bool, bool]:
    """(vector bits, vector registers, fma, rounding, float16) of a machine, read off assembly."""
    with LOCK:
        binding = llvm()
        target = _target(triple)
        module = binding.parse_assembly(_PROBE, context=binding.create_context())
        module.triple = triple
        machine = target.create_target_machine(cpu=cpu, features=features, opt=1, codemodel="small")
        text = machine.emit_assembly(module)
    first, _, rest = text.partition("probe_rounding:")
    second, _, third = rest.partition("probe_float16:")
    rounding, float16 = "floorf" not in second, not re.search(r"__(extendhfsf2|truncsfhf2|gnu_)", third)
    return *_read_probe(normal_arch(triple), first), rounding, float16


def _target(triple: str) -> Any:
    try:
        return llvm().Target.from_triple(triple)
    except RuntimeError as error:
        raise TargetError(
            f"LLVM does not know the target triple {triple!r}",
            why=str(error).strip(),
            hint="give one such as x86_64-unknown-linux-gnu, aarch64-linux-gnu, riscv64-linux-gnu",
        ) from error


@lru_cache(maxsize=64)
def _refuse_unknown(triple: str, cpu: str, features: str) -> None:
    """TargetError for cpu and feature names LLVM does not know.

    LLVM only complains about them on the process's standard error stream, and may end the process later; so
    that stream is caught for the millisecond this takes.
    """
    if normal_arch(triple) == "riscv64" and "rv32" in cpu:
        raise TargetError(f"the cpu {cpu!r} is a 32-bit one, the triple {triple!r} is not")
    with LOCK, tempfile.TemporaryFile() as caught:
        target = _target(triple)
        try:
            saved = os.dup(2)
        except OSError:
            return
        try:
            os.dup2(caught.fileno(), 2)
            target.create_target_machine(cpu=cpu, features=features, codemodel="small")
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        caught.seek(0)
        said = caught.read().decode("utf-8", "replace")
    unknown = dict.fromkeys(re.findall(r"'([^']*)' is not a recognized (processor|feature)", said))
    if unknown:
        names = ", ".join(f"{kind} {name!r}" for name, kind in unknown)
        raise TargetError(
            f"LLVM does not know the {names} for {triple}",
            hint="leave the cpu out for the baseline, and name features as LLVM does: +avx2, +fma, +sve, +v",
        )


def _read_probe(arch: str, text: str) -> tuple[int, int, bool]:
    if arch == "x86_64":
        fma = "vfmadd" in text
        if "%zmm" in text:
            return 512, 32, fma
        return (256 if "%ymm" in text else 128), 16, fma
    if arch == "aarch64":
        return (128, 32, True) if re.search(r"\bfmla(\.4s|\s+v\d+\.4s)", text) else (0, 32, True)
    if arch == "riscv64":
        scalar = bool(re.search(r"\bfmadd\.s\b", text))
        if "vfmadd" not in text and "vfmacc" not in text:
            return 0, 32, scalar
        groups = {"m1": 512, "m2": 256, "m4": 128, "m8": 64}
        found = re.search(r"vset(?:i?)vli\s+[^\n]*\be32, (m[1248])\b", text)
        return (groups[found.group(1)] if found else 128), 32, True
    return 128, 16, "fmaf" not in text


def _caches() -> tuple[int, int, int]:
    """(L1d, L2, L3) in bytes of the first core: sysfs, else sysconf, else typical sizes."""
    sizes = _sysfs_caches(Path("/sys/devices/system/cpu/cpu0/cache"))
    names = ("SC_LEVEL1_DCACHE_SIZE", "SC_LEVEL2_CACHE_SIZE", "SC_LEVEL3_CACHE_SIZE")
    for level, name in enumerate(names):
        if not sizes[level] and name in getattr(os, "sysconf_names", {}):
            try:
                sizes[level] = max(0, os.sysconf(name))
            except (OSError, ValueError):
                continue
    if not sizes[0]:
        return _TYPICAL_CACHES
    sizes[1] = sizes[1] or _TYPICAL_CACHES[1]
    return sizes[0], sizes[1], sizes[2] or sizes[1]


def _sysfs_caches(folder: Path) -> list[int]:
    sizes = [0, 0, 0]
    try:
        for index in sorted(folder.glob("index[0-9]*")):
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            found = re.fullmatch(r"(\d+)([KMG]?)", (index / "size").read_text().strip())
            if found and kind in ("Data", "Unified") and 1 <= level <= 3:
                sizes[level - 1] = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]
    except (OSError, ValueError):
        return [0, 0, 0]
    return sizes


def usable_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity mask, and the cgroup (v1 or v2) CPU quota rounded up; at
    least 1.

    `root` is the folder below which `proc` and `sys` are looked for.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    if platform.system() == "Linux":
        quota = cgroup_quota(root)
        if quota is not None:
            count = min(count, math.ceil(quota))
    return max(1, count)


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """The tightest CPU quota of this process's cgroups and their ancestors, in cores; None where there is
    none.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    base = root / "sys/fs/cgroup"
    found: list[float] = []
    for line in lines:
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        _, controllers, path = fields
        if controllers == "":
            mounts = [base, base / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [base / controllers, base / "cpu", base / "cpu,cpuacct"]
        else:
            continue
        for mount in mounts:
            for folder in _upward(mount, path):
                found += _quota_of(folder)
    return min(found, default=None)


def _upward(mount: Path, path: str) -> list[Path]:
    """The cgroup's folder and its ancestors up to the mount; inside a container only the mount may exist."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _quota_of(folder: Path) -> list[float]:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        elif (folder / "cpu.cfs_quota_us").exists():
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        else:
            return []
        if quota == "max" or int(quota) <= 0 or int(period) <= 0:
            return []
        return [int(quota) / int(period)]
    except (OSError, ValueError):
        return []


__all__ = ["HostCpu", "cgroup_quota", "describe", "host_cpu", "normal_arch", "usable_cores", "vector_facts"]
