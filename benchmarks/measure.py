"""Measuring: speed in interleaved rounds, time to the first result, accuracy, memory of a process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dlc_core as dlc
from benchmarks import exact
from benchmarks.models import Array, Case
from benchmarks.peers import OURS, Peer
from benchmarks.worker import Here, Worker
from dlc_core.diag import DlcError
from dlc_core.runtime.measure.timing import Spread, spread_of

RTOL, ATOL = 1e-3, 1e-4
OF_LARGEST = {"bfloat16": 2e-2, "float16": 2e-3}
"""The maximum error in narrower precisions, relative to an output's largest value."""
ROUNDS = 5
CHEAP = 2e9
"""The maximum number of operations of a model that is also evaluated in float64, which takes seconds."""


@dataclass
class Result:
    """The results of a model with a number of threads, by the names of dlc and of peers."""

    model: str
    threads: int
    family: str = ""
    precision: str = "float32"
    times: dict[str, Spread] = field(default_factory=dict)
    load_seconds: dict[str, float] = field(default_factory=dict)
    """From the file to the first possible call, imports included; of ours a compile without the cache."""
    first_seconds: dict[str, float] = field(default_factory=dict)
    """From the file to the first result."""
    open_seconds: float | None = None
    """Ours from a saved artefact."""
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes resident in a process that serves the model, all of its libraries included."""
    serving_peak: dict[str, int] = field(default_factory=dict)
    """The most bytes that this process has had in memory, including the time in which it loads the model."""
    peak: dict[str, int] = field(default_factory=dict)
    """The most bytes that each process has had in memory, where each side has one of its own."""
    reference: str = ""
    """The reference of the outputs: "stored", "float64" or a peer's name."""
    errors: dict[str, float] = field(default_factory=dict)
    """Distance from the reference: largest |a - b| / (atol + rtol |b|); fits up to 1."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why a peer did not run the model."""
    problem: str = ""
    """The error of dlc."""

    def ratio(self, peer: str) -> float | None:
        """Our median time over the peer's."""
        ours, theirs = self.times.get(OURS.name), self.times.get(peer)
        return None if ours is None or theirs is None else ours.median / theirs.median

    @property
    def best(self) -> str | None:
        """The fastest of the peers with correct outputs."""
        names = [n for n in self.times if n != OURS.name and self.errors.get(n, 0.0) <= 1]
        return min(names, key=lambda name: self.times[name].median, default=None)

    def record(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "threads": self.threads,
            "family": self.family,
            "precision": self.precision,
            "milliseconds": {name: spread.record() for name, spread in self.times.items()},
            "best_peer": self.best,
            "load_seconds": self.load_seconds,
            "first_seconds": self.first_seconds,
            "open_seconds": self.open_seconds,
            "memory_bytes": self.memory,
            "serving_peak_bytes": self.serving_peak,
            "peak_bytes": self.peak,
            "reference": self.reference,
            "errors": self.errors,
            "failures": self.failures,
            "problem": self.problem,
        }


def measure_case(
    case: Case,
    peers: Sequence[Peer],
    threads: Sequence[int],
    *,
    seconds: float,
    memory: bool,
    limit: float,
    precision: str = "float32",
    target: str = "",
    apart: bool = False,
) -> Iterator[Result]:
    """Measure a model for each number of threads; failures are part of the result.

    dlc, and the peers that support it, compute in `precision`, whose tolerance applies to all. `target` is
    the target of dlc, if it is not the default one. Peers that can share a process run in this one, the
    others each in a separate process with `limit` seconds for each answer. With `apart`, dlc and all peers
    have separate processes, so that a crash is a failure of one of them. Nothing is then computed here, so
    the time to open is not measured.
    """
    if precision == "float32":
        precision = case.precision
    feeds, peers = case.feeds(), [peer.at(precision) for peer in peers]
    if apart:
        peers = [replace(peer, together=False) for peer in peers]
    of_largest = case.of_largest or OF_LARGEST.get(precision)
    with case.file() as path:
        truth = _reference(case, path, feeds, evaluate=not apart)
        for count in threads:
            result = Result(case.name, count, case.family, precision)
            with ExitStack() as stack:
                workers: dict[str, Here | Worker] = {}
                for peer in peers:
                    try:
                        worker: Here | Worker
                        if peer.together:
                            worker = Here(peer, path, count, feeds)
                        else:
                            worker = Worker(peer, path, count, feeds, limit)
                    except RuntimeError as error:
                        result.failures[peer.name] = str(error)
                        continue
                    stack.callback(worker.close)
                    workers[peer.name] = worker
                    result.load_seconds[peer.name] = worker.load_seconds
                    result.first_seconds[peer.name] = worker.first_seconds
                outputs = {name: worker.outputs for name, worker in workers.items()}
                _compare(result, outputs, truth, of_largest)
                result.times = interleaved(workers, seconds, result.failures)
                result.peak = _peaks(workers, result.failures)
            if memory:
                _add_memory(result, [p for p in peers if p.name in workers], path, feeds, limit)
            if OURS.name in result.failures:
                result.problem = f"dlc cannot run it: {result.failures[OURS.name]}"
            elif not apart:
                result.open_seconds = _time_to_open(path, count, precision, target)
            yield result


