"""Calls on fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]


class BoundCall:
    """A call on fixed memory: `call()` reads `inputs`, writes `outputs` in place, and returns them.

    It checks and allocates nothing. It has its own scratch memory, so one bound call must not run in two
    threads at once. Bind one for each thread.
    """

    __slots__ = ("_result", "_run", "inputs", "outputs")

    def __init__(
        self, run: Callable[[], None], inputs: Sequence[NDArray], outputs: Sequence[NDArray]
    ) -> None:
        self._run = run
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._result = outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __call__(self) -> Any:
        self._run()
        return self._result


__all__ = ["BoundCall"]
