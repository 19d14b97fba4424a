"""The declarations of this package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dlc_core.hooks import Command, Declaration, Deferred, hookimpl
from dlc_core.support.lazy import lazy
from dlc_tune.records import locations, sources

if TYPE_CHECKING:
    from dlc_tune.records import lookup
else:
    lookup = lazy("dlc_tune.records.lookup")

DLC_API = "0.1"


@hookimpl
def dlc_knobs() -> Iterable[Declaration]:
    return [locations.RECORDS, locations.RECORDS_URL]


@hookimpl
def dlc_schedule(kernel: Any, target: Any) -> Any:
    return lookup.find(kernel, target) if sources.state() else None


@hookimpl
def dlc_decisions(target: Any) -> Any:
    return lookup.decisions(target) if sources.state() else {}


@hookimpl
def dlc_schedule_state() -> str:
    return sources.state()


@hookimpl
def dlc_tuners() -> Iterable[Declaration]:
    return [Deferred("tune", "dlc_tune.tuner:TUNER")]


@hookimpl
def dlc_search_spaces() -> Iterable[Declaration]:
    names = ("decisions", "mutations", "sketches")
    return [Deferred(name, f"dlc_tune.spaces.{name}:SPACE") for name in names]


@hookimpl
def dlc_search_strategies() -> Iterable[Declaration]:
    names = ("random", "grid", "evolutionary", "optuna")
    return [Deferred(name, f"dlc_tune.strategies.{name}:STRATEGY") for name in names]


@hookimpl
def dlc_commands() -> Iterable[Command]:
    about = "Search for faster schedules of a model's kernels, and keep them for compiles."
    records = "List, export, import and pack the records of tuned kernels."
    worker = "Build and run kernels for tuners on other machines, as a Dask worker."
    return [
        Command("tune", "dlc_tune.cli.tune:tune", about),
        Command("records", "dlc_tune.cli.records:app", records),
        Command("worker", "dlc_tune.cluster_worker:worker", worker),
    ]
