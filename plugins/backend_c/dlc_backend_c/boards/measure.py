"""Cycles of a kernel or model on an emulated board: the measure of a tuner.

    cycles, outputs = measure_cycles(dlc.build(kernel, "c -mcpu=cortex-m4"), [a, b], "mps2-an386", timeout=10)

The firmware contains the exported C, a call with constant addresses, and code that counts and answers
(`measure.c`), which is compiled once per board and kept in the cache of binaries. The emulator loads the
inputs into the board's memory. The answer on the standard output is 16 bytes (a magic word, the status of the
call, the cycles as two words) and the outputs.

A cycle is one executed instruction (`emulated_cycles`), so counts are exact and do not depend on the load of
this machine. Two calls with the same arguments return the same count. Every call has a folder and a process
of its own, so several processes and threads can measure at once.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlc_backend_c.boards import (
    COMPILER,
    COUNTING,
    HERE,
    STACK,
    Board,
    build_firmware,
    compiler_command,
    emulated_cycles,
    emulator_command,
    run_compiler,
    run_emulator,
)
from dlc_backend_c.boards import board as find_board
from dlc_core.backend.binary_cache import cached_binary
from dlc_core.diag import RuntimeFailure, UnsupportedError, UsageError
from dlc_core.runtime.call.arrays import contiguous
from dlc_core.runtime.executable import Executable

Array = np.ndarray[Any, Any]
ANSWER, FAULT, TOO_LONG = 0x4D454153, 70, 71
"""The words of `measure.c`: the first of an answer, and two statuses of the program."""
START = ("startup.c", "measure.c")
ALIGN = 64
"""The alignment of inputs and outputs in bytes."""
RATE = 1 << 30
"""Instructions a second that no emulator exceeds: a limit for programs whose caller does not stop them."""
WRAP = 1 << 24
"""Ticks until the counter wraps."""


def measure_cycles(
    exe: Executable, inputs: Sequence[Array], board: str, *, timeout: float
) -> tuple[int, list[Array]]:
    """Run an executable of the kind `c` once on an emulated board. Return its cycles and its outputs.

    `inputs` have the shapes and dtypes of `exe.inputs`. `timeout` is the time in seconds for the compiler and
    the emulator together. Raises UsageError for wrong inputs, UnsupportedError for unknown boards, missing
    tools and executables with symbolic dims or separate weights, CodegenError if the program does not fit in
    the memory of the board, and RuntimeFailure if it faults, fails or exceeds `timeout`.
    """
    given = _checked(exe, inputs)
    outputs = [Result(value.type.static_shape() or (), value.type.dtype.numpy) for value in exe.outputs]
    with tempfile.TemporaryDirectory(prefix="dlc-measure-") as name:
        made = exe.export(Path(name, "kernel.c"))
        places = ", ".join(f"{{{number}}}" for number in range(len(given) + len(outputs)))
        program = Program(
            [path for path in made if path.suffix == ".c"],
            f"kernel_run({places}, NULL)",
            '#include "kernel.h"',
            (f"-I{name}",),
        )
        return measure_program(program, given, outputs, board, timeout=timeout)


class Program(NamedTuple):
    """C that is measured on a board."""

    sources: Sequence[Path]
    """Sources and objects."""
    call: str
    """The measured call: an expression of type int, 0 on success. `{0}`, `{1}`, ... become pointers to the
    inputs and then to the outputs, of type `void *`."""
    declarations: str
    """The text before the call: headers and declarations."""
    flags: tuple[str, ...] = ()
    """Further options of the compiler."""


class Result(NamedTuple):
    """The type of an output."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def measure_program(
    program: Program, inputs: Sequence[Array], outputs: Sequence[Result], board: str, *, timeout: float
) -> tuple[int, list[Array]]:
    """Run a call once on an emulated board. Return its cycles and the outputs. See `measure_cycles`, except
    that `inputs` are not checked.
    """
    where, end = find_board(board), time.monotonic() + timeout
    if not timeout > 0:
        raise UsageError(f"a timeout of {timeout:g} seconds", hint="give a positive number of seconds")
    layout = _Layout(where, [array.nbytes for array in inputs], [result.nbytes for result in outputs])
    with tempfile.TemporaryDirectory(prefix="dlc-measure-") as name:
        folder = Path(name)
        (folder / "call.c").write_text(_call_text(program, layout, timeout))
        elf, data = folder / "measure.elf", folder / "inputs.bin"
        build_firmware(
            where,
            [folder / "call.c", *program.sources],
            elf,
            flags=("-O2", f"-I{HERE}", *program.flags),
            stack=STACK + layout.size,
            start=_start(where),
            seconds=end - time.monotonic(),
        )
        pool = bytearray(layout.size)
        for offset, array in zip(layout.inputs, inputs, strict=True):
            pool[offset : offset + array.nbytes] = array.tobytes()
        data.write_bytes(pool)
        command = [*emulator_command(where), *COUNTING, "-display", "none", "-serial", "none"]
        command += ["-monitor", "none", "-semihosting-config", "enable=on,target=native"]
        command += ["-kernel", str(elf)]
        if pool:
            command += ["-device", f"loader,file={data},addr={layout.address:#x},force-raw=on"]
        done = run_emulator(where, command, end - time.monotonic(), folder=folder)
        ticks, sent = _answer(where, elf, done)
    arrays = []
    for offset, result in zip(layout.outputs, outputs, strict=True):
        at = offset - layout.first
        found = sent[at : at + result.nbytes]
        if len(found) != result.nbytes:
            raise RuntimeFailure(f"{where.name} sent {len(sent)} bytes of outputs, which is too few")
        arrays.append(np.frombuffer(found, result.dtype).reshape(result.shape).copy())
    return emulated_cycles(where, ticks), arrays


