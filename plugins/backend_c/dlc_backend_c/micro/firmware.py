"""The firmware of a session (the loop that answers frames, the port of the board, the model's C), and
modules, which are models that a session loads.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dlc_backend_c.boards import COMPILER, Board, build_firmware
from dlc_core.diag import CodegenError, UnsupportedError
from dlc_core.runtime.executable import Executable

HERE = Path(__file__).parent
FRAME = 4 << 10
"""The maximum payload of a frame in bytes."""
NO_MODEL = "static const struct session_module session_model = {SESSION_MODULE, 0, 0, 0};\n"


def build_session(
    exe: Executable | None,
    board: Board,
    folder: Path,
    *,
    memory: int = 1 << 20,
    port: Path = HERE / "port_mps2.c",
) -> Path:
    """Write and compile the firmware in `folder`, and return the path of the program. If `exe` is None, it
    has no model.

    `memory` is the number of bytes for arrays and modules on the board. `port` is the C file with the five
    functions that `server.c` calls. Raises UnsupportedError if the compiler is not installed or the model has
    symbolic dims, and CodegenError if the firmware does not fit in the memory of the board.
    """
    sources: Sequence[Path] = [HERE / "server.c", port]
    if exe is not None:
        exe.export(folder / "net.c")
        sources = [folder / "net.c", *sources]
    sizes = f"#define SESSION_MEMORY {max(64, memory // 64 * 64)}u\n#define SESSION_FRAME {FRAME}u\n"
    model = NO_MODEL if exe is None else module_text(exe, "static const struct session_module session_model")
    (folder / "session_model.h").write_text(f"/* The model of a session. */\n{sizes}{model}")
    elf = folder / "session.elf"
    build_firmware(
        board, sources, elf, flags=["-O2", f"-DSESSION_UART={board.uart:#x}u", f"-I{folder}", f"-I{HERE}"]
    )
    return elf


def build_module(exe: Executable, board: Board, folder: Path, address: int) -> bytes:
    """The bytes of a model with all functions that it calls, linked for an address in the board's memory."""
    if shutil.which(COMPILER) is None:
        raise UnsupportedError(
            f"the compiler for {board.name} is not installed", hint="install gcc-arm-none-eabi"
        )
    exe.export(folder / "net.c")
    declared = '__attribute__((section(".session_module"), used)) const struct session_module session_module'
    (folder / "module.c").write_text(f'#include "session_module.h"\n{module_text(exe, declared)}')
    script, elf, made = folder / "module.ld", folder / "module.elf", folder / "module.bin"
    script.write_text((HERE / "module.ld").read_text().replace("@AT@", f"{address:#x}"))
    command = [COMPILER, *board.flags, "-O2", "-std=gnu99", "-fno-math-errno", "-ffunction-sections"]
    command += [f"-I{folder}", f"-I{HERE}", "-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections"]
    command += [f"-Wl,-T,{script}", str(folder / "module.c"), str(folder / "net.c"), "-lm", "-o", str(elf)]
    copy = [COMPILER.replace("gcc", "objcopy"), "-O", "binary", "-j", ".module", str(elf), str(made)]
    for step in (command, copy):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CodegenError(
                f"the module for {board.name} cannot be built", details=done.stderr.splitlines()[:20]
            )
    return made.read_bytes()


def module_text(exe: Executable, declared: str) -> str:
    """The C of the description of a model for a session: the sizes of its arguments, and a function that
    calls it.
    """
    values = [*exe.signature.inputs, *exe.signature.outputs]
    sizes = []
    for value in values:
        size = value.type.dtype.itemsize
        for dim in value.type.static_shape() or ():
            size *= dim
        sizes.append(size)
    args = ", ".join(f"(void *)args[{index}]" for index in range(len(values)))
    return f"""\
#include "net.h"

static const uint32_t session_sizes[] = {{{", ".join(f"{size}u" for size in sizes)}}};

static int session_call(uint8_t **args)
{{
    return net_run({args}, NULL);
}}

{declared} = {{SESSION_MODULE, {len(values)}, session_sizes, session_call}};
"""


__all__ = ["FRAME", "build_module", "build_session", "module_text"]
