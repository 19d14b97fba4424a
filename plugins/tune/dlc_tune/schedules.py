"""The tuner of a compile that takes given schedules for some kernels, and notes all of them.

schedules = Schedules({task.key: trace})
with PassContext.current().with_(tuner=schedules):
    exe = dlc.compile(model, target, cache=True)
schedules.kernels                                 (target, name) and the unscheduled kernel with its target

Compiled kernels are kept in the cache, each with its schedule. So a model whose schedules differ in few
kernels is compiled in a part of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dlc_core.driver.kernel_cache import NAME
from dlc_core.schedule import Trace
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.task import kernel_key


class Schedules:
    """Schedules by the key of kernels; the rules schedule all others."""

    def __init__(self, traces: Mapping[str, str | Trace] = MappingProxyType({})) -> None:
        self._traces = traces
        self.kernels: dict[tuple[str, str], tuple[PrimFunc, Target]] = {}

    def __call__(self, func: PrimFunc, target: Target) -> str | Trace | None:
        """The schedule of a kernel."""
        if func.name != NAME:  # else `kernel_state` was asked before
            self._note(func, target)
        return self._traces.get(kernel_key(func)) if self._traces else None

    def kernel_state(self, func: PrimFunc, target: Target) -> str:
        """The text of the schedule of a kernel, for the cache; see `PassContext.tuner`."""
        self._note(func, target)
        trace = self._traces.get(kernel_key(func)) if self._traces else None
        return trace.to_json() if isinstance(trace, Trace) else trace or ""

    def _note(self, func: PrimFunc, target: Target) -> None:
        self.kernels.setdefault((str(target), func.name), (func, target))

    @property
    def names(self) -> dict[str, str]:
        """The names of the kernels by their keys."""
        return {kernel_key(func): name for (_, name), (func, _) in self.kernels.items()}


__all__ = ["Schedules"]
