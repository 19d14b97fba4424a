"""Linking of object files to a shared library.

    find_compiler(triple="", machine="") -> list[str]
    link_shared(objects, out_path, *, triple="", libraries=("m", "pthread")) -> Path

`link_shared` runs the C compiler of this machine as the linker (`CC`, else cc, gcc, clang), never through a
shell.  For another triple it looks for `<triple>-gcc`, then for the usual name of a cross compiler, such as
`arm-linux-gnueabihf-gcc`, and for clang with `--target`.
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
from dlc_core.diag import CodegenError, UnsupportedError

_LINK_SECONDS = 120


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
    # Packages name their compilers by the family and the ABI: arm-linux-gnueabihf-gcc serves armv7l-*.
    parts = triple.split("-")
    abi = parts[-1] if parts[-1].startswith(("gnu", "musl")) else "gnu"
    short = f"{machine or parts[0]}-linux-{abi}"
    for name in dict.fromkeys((f"{triple}-gcc", f"{short}-gcc")):
        found = shutil.which(name)
        if found:
            return [found]
    clang = shutil.which("clang")
    if clang:
        return [clang, f"--target={triple}"]
    raise UnsupportedError(
        f"there is no compiler that links for {triple}",
        hint=f"install {short}-gcc or clang, set CC to a cross compiler, or link the object file there",
    )


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
    command = find_compiler(triple, machines[0])
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


__all__ = ["find_compiler", "link_shared"]
