"""The records that compiles use: the hook `dlc_schedule` answers by them.

The user's own database comes first, then the packages of records by name.

- A record *fits exactly* if it was measured for the same kernel and target, on such a machine, with as many
  threads, and by this version of the compiler. It was faster than the default there, so it is used.
- The other records of the kernel, and those of kernels of its family with near sizes, are used only if the
  setting `records` is "nearest", their schedule is legal, and the cost model predicts that it is faster than
  the default (`nearest.py`).
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from dlc_core.decisions import is_forcing
from dlc_core.diag import DlcError, ScheduleError
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Schedule, Trace
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.records.checks import CheckedTrace
from dlc_tune.records.decision import SPACE as DECIDED
from dlc_tune.records.errors import RecordsWarning
from dlc_tune.records.family import family_of
from dlc_tune.records.found import Found, difference
from dlc_tune.records.locations import NEAREST, RECORDS
from dlc_tune.records.reading import UNREADABLE
from dlc_tune.records.sources import sources, state
from dlc_tune.task import Task, kernel_key

if TYPE_CHECKING:
    from dlc_tune.records import nearest
else:
    nearest = lazy("dlc_tune.records.nearest")

MOST = 3
"""The records of a kernel that are tried, if the ones before are refused."""


@record(frozen=True)
class Answer:
    """A schedule from records. `origin` is one line for users, `refused` has the reasons why better ones were
    not taken.
    """

    trace: Trace
    origin: str
    refused: tuple[str, ...] = ()


@record(frozen=True)
class Table:
    """The chosen records for a target by kernel and by family; of each by priority of the source, then by
    gain.
    """

    by_kernel: Mapping[str, Sequence[Found]]
    by_family: Mapping[str, Sequence[Found]]
    decided: Sequence[Found]
    """The records of decisions of graph passes."""


def find(kernel: PrimFunc, target: Target) -> Answer | None:
    """The schedule of a kernel from records; None if there is none, or if the user forces decisions."""
    if is_forcing():
        return None
    table = _table(state(), str(target.for_code()))
    if not table.by_kernel:
        return None
    own = table.by_kernel.get(kernel_key(kernel), ())
    refused: list[str] = []
    exact = [one for one in own if not difference(one.record, target)][:MOST]
    for number, one in enumerate(exact, 1):
        trace = CheckedTrace(one.record.trace, target, one.source)
        try:
            if number < len(exact):  # the compile tries the last one itself
                trace.replay(Schedule(kernel, intrins=dict(registry().tensor_intrins.items())))
        except ScheduleError as error:
            refused.append(error.what)
            continue
        return Answer(trace, one.origin, tuple(refused))
    if RECORDS.get() == NEAREST:
        task = Task(kernel, target, kernel.name)
        elsewhere = [one for one in own if difference(one.record, target)]
        name, extents = family_of(kernel) if table.by_family else ("", ())
        family = table.by_family.get(name, ())
        near = nearest.nearest(task, extents, elsewhere, family) if elsewhere or family else None
        if near is not None:
            return Answer(*near, tuple(refused))
    return None


def decisions(target: Target) -> dict[str, str]:
    """The options of decisions of graph passes from records that fit exactly. Without any if decisions are
    forced, as for kernels.
    """
    if is_forcing():
        return {}
    found: dict[str, str] = {}
    for one in _table(state(), str(target.for_code())).decided:
        if not difference(one.record, target):
            found = {**one.record.point, **found}
    return found


@lru_cache(maxsize=8)
def _table(states: str, target: str) -> Table:
    """The records for a target. `states` is that of all sources; it is in the key only: records are read once
    for each.
    """
    by_kernel: dict[str, list[Found]] = {}
    by_family: dict[str, list[Found]] = {}
    for source in sources():
        try:
            if not source.state():
                continue
            if source.state().startswith(UNREADABLE):
                raise OSError(source.state())
            found = sorted(source.chosen(target), key=lambda one: (one.gain, -one.time))
        except (DlcError, OSError, sqlite3.Error) as error:
            warnings.warn(f"the records of {source.name} are not used: {error}", RecordsWarning, stacklevel=2)
            continue
        for one in found:
            by_kernel.setdefault(one.kernel, []).append(Found(one, source.name))
            if one.family and one.point:
                by_family.setdefault(one.family, []).append(Found(one, source.name))
    decided = [one for each in by_kernel.values() for one in each if one.record.space == DECIDED]
    return Table(by_kernel, by_family, decided)


__all__ = ["Answer", "decisions", "find"]
