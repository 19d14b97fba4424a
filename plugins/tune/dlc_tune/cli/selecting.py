"""Which records `dlc records` shows, and how."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

from dlc_core.diag import UsageError
from dlc_tune.records.database import Database
from dlc_tune.records.errors import DatabaseError
from dlc_tune.records.found import cost_text, sizes_text
from dlc_tune.records.lines import to_line
from dlc_tune.records.locations import file_of, url_of
from dlc_tune.records.pack import best_of_each
from dlc_tune.records.record import CHOSEN, Record
from dlc_tune.records.rows import digest_of

SHORT = 4
"""The least number of digits by which a record is found."""


class State(str, Enum):
    """Which records: chosen ones, other ones, or both."""

    chosen = "chosen"
    tried = "tried"
    all = "all"


@contextmanager
def opened(database: str | None) -> Iterator[Database]:
    """A database that exists. Raises DatabaseError if there is none."""
    path = file_of(url_of(database))
    if path is not None and not path.exists():
        raise DatabaseError(f"there are no records in {path}", hint="`dlc tune MODEL` makes them")
    with Database(database) as found:
        yield found


def select(database: Database, kernel: str | None, target: str | None, state: State) -> list[Record]:
    """The records of a kernel, a target and a state, in the order in which they were added."""
    equal = {} if target is None else {"target": target}
    equal |= {} if state is State.all else {"state": state.value}
    found = database.find(**equal)
    return [one for one in found if kernel is None or is_of(one, kernel)]


def is_of(one: Record, kernel: str) -> bool:
    """Whether a record is of the kernel of a name, or whose hash begins so."""
    return one.name == kernel or one.kernel.startswith(kernel)


def wanted(records: Sequence[Record], text: str, state: State, limit: int) -> tuple[list[Record], int]:
    """The records that a text names, and how many more there are.

    The name or the begin of the hash of a kernel names its best chosen record on each target and machine, or
    with another `state` its records, the fastest ones. The begin of a record's id names this one. Raises
    UsageError if there are none.
    """
    known = [one for one in records if is_of(one, text)]
    if not known and len(text) >= SHORT and (one := [one for one in records if id_of(one).startswith(text)]):
        return one, 0
    found = [one for one in known if state in (State.all, one.state)]
    if not found:
        what = "record" if state is State.all else f"{state.value} record"
        others = f"`--state all` shows its {len(known)} other records"
        hint = others if known else "`dlc records list --state all` lists them"
        raise UsageError(f"no {what} is of the kernel {text!r}", hint=hint)
    if state is State.chosen:
        return best_of_each(found), 0
    found.sort(key=cost_of)
    return found[:limit], max(0, len(found) - limit)


def id_of(one: Record) -> str:
    """The begin of a record's digest, by which `show` finds it."""
    return digest_of(to_line(one))[:8]


def cost_of(one: Record) -> float:
    """The measured cost, for sorting; those that were not measured come last."""
    return float("inf") if one.seconds is None else one.seconds


def row(one: Record) -> dict[str, Any]:
    """The row of a record in a list."""
    costs = (one.seconds, one.default_seconds)
    measured, default = ("" if cost is None else cost_text(cost, one.unit) for cost in costs)
    return {
        "id": id_of(one),
        "kernel": one.name,
        "hash": one.kernel[:8],
        "sizes": sizes_text(one.extents),
        "target": one.target,
        "state": one.state if one.outcome == "ok" else one.outcome,
        "cost": measured,
        "default": default,
        "gain": f"{1 - one.gain:.1%}" if one.state == CHOSEN else "",
        "space": one.space,
        "time": when(one),
    }


def when(one: Record) -> str:
    """The local time of the measurement."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(one.time)) if one.time else ""


__all__ = ["State", "cost_of", "id_of", "is_of", "opened", "row", "select", "wanted", "when"]
