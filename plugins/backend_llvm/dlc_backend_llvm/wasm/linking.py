"""Linking of WebAssembly objects to a module, by `wasm-ld`.

    find_linker() -> list[str]                         the command; UnsupportedError if there is none
    link_module(objects, exports) -> bytes             a module with its own memory

`wasm-ld` is a part of LLVM's LLD. The pip package `ziglang` contains it, so no compiler needs to be
installed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dlc_backend_llvm.zig import zig_command
from dlc_core.diag import CodegenError, UnsupportedError

HEAP = "__heap_base"
"""The exported global with the first address after the module's own data."""
_STACK_BYTES = 1 << 20
_LINK_SECONDS = 120


def find_linker() -> list[str]:
    """The command of `wasm-ld`: that on the PATH, else that of the package `ziglang`."""
    found = shutil.which("wasm-ld")
    if found:
        return [found]
    zig = zig_command()
    if zig:
        return [*zig, "wasm-ld"]
    raise UnsupportedError(
        "there is no linker for WebAssembly", hint="pip install ziglang, or install wasm-ld (package lld)"
    )


def link_module(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    """Link objects to a module that exports its memory, `__heap_base` and these symbols.

    The module imports nothing. Its memory grows on request, up to 4 GiB. Raises UnsupportedError if there is
    no linker, and CodegenError with its messages if it fails.
    """
    command = find_linker()
    with tempfile.TemporaryDirectory(prefix="dlc-wasm") as folder:
        paths = []
        for index, data in enumerate(objects):
            paths.append(Path(folder, f"part{index}.o"))
            paths[-1].write_bytes(data)
        made = Path(folder, "made.wasm")
        words = [*command, "--no-entry", "--gc-sections", "--strip-all", "--stack-first"]
        words += ["-z", f"stack-size={_STACK_BYTES}", *(f"--export={name}" for name in (HEAP, *exports))]
        try:
            done = subprocess.run(
                [*words, *map(str, paths), "-o", str(made)],
                capture_output=True,
                text=True,
                timeout=_LINK_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CodegenError(f"{command[0]} could not be run to link a module", why=str(error)) from error
        if done.returncode or not made.exists():
            messages = (done.stderr or done.stdout).strip().splitlines()[-20:]
            raise CodegenError("linking the WebAssembly module failed", details=messages)
        return made.read_bytes()


__all__ = ["HEAP", "find_linker", "link_module"]
