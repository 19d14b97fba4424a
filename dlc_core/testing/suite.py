"""`conformance_suite(target)`: the tests that every target must pass, as a class for a test file.

    from dlc_core.testing import conformance_suite

    TestNpu = conformance_suite("npu")

Each level is a class of tests. The levels of a target are 0 `device`, 1 `ops`, 2 `graphs`, 3 `models`,
4 `hostile` and 5 `speed`. A suite has all of them by default; `speed` runs only on request. The level `core`
has the tests that need no target.

Options of pytest select tests: `--dlc-target`, `--dlc-level` (numbers or names of levels), `--dlc-dtypes`,
`--dlc-ops`, `--dlc-fraction`. `--dlc-isolate` runs tests in a separate process, and `--dlc-guard` in guard
mode. `--dlc-limit-factor` multiplies the time limits. `--dlc-report=DIR` writes a report,
`--dlc-badge=FILE` a badge. `dlc_core.testing.conformance` is a suite for any target, without a test file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.testing.levels import LEVELS
from dlc_core.testing.levels.base import Level, Settings
from dlc_core.testing.levels.core import CoreLevel
from dlc_core.testing.levels.device import DeviceLevel
from dlc_core.testing.levels.exemptions import ExemptionsLevel
from dlc_core.testing.levels.graphs import GraphsLevel
from dlc_core.testing.levels.hostile import HostileLevel
from dlc_core.testing.levels.models import ModelsLevel
from dlc_core.testing.levels.ops import OpsLevel
from dlc_core.testing.levels.speed import SpeedLevel

CLASSES: dict[str, type[Level]] = {
    "core": CoreLevel,
    "device": DeviceLevel,
    "ops": OpsLevel,
    "graphs": GraphsLevel,
    "models": ModelsLevel,
    "hostile": HostileLevel,
    "speed": SpeedLevel,
}
"""The class of tests of each level."""


def conformance_suite(
    target: str,
    *,
    levels: Sequence[str] = LEVELS,
    dtypes: Sequence[str] = (),
    fast_dtypes: Sequence[str] = (),
    fast_symbolic: int = 0,
    graphs: int = 40,
    ops: Sequence[str] = (),
    fraction: float = 0.0,
    guard: str = "",
    limit_factor: float = 1.0,
) -> type[Any]:
    """A class of tests for a target, given as text.

    `dtypes` restricts the dtypes of ops (empty: all). Dtypes that are not in `fast_dtypes` (empty: all) are
    marked slow. So are samples with symbolic dims after the first `fast_symbolic` of an op (0: no limit).
    `graphs` is the number of random graphs; the slow tests compile ten times as many. `ops`
    restricts the ops (empty: all). `fraction` is the fraction of the declared roofline that level 5 requires.
    In a `guard` mode ("end" or "begin") each value has its own pages, and tests run in another process. An
    access outside of a value then fails its test. `limit_factor` multiplies the time limits of cases and of
    levels (`testing.limits`).
    """
    unknown = [name for name in levels if name not in CLASSES]
    if unknown:
        raise UsageError(f"no level {unknown[0]!r}", hint=f"levels: {', '.join(CLASSES)}")
    settings = Settings(
        target,
        tuple(dtypes),
        tuple(fast_dtypes),
        fast_symbolic,
        graphs,
        tuple(ops),
        fraction,
        guard,
        limit_factor,
    )
    bases = (*(CLASSES[name] for name in CLASSES if name in levels), ExemptionsLevel)
    return type("Conformance", bases, {"settings": settings, "__doc__": f"Conformance of {target}."})


__all__ = ["CLASSES", "conformance_suite"]
