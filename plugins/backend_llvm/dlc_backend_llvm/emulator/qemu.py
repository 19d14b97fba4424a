"""The emulator for each processor, and the packages that it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.linking import find_compiler
from dlc_backend_llvm.triples import full_triple
from dlc_core.diag import UnsupportedError

ARCHES = ("aarch64", "arm", "riscv64", "x86_64")

_LEVELS = {"x86-64-v2": "nehalem", "x86-64-v3": "haswell"}


def emulator(cpu: HostCpu) -> list[str]:
    """The command that emulates a machine with the processor `cpu`.

    QEMU emulates that processor or one with fewer features, if it knows one. Otherwise it emulates all
    features that it supports. Raises UnsupportedError, which says what to install, if this is not possible.
    """
    if "linux" not in cpu.triple or cpu.arch not in ARCHES:
        raise UnsupportedError(
            f"programs for {cpu.triple} cannot be emulated", hint=f"supported: Linux on {', '.join(ARCHES)}"
        )
    if cpu.arch == "x86_64" and cpu.vector_bits > 256:
        raise UnsupportedError(
            "vectors of 512 bits cannot be emulated",
            hint="choose -mcpu=x86-64-v3 or below, or run it natively",
        )
    name = f"qemu-{cpu.arch}"
    found = shutil.which(name)
    if found is None:
        raise UnsupportedError(f"{name} is not on the PATH", hint="install qemu-user")
    words = [found, "-cpu", _processor(cpu, found)]
    # Packages of C libraries name their folders by family and ABI.
    abi = full_triple(cpu.triple).split("-")[-1] if cpu.arch == "arm" else "gnu"
    root = Path(f"/usr/{cpu.arch}-linux-{abi}")
    if cpu.arch != host_cpu().arch and root.is_dir() and "QEMU_LD_PREFIX" not in os.environ:
        words += ["-L", str(root)]
    return words


def problem(cpu: HostCpu) -> str | None:
    """The reason why programs for a processor cannot be linked or run on this machine; None if they can."""
    try:
        emulator(cpu)
        find_compiler(linked_for(cpu))
    except UnsupportedError as error:
        return error.what
    return None


def linked_for(cpu: HostCpu) -> str:
    """The triple for the linker; "" if `cpu` has the architecture of this machine."""
    return "" if cpu.arch == host_cpu().arch else cpu.triple


def any_problem() -> str | None:
    """The reason why no machine can be emulated; None if one can."""
    if not any(shutil.which(f"qemu-{arch}") for arch in ARCHES):
        return "QEMU's user emulation (qemu-user) is not installed"
    return None


@lru_cache(maxsize=8)
def version(arch: str) -> tuple[int, ...]:
    """The version of the emulator for an architecture, such as (7, 2, 0); () if it is not installed."""
    program = shutil.which(f"qemu-{arch}")
    if program is None:
        return ()
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version (\d+(?:\.\d+)*)", done.stdout)
    return tuple(map(int, found[1].split("."))) if found else ()


def _processor(cpu: HostCpu, program: str) -> str:
    if cpu.arch == "riscv64":
        return f"rv64,v=true,vlen={cpu.vector_bits},vext_spec=v1.0" if cpu.vector_bits else "rv64,v=false"
    plain = cpu.arch == "x86_64" and cpu.cpu == "x86-64" and cpu.vector_bits == 128 and not cpu.rounding
    name = "qemu64" if plain else _LEVELS.get(cpu.cpu, cpu.cpu).lower()
    return _known(program).get(name, "max")


@lru_cache(maxsize=8)
def _known(program: str) -> dict[str, str]:
    """The processors that an emulator supports, by their names in lower case."""
    done = subprocess.run([program, "-cpu", "help"], capture_output=True, text=True, check=False)
    names = re.findall(r"^\s*(?:x86 )?([\w.-]+)", done.stdout, re.MULTILINE)
    return {name.lower(): name for name in names}


__all__ = ["ARCHES", "any_problem", "emulator", "linked_for", "problem", "version"]
