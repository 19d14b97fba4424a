"""The memory of the operands of kernel calls: which bytes of the arena, of the weights or of an argument of
the entry each call reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Load, const, const_value
from dlc_core.target.reuse import Operand
from dlc_core.tir.functor import stmts_of
from dlc_core.tir.stmt import PrimFunc, View


def windows_of(func: PrimFunc) -> dict[Buffer, Buffer]:
    """The windows on memory of an entry, each with its base."""
    return {view.buffer: view.base for view in stmts_of(func.body, View)}


def operands_of(
    args: Sequence[Expr], moved: Sequence[tuple[int, int]], windows: Mapping[Buffer, Buffer]
) -> tuple[Operand, ...]:
    """The memory of a call's first operands, of which so many bytes are read and written; empty if an address
    depends on dims."""
    found = []
    for arg, (reads, writes) in zip(args, moved, strict=False):
        address = _address(arg, windows)
        if address is None:
            return ()
        found.append(Operand(*address, reads, writes))
    return tuple(found)


def _address(arg: Expr, windows: Mapping[Buffer, Buffer]) -> tuple[str, int] | None:
    """The memory that an argument points to, and its offset in bytes; None if it is not known."""
    if not isinstance(arg, Call) or not arg.args or not isinstance(arg.args[0], Load):
        return None
    buffer, indices, offset = arg.args[0].buffer, arg.args[0].indices, 0
    while True:
        index = const_value(buffer.linear_index(indices))
        if index is None:
            return None
        offset += index * buffer.dtype.itemsize
        if buffer not in windows:
            return buffer.name, offset
        buffer = windows[buffer]
        indices = (const(0),) * buffer.ndim


__all__ = ["operands_of", "windows_of"]