class _Layout:
    """The offsets of the inputs and outputs in a pool below the stack of a board."""

    def __init__(self, where: Board, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        at = 0
        places = []
        for size in (*inputs, *outputs):
            places.append(at)
            at += -(-size // ALIGN) * ALIGN
        self.size = at
        self.address = sum(where.ram) - STACK - at
        self.inputs, self.outputs = places[: len(inputs)], places[len(inputs) :]
        self.first = self.outputs[0] if outputs else at
        """The offset of the first output."""


def _checked(exe: Executable, inputs: Sequence[Array]) -> list[Array]:
    """The inputs as contiguous arrays. Raises UnsupportedError and UsageError."""
    if exe.target.kind.name != "c":
        raise UnsupportedError(
            f"code of the target {exe.target} does not run on a board", hint='compile for "c -mcpu=..."'
        )
    if not exe.signature.is_static:
        raise UnsupportedError("a measurement needs fixed sizes", why=f"the model is {exe.signature}")
    if exe.signature.weights_size and exe.target["weights"] != "array":
        raise UnsupportedError("weights in a separate file are not measured", hint="use -weights=array")
    if len(inputs) != len(exe.inputs):
        raise UsageError(f"{len(inputs)} inputs given, {len(exe.inputs)} needed")
    arrays = [contiguous(np.asarray(array)) for array in inputs]
    for value, array in zip(exe.inputs, arrays, strict=True):
        if array.shape != value.type.static_shape() or array.dtype != value.type.dtype.numpy:
            raise UsageError(
                f"input {value.name!r} is {array.dtype}{list(array.shape)}, {value.type} is needed"
            )
    return arrays


def _call_text(program: Program, layout: _Layout, timeout: float) -> str:
    """The C of the measured call."""
    addresses = [f"(void *){layout.address + at:#x}u" for at in (*layout.inputs, *layout.outputs)]
    first, size = layout.address + layout.first, layout.size - layout.first
    wraps = min((1 << 32) - 2, int(timeout * RATE) // WRAP + 1)
    return f"""\
#include "measure.h"
{program.declarations}

static int call(void)
{{
    return {program.call.format(*addresses)};
}}

const struct measure_plan measure_plan = {{call, (const void *){first:#x}u, {size}u, {wraps}u}};
"""


def _start(where: Board) -> list[Path]:
    """The objects of the start-up code and of the code that measures, from the cache."""

    def build(source: Path, out: Path) -> None:
        run_compiler(where, [*compiler_command(where), "-O2", "-c", str(source), "-o", str(out)])

    header = (HERE / "measure.h").read_text()
    texts = [(HERE / name).read_text().replace('#include "measure.h"', header) for name in START]
    return [cached_binary(text.encode(), ".o", where.flags, build, _compiler()) for text in texts]


@cache
def _compiler() -> str:
    """The name and version of the compiler."""
    done = subprocess.run([COMPILER, "-dumpfullversion"], capture_output=True, text=True, check=False)
    return f"{COMPILER} {done.stdout.strip()}"


def _answer(where: Board, elf: Path, done: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes]:
    """The ticks and the outputs of an answer. Raises RuntimeFailure if there is none."""
    head = struct.unpack("<4I", done.stdout[:16]) if len(done.stdout) >= 16 else (0, 0, 0, 0)
    if done.returncode == FAULT and head[0] == FAULT:
        _, at, cause, address = head
        raise RuntimeFailure(
            f"the program on {where.name} faulted in {_function(elf, at)}",
            why=f"program counter {at:#x}, fault status {cause:#x}, address {address:#x}",
        )
    if done.returncode == TOO_LONG:
        raise RuntimeFailure(f"the program on {where.name} did not end in time")
    if done.returncode or head[0] != ANSWER:
        raise RuntimeFailure(
            f"the program on {where.name} failed with status {done.returncode}",
            details=done.stderr.decode(errors="replace").splitlines()[:10],
        )
    _, status, low, high = head
    if status:
        raise RuntimeFailure(f"the model on {where.name} returned {status - (status >> 31 << 32)}")
    return low | high << 32, done.stdout[16:]


def _function(elf: Path, address: int) -> str:
    """The name of the function at an address; "an unknown function" if it is not known."""
    tool = [COMPILER.replace("gcc", "addr2line"), "-f", "-e", str(elf), f"{address:#x}"]
    try:
        done = subprocess.run(tool, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return "an unknown function"
    name = done.stdout.partition("\n")[0].strip()
    return name if name and name != "??" else "an unknown function"


__all__ = ["Program", "Result", "measure_cycles", "measure_program"]
