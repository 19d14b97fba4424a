"""The cost of a model on the card for the tuner: the cycles of its launches, in place of the clock.

The hook `dlc_measures` of the plugin returns `MEASURE`. The simulated time does not depend on data or on the
machine, so one run is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dlc_tune.measuring.vendor import Measure

from dlc_core.plugin.registry import registry
from dlc_core.runtime.executable import Executable


def cycles(exe: Executable, inputs: Sequence[np.ndarray[Any, Any]], repeat: int) -> tuple[list[float], Any]:
    """The cycles of one run, and its outputs."""
    device = registry().devices["vta"]
    before = device.cycles
    outputs = exe(*inputs)
    return [float(device.cycles - before)], outputs


MEASURE = Measure("vta", cycles, unit="cycles", deterministic=True)

__all__ = ["MEASURE", "cycles"]
