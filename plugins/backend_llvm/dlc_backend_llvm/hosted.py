"""Objects of models with regions on devices.

The host program and the runtimes of the devices are C, which the C compiler of the target compiles.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.data_object import machine_of, write_data_object
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.interface import weights_symbol
from dlc_backend_llvm.linking import find_linker
from dlc_backend_llvm.objects import read_object
from dlc_core.backend.deploy import HostProgram
from dlc_core.diag import CodegenError

_FLAGS = ("-std=gnu99", "-O2", "-fPIC", "-fvisibility=hidden", "-w", "-c")
_COMPILE_SECONDS = 600


def host_objects(host: HostProgram, cpu: HostCpu, code: bytes, *, bare: bool) -> list[bytes]:
    """The objects of a shared library besides those of native code: the host program, the code of its regions
    and, unless it is `bare`, the runtimes of its devices. `code` is an object for the same machine.

    Raises UnsupportedError without a compiler, and CodegenError if it refuses a file.
    """
    weights = weights_symbol(host.name)
    declared = "" if bare else f"#include <stdint.h>\nextern const uint8_t {weights}[];\n\n"
    source = declared + host.source(weights=weights, code=False, bare=bare, shared=True)
    native = cpu.triple == host_cpu().triple
    command = find_linker("" if native else cpu.triple, read_object(code).machine)
    with tempfile.TemporaryDirectory(prefix="dlc-host") as name:
        folder = Path(name)
        for file, data in host.files().items():
            (folder / file).write_bytes(data)
        program = folder / f"{host.name}_host.c"
        program.write_text(source)
        sources = [program, *(() if bare else (folder / each for each in host.source_names))]
        objects = [_compiled(command, each, folder) for each in sources]
        held = folder / "code.o"
        write_data_object(held, machine_of(code), host.code_symbol, memoryview(host.code or bytes(1)))
        return [*objects, held.read_bytes()]


def _compiled(command: list[str], source: Path, folder: Path) -> bytes:
    made = source.with_suffix(".o")
    words = [*command, *_FLAGS, "-I", str(folder), "-o", str(made), str(source)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CodegenError(
            f"{command[0]} could not be run to compile {source.name}", why=str(error)
        ) from error
    if done.returncode:
        messages = (done.stderr or done.stdout).strip().splitlines()[:20]
        raise CodegenError(f"{command[0]} refuses {source.name}", details=messages)
    return made.read_bytes()


__all__ = ["host_objects"]
