"""The C compiler of this machine, and its options."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dlc_core.diag import CodegenError, UnsupportedError

CANDIDATES = ("cc", "gcc", "clang")
NO_OPENMP = "this compiler has no OpenMP library: set CC to one that has, or use -num-threads=1"
NATIVE = "-march=native"
HINT = "install gcc or clang, set CC, or run: pip install ziglang"


@cache
def compiler() -> tuple[str, ...] | None:
    """The command of the C compiler: CC, else cc, gcc, clang, else the one of the ziglang wheel."""
    given = os.environ.get("CC", "").strip()
    if given:
        words = shlex.split(given)
        return tuple(words) if shutil.which(words[0]) else None
    for name in CANDIDATES:
        if shutil.which(name):
            return (name,)
    return (sys.executable, "-m", "ziglang", "cc") if find_spec("ziglang") else None


def compiler_problem() -> str | None:
    """The reason why C cannot be compiled on this machine; None if it can."""
    return None if compiler() else f"{_why_none()}: {HINT}"


def _why_none() -> str:
    given = os.environ.get("CC", "").strip()
    return f"CC names {shlex.split(given)[0]}, which is not installed" if given else "there is no C compiler"


@cache
def compiler_version() -> str:
    """The first line of the compiler's version text; "" if there is no compiler."""
    command = compiler()
    if command is None:
        return ""
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0]


@cache
def native_flags() -> tuple[str, ...]:
    """The option that enables all instructions of this machine; empty if the compiler has none."""
    command = compiler()
    if command is None:
        return ()
    words = [*command, NATIVE, "-fsyntax-only", "-x", "c", "-"]
    try:
        done = subprocess.run(words, input=b"int one;\n", capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if done.returncode else (NATIVE,)


def build_shared(source: Path, library: Path, flags: Sequence[str]) -> None:
    """Compile one file to a shared library. Raises UnsupportedError without a compiler, and CodegenError with
    the compiler's message if it refuses the file.
    """
    command = compiler()
    if command is None:
        raise UnsupportedError("C cannot be compiled on this machine", why=_why_none(), hint=HINT)
    compile_c(command, source, library, [*flags, "-fPIC", "-shared"])


def compile_c(command: Sequence[str], source: Path, out: Path, flags: Sequence[str]) -> None:
    """Compile and link one file by the given compiler command. Raises the same errors as `build_shared`."""
    words = [*command, *flags, "-o", str(out), str(source), "-lm"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UnsupportedError(f"the C compiler {command[0]} cannot be run", why=str(error)) from None
    if done.returncode:
        message = done.stderr or done.stdout
        missing = "-fopenmp" in flags and any(name in message for name in ("-lomp", "-lgomp", "libgomp.spec"))
        raise CodegenError(
            f"{command[0]} refuses the generated C",
            hint=NO_OPENMP if missing else "",
            details=message.splitlines()[:20],
        )


__all__ = [
    "HINT",
    "NATIVE",
    "NO_OPENMP",
    "build_shared",
    "compile_c",
    "compiler",
    "compiler_problem",
    "compiler_version",
    "native_flags",
]
