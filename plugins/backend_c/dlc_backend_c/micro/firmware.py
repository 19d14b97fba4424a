"""The firmware of a session: the model's C, the loop that answers frames, and the board's port."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlc_backend_c.boards import Board, build_firmware
from dlc_core.runtime.executable import Executable

HERE = Path(__file__).parent
FRAME = 4 << 10
"""Largest payload of a frame in bytes."""


def build_session(
    exe: Executable, board: Board, folder: Path, *, memory: int = 1 << 20, port: Path = HERE / "port_mps2.c"
) -> Path:
    """Write and compile the firmware into `folder`; the program's path.

    `memory` are the bytes for arrays on the board; `port` is the C of the five functions that `server.c` asks
    for.  Raises UnsupportedError without the compiler or for a model whose sizes are not fixed, CodegenError
    where the firmware does not fit the board.
    """
    exe.export(folder / "net.c")
    (folder / "session_model.h").write_text(model_header(exe, memory))
    elf = folder / "session.elf"
    sources: Sequence[Path] = [folder / "net.c", HERE / "server.c", port]
    build_firmware(board, sources, elf, flags=["-O2", f"-I{folder}"])
    return elf


def model_header(exe: Executable, memory: int) -> str:
    """What `server.c` needs to know of the model: how large its arguments are, and how it is called."""
    values = [*exe.signature.inputs, *exe.signature.outputs]
    sizes = []
    for value in values:
        size = value.type.dtype.itemsize
        for dim in value.type.static_shape() or ():
            size *= dim
        sizes.append(size)
    args = ", ".join(f"(void *)args[{place}]" for place in range(len(values)))
    return f"""\
/* The model of a session. */
#include "net.h"

#define SESSION_MEMORY {max(64, memory // 64 * 64)}u
#define SESSION_FRAME {FRAME}u
#define SESSION_ARGUMENTS {len(values)}

static const uint32_t session_sizes[SESSION_ARGUMENTS] = {{{", ".join(f"{size}u" for size in sizes)}}};

static int session_call(uint8_t **args)
{{
    return net_run({args}, NULL);
}}
"""


__all__ = ["FRAME", "build_session", "model_header"]
