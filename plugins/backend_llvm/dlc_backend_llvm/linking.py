"""Linking of object files to a shared library.

    find_compiler(triple="", machine="") -> list[str]
    find_linker(triple="", machine="") -> list[str]
    link_shared(objects, out_path, *, triple="", libraries=("m", "pthread")) -> Path

`link_shared` runs the C compiler of this machine as the linker (`CC`, else cc, gcc, clang), never through a
shell.  For another triple it looks for `<triple>-gcc`, then for the usual names of cross compilers, such as
`arm-linux-gnueabihf-gcc`, for clang with `--target`, and for Zig (`pip install ziglang`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.triples import normal_arch
from dlc_backend_llvm.zig import zig_command
from dlc_core.diag import CodegenError, UnsupportedError

_LINK_SECONDS = 600
"""The first run of Zig compiles a C library."""


def find_compiler(triple: str = "", machine: str = "") -> list[str]:
    """The command that links for `triple` (empty: this machine): that in `CC`, else one of the usual names.

    Raises UnsupportedError if there is none; the error says what to install.
    """
    configured = shlex.split(os.environ.get("CC", ""))
    if configured:
        found = shutil.which(configured[0])
        if found:
            return [found, *configured[1:]]
        raise UnsupportedError(
            f"the C compiler named by CC, {configured[0]!r}, is not on the PATH",
            hint="correct the environment variable CC or unset it",
        )
    if not triple:
        for name in ("cc", "gcc", "clang"):
            found = shutil.which(name)
            if found:
                return [found]
        raise UnsupportedError(
            "there is no C compiler to link a shared library with",
            hint="install gcc or clang, or set CC; a saved artefact (exe.save) needs none",
        )
    family, abi = _family_and_abi(triple, machine)
    # Packages name their compilers by the family and the ABI: arm-linux-gnueabihf-gcc serves armv7l-*.
    short, *others = (
        f"{family}{vendor}-linux-{abi}-gcc" for vendor in ("", "-none", "-unknown", "-buildroot")
    )
    for name in dict.fromkeys((f"{triple}-gcc", short, *others)):
        found = shutil.which(name) or _newest(name)
        if found:
            return [found]
    clang = shutil.which("clang")
    if clang:
        return [clang, f"--target={triple}"]
    raise UnsupportedError(
        f"there is no compiler that links for {triple}",
        hint=f"install {short} or clang, set CC to a cross compiler, or link the object file there",
    )


def find_linker(triple: str = "", machine: str = "") -> list[str]:
    """The command that links libraries for `triple`: that of `find_compiler`, else Zig for Linux."""
    try:
        return find_compiler(triple, machine)
    except UnsupportedError as error:
        zig = zig_command()
        if not zig or "linux" not in triple or os.environ.get("CC"):
            raise UnsupportedError(error.what, hint=f"{error.hint}; or pip install ziglang") from None
        return [*zig, "cc", "-target", "-linux-".join(_family_and_abi(triple, machine))]


def _family_and_abi(triple: str, machine: str) -> tuple[str, str]:
    """The name of the architecture and of the ABI in names of compilers."""
    parts = triple.split("-")
    return machine or normal_arch(triple), parts[-1] if parts[-1].startswith(("gnu", "musl")) else "gnu"


def _newest(name: str) -> str | None:
    """The program `NAME-VERSION` on the PATH with the highest version: some packages install no other."""
    found = [
        path
        for folder in os.get_exec_path()
        for path in Path(folder).glob(f"{name}-[0-9]*")
        if path.name.removeprefix(f"{name}-").isdecimal()
    ]
    newest = max(found, key=lambda path: int(path.name.removeprefix(f"{name}-")), default=None)
    return None if newest is None else shutil.which(str(newest))


def link_shared(
    objects: Sequence[bytes | Path],
    out_path: str | os.PathLike[str],
    *,
    triple: str = "",
    libraries: Iterable[str] = ("m", "pthread"),
) -> Path:
    """Link object files, given as bytes or paths, into the shared library `out_path`, and return its path. An
    existing file is replaced only if linking succeeds.

    An empty `triple` means this machine. Raises UnsupportedError if there is no compiler, and CodegenError
    with the linker's messages if linking fails.
    """
    infos = [read_object(data) for data in objects if isinstance(data, bytes)]
    machines = sorted({info.machine for info in infos})
    if len(machines) != 1:
        raise CodegenError(f"cannot link objects of {machines or 'no'} machines into one library")
    command = find_linker(triple, machines[0])
    target = Path(out_path).absolute()
    if not target.parent.is_dir():
        raise CodegenError(f"cannot write {target.name}: there is no folder {target.parent}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".link") as folder:
        inputs = []
        for index, data in enumerate(objects):
            if isinstance(data, bytes):
                path = Path(folder, f"part{index}.o")
                path.write_bytes(data)
            else:
                path = data
            inputs.append(str(path))
        made = Path(folder, "made")
        words = [*command, "-shared", "-o", str(made), *inputs, *(f"-l{name}" for name in libraries)]
        if infos[0].format == "elf":
            words += ["-Wl,-z,noexecstack", "-Wl,-z,nodelete", f"-Wl,-soname,{target.name}"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_LINK_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CodegenError(
                f"{command[0]} could not be run to link {target.name}", why=str(error)
            ) from error
        if done.returncode or not made.exists():
            messages = (done.stderr or done.stdout).strip().splitlines()[-20:]
            raise CodegenError(f"linking {target.name} failed", why=f"{command[0]} said", details=messages)
        made.replace(target)
    return target


__all__ = ["find_compiler", "find_linker", "link_shared"]
