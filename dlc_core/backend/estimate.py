"""The estimated cycles of entry points on the machine of a target's description, by the core's cost model."""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.ir.expr import Call
from dlc_core.ir.module import IRModule
from dlc_core.target import Target
from dlc_core.target.cost import Machine, Work
from dlc_core.tir.functor import stmts_of
from dlc_core.tir.stmt import Eval, PrimFunc

_KERNEL = "kernel."


def entry_cycles(module: IRModule, target: Target) -> dict[str, int]:
    """The estimated cycles of each entry point, with one launch per kernel.

    Kernels whose work depends on symbolic dims count as 0.
    """
    description = target.describe()
    machine = Machine.of(description)
    work = {call["kernel"]: Work.of_record(call) for call in module.attrs.get("calls", ())}
    resident = sum(w.constants or 0 for w in work.values())
    seconds = {}
    for name, one in work.items():
        estimate = machine.estimate(one, threads=description.cores, resident=resident)
        seconds[name] = 0.0 if estimate is None else estimate.seconds
    entries = [func for func in module.of_kind(PrimFunc).values() if func.attrs.get("entry")]
    return {
        func.name: round(sum(seconds.get(name, 0.0) for name in _called(func)) * description.frequency)
        for func in entries
    }


def _called(func: PrimFunc) -> Iterator[str]:
    for stmt in stmts_of(func.body, Eval):
        if isinstance(stmt.value, Call) and stmt.value.name.startswith(_KERNEL):
            yield stmt.value.name.removeprefix(_KERNEL)


__all__ = ["entry_cycles"]
