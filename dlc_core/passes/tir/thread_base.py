"""Passes over programs with thread axes; for targets without any they do nothing."""

from __future__ import annotations

from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.threads import has_axes


def has_threads(context: PassContext) -> bool:
    """Whether programs may have thread axes: the target is unknown, or has them."""
    return context.target is None or bool(context.target.describe().thread_axes)


@record(frozen=True)
class ThreadPass(PrimFuncPass):
    """A pass over the functions that have thread axes."""

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return self.change(func) if has_axes(func.body) and has_threads(context) else func

    def change(self, func: PrimFunc) -> PrimFunc:
        """Return the new program of a function with thread axes."""
        raise NotImplementedError(f"{type(self).__name__}.change")


__all__ = ["ThreadPass", "has_threads"]
