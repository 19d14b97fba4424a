"""The flash, memory and stack of an exported model. They are measured if a compiler for the processor is
installed, else estimated from the sources.

The stack of a call is the largest sum of frames over the chains of calls that begin with `<name>_run`, plus
`LIBRARY` for calls of the C library. The calls are found in the sources. There is no recursion.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dlc_backend_c.boards import BOARDS, COMPILER
from dlc_core.backend.compiler import compiler
from dlc_core.target import Target

LIBRARY = 256
"""Bytes of stack for functions of `math.h` and `string.h`. Those of newlib and glibc need less."""
_FRAME = 256
"""Estimated bytes of a frame besides its variables: saved registers, arguments, spills."""
_TYPES = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "float": 4}
_FUNCTION = re.compile(
    r"^(?:static )?(?:inline |DLC_NOINLINE )*\w+ \**(\w+)\([^;]*?\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
_LOCAL = re.compile(
    r"^\s+(?:const )?(\w+) (?:const )?\*?(?:restrict )?(\w+)(?:\[(\d+)\])?[^;(]*(?:;| = )", re.MULTILINE
)


@dataclass(frozen=True)
class Bounds:
    """Sizes in bytes. `code` is None if no compiler for the processor is installed. `compiler` is its name
    with its options.
    """

    compiler: str
    code: int | None
    constants: int
    arena: int
    stack: int


@dataclass(frozen=True)
class Toolchain:
    """A compiler with its options, and the program `size` that lists the sections of its objects."""

    command: tuple[str, ...]
    size: str
    flags: tuple[str, ...]


def toolchain_of(target: Target) -> Toolchain | None:
    """The toolchain for a target; None if it is not installed."""
    cpu, optimize = target["mcpu"], "-Os" if target["opt-for"] == "size" else "-O2"
    if cpu.startswith("cortex-m"):
        known = {board.cpu: board.flags for board in BOARDS.values()}
        flags = known.get(cpu, (f"-mcpu={cpu}", "-mthumb"))
        toolchain = Toolchain((COMPILER,), "arm-none-eabi-size", (*flags, optimize))
    else:
        own = compiler()
        if own is None or not (cpu in ("", "native") or cpu.startswith("x86-64")):
            return None
        march = target["march"] or (cpu or "")
        toolchain = Toolchain(own, "size", (*((f"-march={march}",) if march else ()), optimize))
    here = all(shutil.which(tool) for tool in (toolchain.command[0], toolchain.size))
    return toolchain if here else None


def bounds_of(
    files: Mapping[str, str | bytes], name: str, target: Target, constants: int, arena: int
) -> Bounds:
    """The bounds of exported sources, given by file name. `constants` is the size of the weights in bytes."""
    toolchain, text = toolchain_of(target), _text(files, name)
    measured = None if toolchain is None else _measured(files, name, toolchain)
    if toolchain is None or measured is None:
        return Bounds("", None, constants, arena, stack_of(stated_frames(text), calls_of(text), name))
    code, frames = measured
    if f"{name}_weights.bin" not in files:
        code -= constants
    label = " ".join([Path(toolchain.command[0]).name, *toolchain.flags])
    return Bounds(label, max(0, code), constants, arena, stack_of(frames, calls_of(text), name))


def _text(files: Mapping[str, str | bytes], name: str) -> str:
    text = files.get(f"{name}.c", "")
    return text if isinstance(text, str) else text.decode()


def _measured(
    files: Mapping[str, str | bytes], name: str, toolchain: Toolchain
) -> tuple[int, dict[str, int]] | None:
    """The bytes in flash, and the stack frame of each function; None if the sources do not compile."""
    with tempfile.TemporaryDirectory(prefix="dlc-bounds-") as folder:
        for file, content in files.items():
            Path(folder, file).write_bytes(content if isinstance(content, bytes) else content.encode())
        flags = [*toolchain.flags, "-std=gnu99", "-w", "-fstack-usage", "-c", f"{name}.c", "-o", f"{name}.o"]
        commands = [[*toolchain.command, *flags], [toolchain.size, "-A", f"{name}.o"]]
        for command in commands:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                return None
        usage = Path(folder, f"{name}.su")
        if not usage.is_file():
            return None
        return code_of(done.stdout), frames_of(usage.read_text())


def code_of(listed: str) -> int:
    """The bytes of the sections in flash, from the output of `size -A`."""
    total = 0
    for line in listed.splitlines():
        words = line.split()
        sections = (".text", ".rodata", ".data", ".ARM", ".eh_frame")
        if len(words) == 3 and words[0].startswith(sections):
            total += int(words[1])
    return total


def frames_of(usage: str) -> dict[str, int]:
    """The stack frame in bytes of each function, from the output of `-fstack-usage`."""
    frames: dict[str, int] = {}
    for line in usage.splitlines():
        location, size, *_ = line.split("\t")
        function = location.rpartition(":")[2].partition(".")[
            0
        ]  # the names of clones have a suffix after a dot
        frames[function] = max(frames.get(function, 0), int(size))
    return frames


def calls_of(source: str) -> dict[str, frozenset[str]]:
    """For each function of the sources, the functions of the sources that it calls."""
    bodies = dict(_FUNCTION.findall(source))
    return {name: frozenset(re.findall(r"\b(\w+)\(", body)) & bodies.keys() for name, body in bodies.items()}


def stack_of(frames: Mapping[str, int], calls: Mapping[str, frozenset[str]], name: str) -> int:
    """The stack in bytes of one call. Functions without a frame are inlined in their callers."""

    @cache
    def longest(function: str) -> int:
        return frames.get(function, 0) + max(map(longest, calls.get(function, ())), default=0)

    return longest(f"{name}_run") + LIBRARY


def stated_frames(source: str) -> dict[str, int]:
    """Upper bounds of stack frames, if all variables that the sources declare are on the stack at the same
    time.
    """
    return {
        function: _FRAME + sum(_local(*found) for found in _LOCAL.findall(body))
        for function, body in _FUNCTION.findall(source)
    }


def _local(kind: str, name: str, count: str) -> int:
    if kind in ("return", "goto", "else"):
        return 0
    return _TYPES.get(kind, 64 if kind.startswith("dlc_") else 8) * int(count or 1) + 8


def table(bounds: Bounds, rows: Sequence[tuple[str, str, int]]) -> str:
    """The bounds as a Markdown table. `rows` are the arrays of the caller: kind, name, bytes."""
    by = f" ({bounds.compiler})" if bounds.compiler else ""
    code = "not measured: no compiler was installed" if bounds.code is None else str(bounds.code)
    arrays = "".join(f"\n| memory of the caller | {kind} `{name}` | {size} |" for kind, name, size in rows)
    return f"""\
| where | what | bytes |
|---|---|---|
| flash | weights | {bounds.constants} |
| flash | code and its constants{by} | {code} |
| memory | the arena: all memory that is written, except for results and stack | {bounds.arena} |
| stack | of one call, at most{by} | {bounds.stack} |{arrays}
"""


__all__ = [
    "LIBRARY",
    "Bounds",
    "Toolchain",
    "bounds_of",
    "calls_of",
    "frames_of",
    "stack_of",
    "stated_frames",
    "table",
]
