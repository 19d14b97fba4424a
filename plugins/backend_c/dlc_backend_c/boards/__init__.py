"""Boards without an operating system, and their emulator.

    run = build_firmware(board("mps2-an386"), [source, …], elf)
    text = emulate(board("mps2-an386"), elf)

A firmware consists of start-up code, a memory map, and the sources. Its standard input and output are those
of the emulator, by semihosting.
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
    """A board: its processor (a value of `-mcpu` of the kind `c`), the compiler's options, and its memory
    map.
    """

    name: str
    cpu: str
    flags: tuple[str, ...]
    code: tuple[int, int]
    """The first address and the bytes of the memory for code and constants."""
    ram: tuple[int, int]
    """The first address and the bytes of the memory for data."""


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
    """The board with this name. Raises UnsupportedError for unknown boards."""
    if name not in BOARDS:
        raise UnsupportedError(f"unknown board {name!r}", hint=f"known: {', '.join(BOARDS)}")
    return BOARDS[name]


def problem() -> str | None:
    """The reason why no firmware can be built and emulated on this machine; None if it can."""
    missing = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    if not missing:
        return None
    return (
        f"there is no {' and no '.join(missing)}: install gcc-arm-none-eabi, libnewlib-arm-none-eabi and "
        "qemu-system-arm"
    )


def linker_script(board: Board, stack: int) -> str:
    """The linker script of a board. The last `stack` bytes of the data memory are the stack."""
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
    """Compile and link a firmware. Raises UnsupportedError if the compiler is not installed, and CodegenError
    with its messages if it fails, for example because the program does not fit in the memory of the board.
    """
    if shutil.which(COMPILER) is None:
        raise UnsupportedError(
            f"the compiler for {board.name} is not installed", hint="install gcc-arm-none-eabi"
        )
    script = out.with_suffix(".ld")
    script.write_text(linker_script(board, stack))
    command = [COMPILER, *board.flags, *flags, "-std=gnu99", "-Wall", "-Wextra", "-ffunction-sections"]
    command += ["-nostartfiles", "--specs=rdimon.specs", "-Wl,--gc-sections", f"-Wl,-T,{script}"]
    command += [str(HERE / "startup.c"), *map(str, sources), "-lm", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CodegenError(
            f"the firmware for {board.name} cannot be built", details=done.stderr.splitlines()[:20]
        )


def emulate(board: Board, elf: Path, *, stdin: bytes = b"", seconds: float = 60) -> bytes:
    """Run a firmware and return its standard output. Raises RuntimeFailure if it fails or exceeds
    `seconds`.
    """
    if shutil.which(EMULATOR) is None:
        raise UnsupportedError(
            f"{board.name} cannot be emulated on this machine", hint="install qemu-system-arm"
        )
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