def interleaved(
    workers: Mapping[str, Here | Worker], seconds: float, failures: dict[str, str]
) -> dict[str, Spread]:
    """Rounds of A, B, A, B, …: in each round each worker runs for the same time, after warm-up calls. So
    disturbances of the machine affect all. Workers that fail are added to `failures` and excluded.
    """
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(ROUNDS):
        for name, worker in workers.items():
            if name in failures:
                continue
            try:
                times[name] += worker.measure(seconds / ROUNDS)
            except RuntimeError as error:
                failures[name] = str(error)
    return {name: spread_of(found) for name, found in times.items() if name not in failures}


def _peaks(workers: Mapping[str, Here | Worker], failures: dict[str, str]) -> dict[str, int]:
    """The peak memory of the workers with separate processes that have not failed."""
    found = {}
    for name, worker in workers.items():
        if isinstance(worker, Worker) and name not in failures:
            try:
                found[name] = worker.peak()
            except RuntimeError as error:
                failures[name] = str(error)
    return found


def _add_memory(
    result: Result,
    peers: Sequence[Peer],
    path: Path,
    feeds: Mapping[str, Array],
    limit: float,
) -> None:
    """Measure the memory of each peer in a new process."""
    for peer in peers:
        if peer.name in result.failures:
            continue
        try:
            worker = Worker(peer.serving, path, result.threads, feeds, limit)
        except RuntimeError as error:
            result.failures[peer.name] = str(error)
            continue
        try:
            result.memory[peer.name] = worker.resident()
            result.serving_peak[peer.name] = worker.peak()
        except RuntimeError as error:
            result.failures[peer.name] = str(error)
        finally:
            worker.close()


def _time_to_open(path: Path, threads: int, precision: str, target: str) -> float:
    """The seconds to open a saved artefact and load its code."""
    exe = dlc.compile(path, target or None, num_threads=threads, precision=precision)
    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        saved = Path(folder, "model.dlc")
        exe.save(saved)
        start = time.perf_counter()
        dlc.open(saved, num_threads=threads)
        return time.perf_counter() - start


@dataclass(frozen=True)
class _Reference:
    name: str
    outputs: Mapping[int, Array]
    """By position."""


def _reference(case: Case, path: Path, feeds: Mapping[str, Array], *, evaluate: bool) -> _Reference | None:
    """The stored outputs, or with `evaluate` those in float64, if that is cheap and possible."""
    stored = case.expected()
    if stored:
        return _Reference("stored", {int(index): value for index, value in stored.items()})
    if not evaluate:
        return None
    try:
        flops = sum(kernel.flops or 0 for kernel in dlc.compile(path).explain().kernels)
    except DlcError:
        return None  # reported when dlc is measured
    if flops > CHEAP:
        return None
    try:
        return _Reference("float64", dict(enumerate(exact.outputs(path, feeds).values())))
    except Exception:  # noqa: BLE001 (the evaluator does not know every model; peers are the reference then)
        return None


def _compare(
    result: Result,
    outputs: Mapping[str, Mapping[str, Array]],
    truth: _Reference | None,
    of_largest: float | None,
) -> None:
    """Compare all outputs with the reference, or with those of the first peer that has any."""
    if truth is None:
        first = next((name for name in outputs if name != OURS.name), None)
        if first is None:
            return
        truth = _Reference(first, dict(enumerate(outputs[first].values())))
    result.reference = truth.name
    for name, found in outputs.items():
        in_order = list(found.values())
        result.errors[name] = max(
            _excess(in_order[index], value, of_largest) for index, value in truth.outputs.items()
        )
    result.errors.pop(truth.name, None)
    if not result.errors.get(OURS.name, 0.0) <= 1:
        result.problem = f"results differ from {truth.name}"


def _excess(got: Array, wanted: Array, of_largest: float | None) -> float:
    """The largest error in units of the tolerance."""
    if got.shape != wanted.shape:
        return float("inf")
    if not got.size:
        return 0.0
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    if of_largest is not None:
        return float(np.max(np.abs(a - b)) / (of_largest * np.max(np.abs(b)) + ATOL))
    return float(np.max(np.abs(a - b) / (ATOL + RTOL * np.abs(b))))
