"""The simulator of kernels on the CPU. This machine's C compiler compiles the text that a device's compiler
would get.

The threads of a group are fibres that run from barrier to barrier. The threads of kernels without barriers
are consecutive calls. So the results are those of the generated text. A `Spelling` defines the words of the
kernel language in C.

Checked programs report two kinds of errors, with the kernel, the buffer and the threads. One is an access
outside of all buffers. The other is a race: two threads of a group access the same bytes without a barrier in
between, or two groups access them, and one access is a write. Checked programs are slow.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from dlc_core.backend.binary_cache import cached_binary
from dlc_core.backend.compiler import compile_c, compiler, compiler_problem, compiler_version
from dlc_core.backend.launches import Kernel, Launch
from dlc_core.diag import ArtifactError, RuntimeFailure, UnsupportedError
from dlc_core.runtime.memory.host import NDArray, address, aligned_bytes
from dlc_core.target.source import Blocks
from dlc_core.tir.failures import RECORD_NAME
from dlc_core.tir.matrix import MatrixUnit

FLAGS = ("-std=gnu99", "-O2", "-fno-math-errno", "-ffp-contract=fast", "-fno-trapping-math", "-w")
"""The options of a gcc-compatible compiler."""
_CHECKED = ("-std=gnu99", "-O1", "-fno-math-errno", "-fsanitize=thread", "-w")
_GUARD = 1024
"""The unused bytes before and after each buffer of a checked launch."""
_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)


@dataclass(frozen=True)
class Spelling:
    """The definitions of a language's words for kernels that run on the CPU.

    `words` become macros: {"my_barrier()": "DLC_BARRIER()"}. They may use the macros of `simt.h`:
    DLC_GROUP(dim), DLC_THREAD(dim), DLC_GROUPS(dim), DLC_THREADS(dim), DLC_SHARED, DLC_BARRIER(),
    DLC_SHUFFLE(x, lane, width), DLC_SHUFFLE_DOWN, DLC_SHUFFLE_XOR, DLC_ATOMIC_ADD(p, x), DLC_ATOMIC_MIN,
    DLC_ATOMIC_MAX, DLC_COPY_ASYNC(to, from, size), DLC_COPIES_WAIT_ALL(), DLC_MATRIX(acc, a, b, unit) and
    DLC_BLOCKS(to, from, count, block). `unit` and `block` are arrays of int16_t, whose initialisers
    `matrix_numbers` and `block_numbers` return.
    """

    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    text: str = ""
    """C text before the kernels: types and functions of the language."""
    shared: str = "DLC_SHARED"
    """The word that begins the declaration of a shared array."""
    offsets: bool = False
    """Whether each buffer parameter is followed by an offset."""

    def prelude(self) -> str:
        """The C text before the kernels."""
        defined = [f"#define {word} {meaning}" for word, meaning in self.words.items()]
        return "\n".join([*defined, self.text, ""])


_TYPES = ("float32", "int32", "float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
"""Those of matrices, by the numbers that the runtime knows them by."""


def matrix_numbers(unit: MatrixUnit) -> str:
    """The description of a matrix unit for the runtime, as text: dtypes, sizes, fragments."""
    types = [_TYPES.index(name) for name in (unit.acc, unit.a, unit.b)]
    layouts = [n for each in (unit.of_acc, unit.of_a, unit.of_b) for n in each.literals()]
    return ", ".join(map(str, [*types, unit.m, unit.n, unit.k, unit.mantissa, *layouts]))


def block_numbers(blocks: Blocks) -> str:
    """The description of blocks that a subgroup loads, as text."""
    return ", ".join(map(str, [blocks.of.rows, blocks.of.columns, blocks.bits // 8, *blocks.of.literals()]))


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


class SimtProgram:
    """Kernels in this process."""

    def __init__(self, library: ctypes.CDLL, kernels: Sequence[Kernel], checked: bool) -> None:
        self.checked = checked
        self._last_error = library.dlc_simt_last_error
        self._last_error.restype = ctypes.c_char_p
        self._calls = {}
        for kernel in kernels:
            try:
                found = ctypes.cast(library[f"{kernel.symbol}__launch"], ctypes.c_void_p).value
            except AttributeError:
                raise ArtifactError(f"the code has no kernel {kernel.symbol}") from None
            assert found is not None
            self._calls[kernel.symbol] = _CALL(found)

    def run(self, launch: Launch, blocks: Sequence[NDArray]) -> None:
        """Run a launch on the memory of a call, one array of bytes for each of its buffers.

        Raises RuntimeFailure for illegal operations of the threads of a group, and for errors that a checked
        program finds.
        """
        if self.checked:
            guarded = _Guarded(launch, blocks)
            self._run(launch, guarded.addresses)
            guarded.copy_back()
            return
        self._run(launch, [address(blocks[w.buffer]) + w.offset for w in launch.buffers])

    def _run(self, launch: Launch, addresses: Sequence[int]) -> None:
        dims = (ctypes.c_int64 * 6)(*launch.grid, *launch.group)
        pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        numbers = (*launch.scalars, *(n for tensor in launch.tensors() for n in tensor.numbers))
        scalars = (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
        sizes = (ctypes.c_int64 * max(1, len(addresses)))(*(w.size for w in launch.buffers))
        if self._calls[launch.kernel.symbol](dims, pointers, scalars, sizes):
            raise RuntimeFailure(f"kernel {launch.kernel.symbol} failed", why=self._last_error().decode())


class _Guarded:
    """Copies of a launch's buffers, with gaps between them unless they overlap."""

    def __init__(self, launch: Launch, blocks: Sequence[NDArray]) -> None:
        self.copies: list[tuple[NDArray, NDArray]] = []
        starts: dict[int, int] = {}
        order = sorted(
            range(len(launch.buffers)),
            key=lambda i: launch.buffers[i].buffer << 62 | launch.buffers[i].offset,
        )
        parts: list[list[int]] = []
        end = buffer = -1
        for i in order:
            window = launch.buffers[i]
            if window.buffer != buffer or window.offset >= end or window.size == 0:
                parts.append([])
                buffer, end = window.buffer, window.offset
            parts[-1].append(i)
            end = max(end, window.offset + window.size)
        for part in parts:
            windows = [launch.buffers[i] for i in part]
            first, last = windows[0].offset, max(w.offset + w.size for w in windows)
            memory = aligned_bytes(last - first + 2 * _GUARD)
            memory[:] = 0xFF
            inner = memory[_GUARD : _GUARD + last - first]
            outer = blocks[windows[0].buffer][first:last]
            inner[:] = outer
            self.copies.append((outer, inner))
            starts.update({i: address(inner) + w.offset - first for i, w in zip(part, windows)})
        self.addresses = [starts[i] for i in range(len(launch.buffers))]

    def copy_back(self) -> None:
        for outer, inner in self.copies:
            outer[:] = inner


