"""The records that compiles use: the hook `dlc_schedule` answers by them.

The user's own database comes first, then the packages of records by name. A record fits exactly if it was
measured for the same kernel and target, on such a machine, with as many threads, and by this compiler.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache

from dlc_core.diag import DlcError
from dlc_core.schedule import Trace
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_core.version import __version__
from dlc_tune.records.checks import CheckedTrace
from dlc_tune.records.errors import RecordsWarning
from dlc_tune.records.reading import UNREADABLE
from dlc_tune.records.record import Record, machine_of
from dlc_tune.records.sources import sources, state
from dlc_tune.task import kernel_key


@record(frozen=True)
class Answer:
    """A schedule from records. `origin` is one line for users."""

    trace: Trace
    origin: str


@record(frozen=True)
class Found:
    """A chosen record and the name of its source."""

    record: Record
    source: str

    @property
    def gain(self) -> float:
        """The measured time over that of the default schedule."""
        return self.record.gain


def find(kernel: PrimFunc, target: Target) -> Answer | None:
    """The schedule of a kernel from records; None if there is none."""
    known = _chosen(state(), str(target.for_code()))
    if not known:
        return None
    own = known.get(kernel_key(kernel), ())
    exact = next((one for one in own if not difference(one.record, target)), None)
    if exact is None:
        return None
    return Answer(CheckedTrace(exact.record.trace, target), origin(exact))


def difference(found: Record, target: Target) -> str:
    """The difference between the measurement of a record and a compile; empty if there is none."""
    description = target.describe()
    if found.processor != target.identity:
        return "another processor or code generator"
    if found.machine and found.machine != machine_of(description):
        return f"another machine: {found.machine}"
    if found.threads != description.cores:
        return f"{found.threads} threads"
    if found.compiler and found.compiler != __version__:
        return f"dlc {found.compiler}"
    return ""


def origin(one: Found) -> str:
    """Where a schedule comes from, in one line."""
    found, parts = one.record, list[str]()
    if found.seconds is not None:
        parts.append(cost_text(found.seconds, found.unit))
    if found.default_seconds is not None:
        parts.append(f"default {cost_text(found.default_seconds, found.unit)}")
    if found.space:
        parts.append(f"space {found.space}")
    if found.time:
        parts.append(time.strftime("%Y-%m-%d", time.gmtime(found.time)))
    return f"{one.source}: {', '.join(parts)}"


def cost_text(cost: float, unit: str) -> str:
    """A cost with its unit, such as `12.3 µs`."""
    if unit != "seconds":
        return f"{cost:.6g} {unit}"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if cost >= scale:
            return f"{cost / scale:.3g} {name}"
    return f"{cost * 1e9:.3g} ns"


@lru_cache(maxsize=8)
def _chosen(states: str, target: str) -> Mapping[str, Sequence[Found]]:
    """The chosen records for a target by kernel; of each kernel by priority of the source, then by gain.

    `states` is that of all sources. It is in the key only: records are read once for each.
    """
    by_kernel: dict[str, list[Found]] = {}
    for source in sources():
        try:
            if source.state().startswith(UNREADABLE):
                raise OSError(source.state())
            found = sorted(source.chosen(target), key=lambda one: (one.gain, -one.time))
        except (DlcError, OSError, sqlite3.Error) as error:
            warnings.warn(f"the records of {source.name} are not used: {error}", RecordsWarning, stacklevel=2)
            continue
        for one in found:
            by_kernel.setdefault(one.kernel, []).append(Found(one, source.name))
    return by_kernel


__all__ = ["Answer", "cost_text", "difference", "find"]
