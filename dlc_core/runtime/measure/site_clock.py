"""The times of the kernels of a model in calls on fixed memory, for measurements that are repeated often.

clock = SiteClock.of(exe, inputs)        None if the code of the model does not time its kernels itself
clock.kernels                            the kernel of each call site
clock.seconds(10, repeat=5)              the seconds of each site in a call, [number of sites]

`exe.profile` reports more, and prepares its calls and its figures each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlc_core.runtime.artefact.compiled import LoadableModel
from dlc_core.runtime.call.calling import InPlace
from dlc_core.runtime.measure.kernels import entries_of
from dlc_core.runtime.measure.recorder import Recorder
from dlc_core.runtime.measure.recording import Recorded

Seconds = npt.NDArray[np.float64]


class SiteClock:
    """The prepared calls of one executable. `kernels` are the names of the kernels of its call sites."""

    def __init__(self, kernels: Sequence[str], run: Callable[[], object], figures: Any) -> None:
        self.kernels = tuple(kernels)
        self._run = run
        self._figures = figures

    @classmethod
    def of(cls, exe: LoadableModel, inputs: Sequence[Any]) -> SiteClock | None:
        """The clock of a model that is one native entry point of code that times each kernel; else None.

        `inputs` are arrays in the order of the model's inputs, which calls read in place.
        """
        caller = exe.loaded_caller()
        if exe.program is not None or not isinstance(caller, InPlace):
            return None
        (unit,) = Recorded(exe, Recorder()).units
        entry = next(iter(entries_of(exe)), None)
        if unit.profiled is None or entry is None:
            return None
        run, figures = caller.measuring(unit.profiled, inputs, unit.sites, exe.num_threads)
        return cls([site["kernel"] for site in entry.sites], run, figures)

    def seconds(self, calls: int = 1, repeat: int = 5) -> Seconds:
        """The seconds of each site in a call, [len(kernels)]: the mean of `calls` calls, of which the least
        of `repeat` counts, because disturbances make runs longer. A call before them is not timed: it brings
        the model back to the caches.
        """
        self._run()
        found = np.full(len(self.kernels), np.inf)
        for _ in range(repeat):
            self._figures.fill(0)
            for _ in range(calls):
                self._run()
            np.minimum(found, self._figures[: len(self.kernels), 0] / (1e9 * calls), out=found)
        return found


__all__ = ["SiteClock"]
