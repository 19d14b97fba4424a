"""Records for tests: a small kernel, a schedule made by hand, and its record."""

from __future__ import annotations

from typing import Any

from dlc_core import te
from dlc_core.schedule import Schedule, Trace
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.records.record import CHOSEN, Record, machine_of
from dlc_tune.task import kernel_key

TARGET = "reference -level=tir"
"""A target that runs everywhere."""


def double(size: int = 24) -> PrimFunc:
    """A kernel that doubles float32[size]; its block is `y`."""
    x = te.placeholder((size,), name="x")
    return te.create_prim_func([x], [te.compute((size,), lambda i: x[i] * 2.0, name="y")], "double")


def by_hand(func: PrimFunc, factor: int = 3) -> Trace:
    """A schedule of `double`: an inner loop of `factor` unrolled iterations."""
    schedule = Schedule(func)
    (loop,) = schedule.get_loops(schedule.get_block("y"))
    schedule.unroll(schedule.split(loop, [None, factor])[1])
    return schedule.trace


def record_of(func: PrimFunc, target: str = TARGET, **fields: Any) -> Record:
    """A chosen record of a kernel as if it was measured here, with other values for some fields."""
    made = Target(target)
    known: dict[str, Any] = {
        "kernel": kernel_key(func),
        "target": str(made),
        "processor": made.identity,
        "machine": machine_of(made.describe()),
        "threads": made.describe().cores,
        "family": "",
        "extents": (),
        "space": "by hand",
        "point": {"unroll": "3"},
        "trace": fields["trace"] if "trace" in fields else by_hand(func).to_json(),
        "state": CHOSEN,
        "seconds": 1.5e-6,
        "default_seconds": 2e-6,
        "name": func.name,
        "time": 1_700_000_000.0,
    }
    return Record(**{**known, **fields})


__all__ = ["TARGET", "by_hand", "double", "record_of"]
