"""A check, from the code of an entry alone, that no step reads a value of an updated input after another step
has overwritten it.

The values of an input are versions of it: the input itself, and windows on all of its memory that kernels
write. Once a step has written a version, later steps may use only this one. The step itself may use the
version before in one case: as the argument that its kernel overwrites, element by element
(`tir.in_place`, `tir.updates`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from dlc_core.diag import PassError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call
from dlc_core.passes.lower.disjoint import buffers_used, passed_buffer, steps_in
from dlc_core.tir.functor import stmts_of
from dlc_core.tir.in_place import OVERWRITES
from dlc_core.tir.intrinsics import kernel_symbol
from dlc_core.tir.stmt import Eval, PrimFunc, Stmt, View
from dlc_core.tir.updates import IN_PLACE


def check_versions(func: PrimFunc, versions: Collection[Buffer], functions: Mapping[str, object]) -> None:
    """Check an entry. `versions` are the windows that are new values of inputs.

    Raises PassError that names the value which is read after it was overwritten.
    """
    bases = {view.buffer: view.base for view in stmts_of(func.body, View)}
    latest: dict[Buffer, Buffer] = {}
    dead: set[Buffer] = set()

    def version_of(buffer: Buffer) -> Buffer:
        while buffer not in versions and buffer in bases:
            buffer = bases[buffer]
        return buffer

    for step in steps_in(func.body):
        used = dict.fromkeys(map(version_of, buffers_used(step)))
        if not dead.isdisjoint(used):
            name = next(buffer for buffer in used if buffer in dead)
            raise PassError(f"a value of the input {name.name!r} is read after it was overwritten")
        for made in [b for b in used if b in versions and latest.get(bases[b]) is not b]:
            before = latest.get(bases[made], bases[made])
            if before in used and not _overwrites(step, before, made, version_of, functions):
                raise PassError(f"a kernel reads the input {before.name!r} while it overwrites it")
            latest[bases[made]] = made
            dead.add(before)


def _overwrites(
    step: Stmt, before: Buffer, made: Buffer, version_of: object, functions: Mapping[str, object]
) -> bool:
    """Whether a step is a call of a kernel that may write the version `made` over the version `before`."""
    call = step.value if isinstance(step, Eval) else None
    callee = functions.get(kernel_symbol(call) or "") if isinstance(call, Call) else None
    if not isinstance(call, Call) or not isinstance(callee, PrimFunc):
        return False
    assert callable(version_of)
    passed = [None if b is None else version_of(b) for b in map(passed_buffer, call.args)]
    if passed.count(before) != 1 or passed.count(made) != 1:
        return False
    pair = passed.index(before), passed.index(made)
    return pair in _pairs(callee)


def _pairs(callee: PrimFunc) -> Iterator[tuple[int, int]]:
    for name in (OVERWRITES, IN_PLACE):
        yield from (tuple(pair) for pair in callee.attrs.get(name, ()))


__all__ = ["check_versions"]
