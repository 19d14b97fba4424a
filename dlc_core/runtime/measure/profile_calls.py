"""Profiling: calls of an executable that are measured, and the report about them.

A model that is one native entry point is called by its instrumented copy. Other models are called segment by
segment, each on its own device (`recording`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlc_core.runtime.artefact.compiled import LoadableModel
from dlc_core.runtime.call.calling import InPlace
from dlc_core.runtime.measure.kernels import HOST, Entry, entries_of
from dlc_core.runtime.measure.profile import CLOCK, CODE, COUNTER, DEVICE, Report, Row, TargetTime
from dlc_core.runtime.measure.recorder import Recorder, Tally, Unit, counter
from dlc_core.runtime.measure.recording import Recorded
from dlc_core.target.cost import Estimate, Machine, Work, known_sum


def profile(exe: LoadableModel, inputs: Sequence[Any], runs: int, warmup: int) -> Report:
    """The report of `runs` calls, after `warmup` calls that do not count. Figures are means."""
    recorder = Recorder()
    recorded = Recorded(exe, recorder)
    threads = exe.num_threads
    caller = exe.loaded_caller()
    whole = recorded.units[0] if exe.program is None else None
    if whole is not None and whole.profiled is not None and isinstance(caller, InPlace):
        run, whole.figures = caller.measuring(whole.profiled, inputs, whole.sites, threads)
        counted: list[int] = []

        def clear() -> None:
            whole.figures.fill(0)
            counted.append(counter(whole.device))

        seconds = _repeat(run, runs, warmup, clear)
        whole.tally = Tally(runs, seconds, max(0, counter(whole.device) - counted[0]))
    else:
        seconds = _repeat(lambda: caller.call(inputs, threads), runs, warmup, lambda: None)
        for _ in range(runs):
            recorder.begin(serial=True)
            recorded(inputs, threads)
    for _ in range(2):  # the first one starts the threads that wait for marks
        recorder.begin(serial=False)
        recorded(inputs, threads)
    timeline = recorder.timeline()
    units = {unit.name: unit for unit in recorded.units}
    rows = [row for entry in entries_of(exe) for row in _rows(entry, units, recorder, runs)]
    transfers = list(_transfers(recorder, runs))
    total = sum(row.milliseconds for row in (*rows, *transfers)) or 1.0
    machine = Machine.of(exe.target.describe())
    return Report(
        tuple(_by_time(rows, total)),
        seconds / runs * 1e3,
        runs,
        threads,
        machine.executor,
        transfers=tuple(_by_time(transfers, total)),
        targets=tuple(_targets(rows, total, recorded.units, runs)),
        timeline=timeline,
        dims=recorded.dims,
    )


def _repeat(run: Callable[[], object], runs: int, warmup: int, clear: Callable[[], None]) -> float:
    """The seconds of `runs` calls after `warmup` calls."""
    for _ in range(warmup):
        run()
    clear()
    start = time.perf_counter()
    for _ in range(runs):
        run()
    return time.perf_counter() - start


def _by_time(rows: Iterable[Row], total: float) -> list[Row]:
    """Rows with their shares of the time, the slowest first."""
    shared = [replace(row, share=row.milliseconds / total) for row in rows]
    return sorted(shared, key=lambda row: -row.milliseconds)


def _rows(entry: Entry, units: Mapping[str, Unit], recorder: Recorder, runs: int) -> Iterator[Row]:
    """The rows of an entry point: one for each kernel if these were measured, else one."""
    machine = Machine.of(entry.target.describe())
    if entry.kind == HOST:
        tally = recorder.host.get((id(entry.owner), entry.index), Tally())
    else:
        tally = units[entry.segment].tally
    estimates = entry.estimates(machine, tally.dims)
    facts: dict[str, Any] = {
        "segment": entry.segment,
        "target": str(entry.target),
        "device": entry.device,
        "share": 0.0,
    }
    if entry.kind == HOST:
        site, (work, estimate) = entry.sites[0], estimates[0]
        yield _row(site, work, estimate, machine, tally, runs, measured=CLOCK, **facts)
        return
    unit = units[entry.segment]
    if unit.method in (CODE, DEVICE):
        times = [Tally(int(n), int(t) / 1e9) for t, n in unit.figures[: len(entry.sites)]]
        if len(times) == 1:
            times[0].cycles = unit.tally.cycles
        for site, (work, estimate), one in zip(entry.sites, estimates, times, strict=True):
            yield _row(site, work, estimate, machine, one, runs, measured=unit.method, **facts)
        return
    if unit.method == COUNTER:
        tally = Tally(tally.calls, tally.cycles / machine.frequency, tally.cycles)
    nodes = dict.fromkeys(name for site in entry.sites for name in site.get("nodes", ()))
    name = entry.sites[0]["kernel"] if len(entry.sites) == 1 else entry.segment or entry.owner.entry
    site = {"kernel": name, "nodes": tuple(nodes)}
    known = entry.sites or entry.owner.program is None  # an entry point without records has unknown work
    unknown = Work(None, None, None, None, None, None, None)
    work = Work.total(work for work, _ in estimates) if known and estimates else unknown
    yield _row(site, work, _together(estimates), machine, tally, runs, measured=unit.method, **facts)


def _together(estimates: Sequence[tuple[Work, Estimate | None]]) -> Estimate | None:
    """The estimate of kernels that run one after the other; None if one is unknown."""
    known = [one for _, one in estimates if one is not None]
    if not known or len(known) < len(estimates):
        return None
    longest = max(known, key=lambda one: one.limit)
    return Estimate(sum(one.seconds for one in known), sum(one.limit for one in known), longest.bound)


def _row(
    site: Mapping[str, Any],
    work: Work,
    estimate: Estimate | None,
    machine: Machine,
    tally: Tally,
    runs: int,
    **facts: Any,
) -> Row:
    return Row(
        kernel=site["kernel"],
        nodes=tuple(site.get("nodes", ())),
        calls=tally.calls / runs,
        milliseconds=1e3 * tally.seconds / runs,
        flops=work.flops,
        bytes=work.bytes,
        roofline=None if estimate is None else estimate.limit * 1e3,
        bound="" if estimate is None else estimate.bound,
        multiply_adds=work.multiply_adds,
        cycles=tally.cycles / runs if tally.cycles else None,
        expected_cycles=None
        if estimate is None
        else estimate.seconds * machine.frequency * tally.calls / runs,
        **facts,
    )


def _transfers(recorder: Recorder, runs: int) -> Iterator[Row]:
    for (source, destination, size), tally in recorder.copies.items():
        yield Row(
            kernel=f"{source} → {destination}",
            nodes=(),
            calls=tally.calls / runs,
            milliseconds=1e3 * tally.seconds / runs,
            share=0.0,
            flops=None,
            bytes=size,
            device=source if destination == HOST else destination,
            measured=CLOCK,
        )


def _targets(rows: Sequence[Row], total: float, units: Sequence[Unit], runs: int) -> list[TargetTime]:
    """The parts of all targets, the slowest first."""
    counted: dict[str, int] = {}
    for unit in units:
        if unit.tally.cycles:
            name = str(unit.owner.target)
            counted[name] = counted.get(name, 0) + unit.tally.cycles
    products, moved = _work_done(rows)
    found = []
    for target in dict.fromkeys(row.target for row in rows):
        own = [row for row in rows if row.target == target]
        own_products, own_moved = _work_done(own)
        milliseconds = sum(row.milliseconds for row in own)
        found.append(
            TargetTime(
                target=target,
                device=own[0].device,
                milliseconds=milliseconds,
                share=milliseconds / total,
                multiply_adds=own_products,
                bytes=own_moved,
                cycles=counted[target] / runs if target in counted else None,
                expected_cycles=known_sum(row.expected_cycles for row in own),
                multiply_adds_share=_ratio(own_products, products),
                bytes_share=_ratio(own_moved, moved),
            )
        )
    return sorted(found, key=lambda one: -one.milliseconds)


def _work_done(rows: Iterable[Row]) -> tuple[float | None, float | None]:
    """The multiply-adds and the bytes of rows in one call of the model."""
    done = [row for row in rows if row.calls]
    products = [None if row.multiply_adds is None else row.multiply_adds * row.calls for row in done]
    moved = [None if row.bytes is None else row.bytes * row.calls for row in done]
    return known_sum(products), known_sum(moved)


def _ratio(part: float | None, total: float | None) -> float | None:
    return None if part is None or not total else part / total


__all__ = ["profile"]
