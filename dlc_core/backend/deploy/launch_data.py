"""Lists of launches as data for C runtimes, which read them by `c/dlc_launches.h`.

The data are integers of 64 bits, little-endian: a head, the expressions, the kernels, the entry points with
their steps, and the texts. The code of the kernels follows, aligned to 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.backend.launches import LAUNCHES, read_launches
from dlc_core.backend.simt import Spelling, simt_library
from dlc_core.diag import UnsupportedError
from dlc_core.target import Artifact

MAGIC = b"DLCLNCH1"
_CONST, _VAR = 0, 1
_OPS = (
    "neg", "not", "select", "add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or",
)  # fmt: skip
"""The operations, by their numbers from 2 on."""
_HEAD = 12
_ALIGN = 64


def pack_launches(artifact: Artifact, code: bytes | None = None) -> bytes:
    """The launches of a `LaunchCodegen`'s artefact, with `code`, that of the kernels (by default, the
    artefact's).

    Raises ArtifactError for malformed metadata, and UnsupportedError for kernels with tensor copies and for
    sizes that are not integers.
    """
    kernels, _ = read_launches(artifact.metadata.get(LAUNCHES))
    copying = [kernel.symbol for kernel in kernels if kernel.tensors]
    if copying:
        raise UnsupportedError(f"kernel {copying[0]} has tensor copies, which C runtimes do not support")
    packed = _Packer(artifact.metadata[LAUNCHES]).words()
    begin = -(-len(packed) // _ALIGN) * _ALIGN
    code = artifact.code if code is None else code
    head = np.frombuffer(packed, np.int64).copy()
    head[2] = len(code)
    made: bytes = head.tobytes() + bytes(begin - len(packed)) + code
    return made


def simulated_kernels(artifact: Artifact, spelling: Spelling) -> bytes:
    """A shared library for this machine with the kernels of an artefact, as a `LaunchDevice` runs them. A
    kernel has the function `<symbol>__launch`.

    Raises UnsupportedError without a C compiler.
    """
    kernels, _ = read_launches(artifact.metadata.get(LAUNCHES))
    return simt_library(artifact.code.decode(), kernels, spelling).read_bytes()


class _Packer:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._texts = bytearray()
        self._exprs = [self._expr(row) for row in data["exprs"]]
        self._constants: dict[int, int] = {}

    def words(self) -> bytes:
        """The list of launches."""
        kernels = [self._kernel(kernel) for kernel in self._data["kernels"]]
        entries = [self._entry(name, entry) for name, entry in self._data["entries"].items()]
        at = _HEAD + 4 * len(self._exprs)
        kernels_at, entries_at = at, at + 5 * len(kernels)
        at = entries_at + 6 * len(entries)
        rows: list[int] = []
        lists: list[int] = []
        for name, buffers, scalars, steps in entries:
            rows += [name, buffers, len(scalars), at, at + len(scalars), len(steps)]
            lists += [*scalars, *steps]
            at += len(scalars) + len(steps)
        texts = bytes(self._texts) + bytes(-len(self._texts) % 8)
        most = [max((k[i] for k in kernels), default=0) for i in (1, 2)]
        total = at + len(texts) // 8
        magic = int.from_bytes(MAGIC, "little")
        head = [magic, total, 0, len(self._exprs), len(kernels), len(entries), _HEAD, kernels_at, entries_at]
        head += [at, *most]
        table = [word for row in (*self._exprs, *kernels) for word in row]
        return np.array([*head, *table, *rows, *lists], "<i8").tobytes() + texts

    def _text(self, text: str) -> int:
        at = len(self._texts)
        self._texts += text.encode() + b"\0"
        return at

    def _expr(self, row: Sequence[Any]) -> list[int]:
        op, *operands = row
        if op in ("const", "bool"):
            return [_CONST, int(operands[0]), 0, 0]
        if op == "var":
            return [_VAR, 0, 0, 0]
        if op not in _OPS:
            raise UnsupportedError(
                f"a size of a launch has the operation {op!r}, which C runtimes do not support"
            )
        return [2 + _OPS.index(op), *operands, *[0] * (3 - len(operands))]

    def _kernel(self, kernel: Mapping[str, Any]) -> list[int]:
        shared = sum(size for _, size in kernel["shared"])
        name, order = self._text(kernel["symbol"]), self._text(kernel["order"])
        return [name, len(kernel["buffers"]), len(kernel["scalars"]), order, shared]

    def _entry(self, name: str, entry: Mapping[str, Any]) -> tuple[int, int, list[int], list[int]]:
        return self._text(name), entry["buffers"], list(entry["scalars"]), self._steps(entry["steps"])

    def _steps(self, steps: Sequence[Mapping[str, Any]]) -> list[int]:
        return [word for step in steps for word in self._step(step)]

    def _step(self, step: Mapping[str, Any]) -> list[int]:
        if "for" in step:
            body = self._steps(step["steps"])
            return [1, step["for"], self._int(step["begin"]), self._int(step["extent"]), len(body), *body]
        if "if" in step:
            then, orelse = self._steps(step["then"]), self._steps(step["else"])
            return [2, step["if"], len(then), len(orelse), *then, *orelse]
        words = [0, step["kernel"], *(self._int(n) for n in (*step["grid"], *step["group"]))]
        for buffer, offset, size in step["buffers"]:
            words += [buffer, self._int(offset), self._int(size)]
        return [*words, *(self._int(n) for n in step["scalars"])]

    def _int(self, item: Any) -> int:
        """The row of an integer of the list."""
        if isinstance(item, Mapping):
            return int(item["expr"])
        if item not in self._constants:
            self._constants[item] = len(self._exprs)
            self._exprs.append([_CONST, int(item), 0, 0])
        return self._constants[item]


__all__ = ["pack_launches", "simulated_kernels"]
