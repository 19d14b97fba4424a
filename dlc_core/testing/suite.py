"""`conformance_suite(target)`: the tests that every target must pass, as a class for a test file.

    from dlc_core.testing import conformance_suite

    TestNpu = conformance_suite("npu")

Each tier is a class of tests. The tier `core` has tests that need no target. The levels are `device`, `ops`,
`graphs`, `models`, `hostile` and `speed`. A suite has all levels by default; `speed` runs only on request.

Options of pytest select tests: `--dlc-target`, `--dlc-tiers` or `--dlc-level` (0 is `device`, 1 `ops` and so
on), `--dlc-dtypes`, `--dlc-ops`, `--dlc-fraction`. `--dlc-isolate` runs tests in a separate process, and
`--dlc-guard` in guard mode. `--dlc-report=DIR` writes a report. `dlc_core.testing.conformance` is a suite for
any target, without a test file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.testing.levels import LEVELS
from dlc_core.testing.tiers.base import Settings, Tier
from dlc_core.testing.tiers.core import CoreTier
from dlc_core.testing.tiers.device import DeviceTier
from dlc_core.testing.tiers.exemptions import ExemptionsTier
from dlc_core.testing.tiers.graphs import GraphsTier
from dlc_core.testing.tiers.hostile import HostileTier
from dlc_core.testing.tiers.models import ModelsTier
from dlc_core.testing.tiers.ops import OpsTier
from dlc_core.testing.tiers.speed import SpeedTier

TIERS: dict[str, type[Tier]] = {
    "core": CoreTier,
    "device": DeviceTier,
    "ops": OpsTier,
    "graphs": GraphsTier,
    "models": ModelsTier,
    "hostile": HostileTier,
    "speed": SpeedTier,
}
"""The contents of each tier; the first needs no target."""


def conformance_suite(
    target: str,
    *,
    tiers: Sequence[str] = LEVELS,
    dtypes: Sequence[str] = (),
    fast_dtypes: Sequence[str] = (),
    fast_symbolic: int = 0,
    graphs: int = 40,
    ops: Sequence[str] = (),
    fraction: float = 0.0,
    guard: str = "",
) -> type[Any]:
    """A class of tests for a target, given as text.

    `dtypes` restricts the dtypes of ops (empty: all). Dtypes that are not in `fast_dtypes` (empty: all) are
    marked slow. So are samples with symbolic dims after the first `fast_symbolic` of an op (0: no limit).
    `graphs` is the number of random graphs; the slow tests compile ten times as many. `ops`
    restricts the ops (empty: all). `fraction` is the fraction of the declared roofline that level 5 requires.
    In a `guard` mode ("end" or "begin") each value has its own pages, and tests run in another process. An
    access outside of a value then fails its test.
    """
    unknown = [name for name in tiers if name not in TIERS]
    if unknown:
        raise UsageError(f"no tier {unknown[0]!r}", hint=f"tiers: {', '.join(TIERS)}")
    settings = Settings(
        target,
        tuple(dtypes),
        tuple(fast_dtypes),
        fast_symbolic,
        graphs,
        tuple(ops),
        fraction,
        guard,
    )
    bases = (*(TIERS[name] for name in TIERS if name in tiers), ExemptionsTier)
    return type("Conformance", bases, {"settings": settings, "__doc__": f"Conformance of {target}."})


__all__ = ["TIERS", "conformance_suite"]
