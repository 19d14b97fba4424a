"""Boards without an operating system, and the emulator that runs their programs on this machine.

    run = build_firmware(board("mps2-an386"), [source, …], elf)
    text = emulate(board("mps2-an386"), elf)

A firmware consists of start-up code, a memory map, and the sources. Standard input and output are those of
the emulator, by semihosting.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlc_core.diag import CodegenError, RuntimeFailure, UnsupportedError

HERE = Path(__file__).parent
COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"


@dataclass(frozen=True)
class Board:
    """A board: its processor as targets of kind `c` name it, the options of its compiler, its memory map."""

    name: str
    cpu: str
    flags: tuple[str, ...]
    code: tuple[int, int]
    """First address and bytes of the memory for code and constants."""
    ram: tuple[int, int]
    """First address and bytes of the memory for data."""


_SRAM = (0x00000000, 4 << 20), (0x20000000, 4 << 20)
BOARDS = {
    one.name: one
    for one in (
        Board(
            "mps2-an386",
            "cortex-m4",
            ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
            *_SRAM,
        ),
        Board(
            "mps2-an500",
            "cortex-m7",
            ("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
            *_SRAM,
        ),
        Board("mps2-an385", "cortex-m3", ("-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"), *_SRAM),
    )
}


def board(name: str) -> Board:
    """The board of that name; UnsupportedError for one that is not known."""
    if name not in BOARDS:
        raise UnsupportedError(f"no board {name!r} is known", hint=f"known: {', '.join(BOARDS)}")
    return BOARDS[name]


def problem() -> str | None:
    """Why no firmware can be built and emulated here; None where it can."""
    missing = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    if not missing:
        return None
    return (
        f"there is no {' and no '.join(missing)}: install gcc-arm-none-eabi, libnewlib-arm-none-eabi and "
        "qemu-system-arm"
    )


def linker_script(board: Board, stack: int) -> str:
    """Where a firmware's parts lie; `stack` bytes at the end of the data memory are the stack's."""
    text = (HERE / "firmware.ld").read_text()
    numbers = {
        "CODE_AT": board.code[0],
        "CODE_SIZE": board.code[1],
        "RAM_AT": board.ram[0],
        "RAM_SIZE": board.ram[1],
        "STACK_SIZE": stack,
    }
    for word, number in numbers.items():
        text = text.replace(f"@{word}@", f"{number:#x}")
    return text


def build_firmware(
    board: Board,
    sources: Sequence[Path],
    out: Path,
    *,
    flags: Sequence[str] = ("-O2",),
    stack: int = 16 << 10,
) -> None:
    """Compile and link a firmware.  Raises UnsupportedError without the compiler, CodegenError with what it
    said where it refuses, as for a program that does not fit the board.
    """
    if shutil.which(COMPILER) is None:
        raise UnsupportedError(f"{board.name} has no compiler here", hint="install gcc-arm-none-eabi")
    script = out.with_suffix(".ld")
    script.write_text(linker_script(board, stack))
    command = [COMPILER, *board.flags, *flags, "-std=gnu99", "-Wall", "-Wextra", "-ffunction-sections"]
    command += ["-nostartfiles", "--specs=rdimon.specs", "-Wl,--gc-sections", f"-Wl,-T,{script}"]
    command += [str(HERE / "startup.c"), *map(str, sources), "-lm", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CodegenError(
            f"the firmware for {board.name} does not build", details=done.stderr.splitlines()[:20]
        )


def emulate(board: Board, elf: Path, *, stdin: bytes = b"", seconds: float = 60) -> bytes:
    """Return the standard output of a firmware.  Raises RuntimeFailure if it fails or exceeds `seconds`."""
    if shutil.which(EMULATOR) is None:
        raise UnsupportedError(f"{board.name} cannot be emulated here", hint="install qemu-system-arm")
    command = [EMULATOR, "-M", board.name, "-nographic", "-semihosting", "-kernel", str(elf)]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeFailure(f"the firmware on {board.name} did not end in {seconds:g} seconds") from None
    if done.returncode:
        raise RuntimeFailure(
            f"the firmware on {board.name} failed with status {done.returncode}",
            details=done.stderr.decode(errors="replace").splitlines()[:10],
        )
    return done.stdout


__all__ = ["BOARDS", "Board", "board", "build_firmware", "emulate", "linker_script", "problem"]
