"""check_foreign: check calls of foreign functions, and make loops around them serial if they must be."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import ForeignError
from dlc_core.foreign.calls import check_call, foreign_calls, foreign_name
from dlc_core.foreign.lookup import find_foreign
from dlc_core.ir.expr import Call, const_value
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.support.record import record
from dlc_core.tir.functor import transform_each
from dlc_core.tir.stmt import For, PrimFunc, Stmt


@record(frozen=True)
class CheckForeign(PrimFuncPass):
    """Check the calls of registered foreign functions: number and dtypes of arguments, dtype of the result,
    and that only pure functions are in expressions. Parallel loops around functions that are not thread-safe,
    or that are Python callables, become serial.

    The pass leaves functions that are not registered to the code generator, because the target may know them.
    It raises ForeignError for a call that does not fit, and for a function that is not thread-safe in a loop
    over the threads of a device.

    Before:

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            for i in T.parallel(4):
                T.evaluate(T.call_extern("fill", T.address_of(A[i]), dtype="int32"))

    After:

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            for i in T.parallel(4):
                T.evaluate(T.call_extern("fill", T.address_of(A[i]), dtype="int32"))
    """

    name: ClassVar[str] = "check_foreign"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        where, serial = f"program {func.name}", False
        for call, stmt in foreign_calls(func.body):
            function = find_foreign(foreign_name(call) or "")
            if function is not None:
                check_call(function, call, stmt, where)
                serial = serial or function.serial
        if not serial:
            return func
        return replace(func, body=transform_each(func.body, For, lambda loop: _serial(loop, where)))


def _serial(loop: For, where: str) -> Stmt | None:
    """A parallel loop whose calls must not overlap as a serial loop; None if the loop stays."""
    if loop.kind not in ("parallel", "thread"):
        return None
    for call, _ in foreign_calls(loop.body):
        function = find_foreign(foreign_name(call) or "")
        if function is None or not function.serial:
            continue
        if loop.kind == "parallel":
            return replace(loop, kind="serial")
        if not function.thread_safe and const_value(loop.extent) != 1:
            raise _overlap(loop, call, where)
    return None


def _overlap(loop: For, call: Call, where: str) -> ForeignError:
    return ForeignError(
        f"{where}: calls of foreign function {foreign_name(call)!r} must not overlap",
        why=f"the loop {loop.var.name} is over {loop.thread}, and the function is not thread-safe",
        hint="schedule the loop as serial",
    )


__all__ = ["CheckForeign"]
