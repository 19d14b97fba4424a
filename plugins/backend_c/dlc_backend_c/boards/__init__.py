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
    clock: int = 25_000_000
    """The frequency in Hz of its processor and of the counter SysTick."""
    uart: int = 0x40004000
    """The address of its first serial port, a CMSDK UART."""


SHIFT = 5
COUNTING = ("-icount", f"shift={SHIFT},sleep=off")
"""The options of the emulator that make its clock count instructions: each takes 2^SHIFT nanoseconds."""
STACK = 16 << 10
"""The default bytes of the stack."""
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
        # The processors of these two start in secure state, in which bit 28 of addresses is set.
        Board(
            "mps2-an505",
            "cortex-m33",
            ("-mcpu=cortex-m33", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
            (0x10000000, 4 << 20),
            (0x38000000, 4 << 20),
            clock=20_000_000,
            uart=0x50200000,
        ),
        Board(
            "mps3-an547",
            "cortex-m55",
            ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
            (0x10000000, 512 << 10),
            (0x31000000, 2 << 20),
            clock=32_000_000,
            uart=0x59303000,
        ),
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
    stack: int = STACK,
    start: Sequence[Path] = (HERE / "startup.c",),
    seconds: float | None = None,
) -> None:
    """Compile and link a firmware. `start` are the files with the start-up code.

    Raises UnsupportedError if the compiler is not installed, RuntimeFailure if it takes more than `seconds`,
    and CodegenError with its messages if it fails, for example because the program does not fit in the memory
    of the board.
    """
    script = out.with_suffix(".ld")
    script.write_text(linker_script(board, stack))
    command = [*compiler_command(board), *flags]
    command += ["-nostartfiles", "--specs=rdimon.specs", "-Wl,--gc-sections", f"-Wl,-T,{script}"]
    command += [*map(str, (*start, *sources)), "-lm", "-o", str(out)]
    run_compiler(board, command, seconds)


def compiler_command(board: Board) -> list[str]:
    """The compiler for a board, and its options for all sources. Raises UnsupportedError if it is not
    installed.
    """
    if shutil.which(COMPILER) is None:
        raise UnsupportedError(
            f"the compiler for {board.name} is not installed", hint="install gcc-arm-none-eabi"
        )
    return [COMPILER, *board.flags, "-std=gnu99", "-Wall", "-Wextra", "-ffunction-sections"]


def run_compiler(board: Board, command: Sequence[str], seconds: float | None = None) -> None:
    """Run a command of the compiler. Raises CodegenError if it fails, and RuntimeFailure if it takes more
    than `seconds`.
    """
    if seconds is not None and seconds <= 0:
        raise RuntimeFailure(f"no time is left to compile the firmware for {board.name}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeFailure(
            f"the compiler of the firmware for {board.name} did not end in {seconds:.2g} seconds"
        ) from None
    if done.returncode:
        raise CodegenError(
            f"the firmware for {board.name} cannot be built", details=done.stderr.splitlines()[:20]
        )


def emulator_command(board: Board) -> list[str]:
    """The emulator of a board. Raises UnsupportedError if it is not installed."""
    if shutil.which(EMULATOR) is None:
        raise UnsupportedError(
            f"{board.name} cannot be emulated on this machine", hint="install qemu-system-arm"
        )
    return [EMULATOR, "-M", board.name]


def run_emulator(
    board: Board, command: Sequence[str], seconds: float, *, stdin: bytes = b"", folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of the emulator in a folder. It is killed after `seconds`; then this raises
    RuntimeFailure.
    """
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=max(0, seconds), check=False, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise RuntimeFailure(f"the firmware on {board.name} did not end in {seconds:.3g} seconds") from None


def emulated_cycles(board: Board, ticks: int) -> int:
    """The instructions that an emulated board has executed in so many ticks of its counter (see `COUNTING`).

    The counter has the frequency of the board. Rounding makes the result inexact by one tick.
    """
    return round(ticks * 10**9 / (board.clock << SHIFT))


def emulate(board: Board, elf: Path, *, stdin: bytes = b"", seconds: float = 60) -> bytes:
    """Run a firmware and return its standard output. Raises RuntimeFailure if it fails or exceeds
    `seconds`.
    """
    command = [*emulator_command(board), "-nographic", "-semihosting", "-kernel", str(elf)]
    done = run_emulator(board, command, seconds, stdin=stdin)
    if done.returncode:
        raise RuntimeFailure(
            f"the firmware on {board.name} failed with status {done.returncode}",
            details=done.stderr.decode(errors="replace").splitlines()[:10],
        )
    return done.stdout


__all__ = [
    "BOARDS", "COUNTING", "STACK", "Board", "board", "build_firmware", "compiler_command", "emulate",
    "emulated_cycles", "emulator_command", "linker_script", "problem", "run_compiler", "run_emulator",
]  # fmt: skip