def load_simt(
    text: str, kernels: Sequence[Kernel], spelling: Spelling, *, checked: bool = False
) -> SimtProgram:
    """Compile and load kernels. A library that was compiled before is taken from dlc's cache folder.

    Raises UnsupportedError without a compiler, and CodegenError with the compiler's message if it refuses the
    text.
    """
    path = simt_library(text, kernels, spelling, checked=checked)
    try:
        return SimtProgram(ctypes.CDLL(str(path)), kernels, checked)
    except OSError as error:
        raise ArtifactError("the compiled kernels cannot be loaded", why=str(error)) from None


def simt_library(text: str, kernels: Sequence[Kernel], spelling: Spelling, *, checked: bool = False) -> Path:
    """Compile kernels to a shared library for this machine, which is in dlc's cache folder. Raises the errors
    of `load_simt`.
    """
    body = _registered(text, kernels, spelling) if checked else text
    calls = "\n".join(_launcher(kernel, spelling) for kernel in kernels)
    code = "\n".join([_asset("simt.h"), spelling.prelude(), body, calls]).encode()
    flags = FLAGS
    if checked:
        clang = "clang" in compiler_version()
        flags = (*_CHECKED, "-fsanitize=array-bounds" if clang else "-fsanitize=bounds")
    runtime = _runtime(checked)

    def build(source: Path, out: Path) -> None:
        # Linked without the sanitizers: the runtime has what their code calls.
        made = source.with_suffix(".o")
        compile_c(_command(), source, made, (*flags, "-fPIC", "-c"))
        compile_c(_command(), made, out, ("-shared", str(runtime)))

    return cached_binary(code, ".so", (*flags, runtime.name), build)


def _runtime(checked: bool) -> Path:
    """The thread runtime as an object file."""
    flags = (*FLAGS, "-fPIC", "-c", *(["-DDLC_SIMT_CHECKED"] if checked else []))
    code = "".join(map(_asset, ("simt.h", "simt.c", "async.c", "matrices.c", "tensor_copies.c"))).encode()
    return cached_binary(code, ".o", flags, lambda source, out: compile_c(_command(), source, out, flags))


def _command() -> tuple[str, ...]:
    command = compiler()
    if command is None:
        raise UnsupportedError("kernels cannot be simulated here", why=compiler_problem() or "")
    return command


def _launcher(kernel: Kernel, spelling: Spelling) -> str:
    """The function that starts a kernel: sizes, addresses, scalars, bytes of the buffers."""
    given, buffers, scalars = [], 0, 0
    at = len(kernel.scalars)
    for tensor in kernel.tensors:
        given.append(f"dlc_simt_tensor_of(buffers, scalars + {at})")
        at += tensor.count
    for kind in kernel.order:
        if kind == "b":
            given.append(f"buffers[{buffers}]" + ", 0" * spelling.offsets)
            buffers += 1
        else:
            given.append(f"scalars[{scalars}]")
            scalars += 1
    name = kernel.symbol
    windows = ", ".join(
        f'{{"{b.name}", buffers[{i}], sizes[{i}], {int(b.name == RECORD_NAME)}}}'
        for i, b in enumerate(kernel.buffers)
    )
    return f"""
DLC_UNCHECKED static void {name}__thread(void *const *buffers, const int64_t *scalars)
{{
    {name}({", ".join(given)});
}}

DLC_UNCHECKED int32_t {name}__launch(
    const int64_t *dims, void *const *buffers, const int64_t *scalars, const int64_t *sizes)
{{
    const struct dlc_simt_buffer windows[] = {{{windows or "{0}"}}};
    const struct dlc_simt_launch launch = {{
        "{name}", {name}__thread, {{dims[0], dims[1], dims[2]}}, {{dims[3], dims[4], dims[5]}},
        buffers, scalars, windows, {buffers}, {int(kernel.has_barriers)}}};
    return dlc_simt_run(&launch);
}}
"""


def _registered(text: str, kernels: Sequence[Kernel], spelling: Spelling) -> str:
    """The text, in which each shared array registers its address."""
    names = {name for kernel in kernels for name, _ in kernel.shared}
    if not names:
        return text
    word = re.escape(spelling.shared)
    named = "|".join(sorted(names))
    declared = re.compile(rf"^(\s+(?:\w+ )?{word}\s.*?\b({named})\[(?:\d+|\w+\(\d+\))\].*;)$", re.MULTILINE)
    return declared.sub(r'\1 dlc_simt_shared("\2", \2, sizeof \2);', text)


__all__ = ["FLAGS", "SimtProgram", "Spelling", "block_numbers", "load_simt", "matrix_numbers", "simt_library"]
