"""Checks of the accesses of commands, while a stream is recorded and when it is loaded.

`prove_bounds` adds a check to an access that it cannot prove, such as one to the last rows of a window
that is divided unevenly. Units have no branches. The recorder knows the address of every access. It
removes these checks and tests the bytes of each command instead.

    if 0 <= i + t and i + t < 96: x_pad[i] = x[i + t]       becomes     x_pad[i] = x[i + t]
    else: failure[...] = ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dlc_core.backend.scratchpad.commands import MAIN, Command, Operand
from dlc_core.diag import ArtifactError, CodegenError, DlcError, RuntimeFailure
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import loads_in
from dlc_core.target.description import Description
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


def check_inside(command: Command, operands: Iterable[tuple[Operand, Buffer, int, int]], kernel: str) -> None:
    """Raise CodegenError if a command accesses bytes outside of a buffer. `operands` has for each operand its
    buffer, the first byte of the buffer, and its size in bytes.
    """
    spans = [*command.reads(), command.writes()]
    for operand, buffer, first, size in operands:
        for own, (begin, end) in spans:
            if own is operand and not first <= begin <= end <= first + size:
                raise CodegenError(
                    f"{kernel}: a command accesses bytes {begin - first} to {end - first} of {buffer.name}",
                    why=f"it has {size} bytes",
                )


def check_memories(commands: Sequence[Command], machine: Description) -> None:
    """Raise ArtifactError for a command outside of the memories on the chip of a machine."""
    capacities = machine.capacities
    for number, command in enumerate(commands):
        for operand, (begin, end) in (*command.reads(), command.writes()):
            size = capacities.get(operand.space, 0)
            if operand.space != MAIN and (begin < 0 or end > size):
                raise ArtifactError(
                    f"a command accesses bytes {begin} to {end} of {operand.space}",
                    why=f"it has {size} bytes" if size else "the device has no such memory",
                    details=[f"in command {number}", f"in {command}"],
                    hint="the code and the device describe different machines, or the code is damaged",
                )


@contextmanager
def located(*where: object) -> Iterator[None]:
    """Add the location, such as a command and an entry point, to errors that are raised within."""
    try:
        yield
    except DlcError as error:
        error.details += tuple(f"in {each}" for each in where)
        raise
    except Exception as error:
        details = [f"in {each}" for each in where]
        raise RuntimeFailure("the execution failed", why=f"{error!r}", details=details) from error


__all__ = ["check_inside", "check_memories", "located", "without_checks"]
