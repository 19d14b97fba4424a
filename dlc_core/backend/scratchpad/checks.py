"""Run-time checks of accesses, which are proved while a stream is recorded.

`prove_bounds` adds a check to an access that it cannot prove, such as one to the last rows of a window
that is divided unevenly. Units have no branches. The recorder knows the place of every access, so it removes
these checks and tests the bytes of each command instead.

    if 0 <= i + t and i + t < 96: x_pad[i] = x[i + t]       becomes     x_pad[i] = x[i + t]
    else: failure[...] = ...
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.backend.scratchpad.commands import Command, Operand
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import loads_in
from dlc_core.tir.failures import parameters_of
from dlc_core.tir.functor import transform_stmt
from dlc_core.tir.stmt import If, PrimFunc, Stmt


def without_checks(func: PrimFunc) -> Stmt:
    """The body of a kernel without the checks of its accesses."""
    found = parameters_of(func)
    if found is None:
        return func.body
    record = found[0]

    def unchecked(stmt: Stmt) -> Stmt | None:
        otherwise = stmt.orelse if isinstance(stmt, If) else None
        if not isinstance(stmt, If) or not isinstance(otherwise, If):
            return None
        reports = any(load.buffer is record for load in loads_in(otherwise.cond))
        return stmt.then if reports else None

    return transform_stmt(func.body, stmt_fn=unchecked)


def check_inside(command: Command, places: Iterable[tuple[Operand, Buffer, int, int]], kernel: str) -> None:
    """Raise CodegenError if a command accesses bytes outside of a buffer. `places` has for each operand its
    buffer, the first byte of the buffer, and its size in bytes.
    """
    spans = [*command.reads(), command.writes()]
    for operand, buffer, first, size in places:
        for own, (begin, end) in spans:
            if own is operand and not first <= begin <= end <= first + size:
                raise CodegenError(
                    f"{kernel}: a command accesses bytes {begin - first} to {end - first} of {buffer.name}",
                    why=f"it has {size} bytes",
                )


__all__ = ["check_inside", "without_checks"]
