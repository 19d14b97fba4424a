"""Measuring: speed in interleaved rounds, time to load, memory of a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dlc_core as dlc
from benchmarks.models import Array, Case
from benchmarks.peers import OURS, Peer, Session
from dlc_core.runtime.measure import Spread, spread_of

RTOL, ATOL = 1e-3, 1e-4
ROUNDS = 5


@dataclass
class Result:
    """What was found for a model with a number of threads; times of peers by name."""

    model: str
    threads: int
    times: dict[str, Spread] = field(default_factory=dict)
    load_seconds: dict[str, float] = field(default_factory=dict)
    """From the file to the first possible call; of ours a compile without the cache."""
    open_seconds: float = 0.0
    """Ours from a saved artefact."""
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes resident in a process that serves the model, all of its libraries included."""
    errors: dict[str, float] = field(default_factory=dict)
    """Ours against a peer, and against known outputs: largest |a - b| / (atol + rtol |b|); fits up to 1."""
    problem: str = ""

    def ratio(self, peer: str) -> float | None:
        """Our median time over the peer's."""
        ours, theirs = self.times.get(OURS.name), self.times.get(peer)
        return None if ours is None or theirs is None else ours.median / theirs.median

    def record(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "threads": self.threads,
            "milliseconds": {name: spread.record() for name, spread in self.times.items()},
            "load_seconds": self.load_seconds,
            "open_seconds": self.open_seconds,
            "memory_bytes": self.memory,
            "errors": self.errors,
            "problem": self.problem,
        }


def measure_case(case: Case, peers: Sequence[Peer], threads: int, *, seconds: float, memory: bool) -> Result:
    """All figures of a model; what fails is told in `problem`."""
    result = Result(case.name, threads)
    feeds = case.feeds()
    with case.file() as path:
        sessions: dict[str, Session] = {}
        for peer in peers:
            start = time.perf_counter()
            try:
                sessions[peer.name] = peer.load(path, threads)
            except Exception as error:  # noqa: BLE001 (a peer that cannot run a model is told in the table)
                first = str(error).strip().partition("\n")[0]
                result.problem = f"{peer.name} cannot load it: {first}"
                continue
            result.load_seconds[peer.name] = time.perf_counter() - start
        if OURS.name in sessions:
            result.open_seconds = _time_to_open(path, threads)
            _compare(result, sessions, feeds, case.expected())
        result.times = interleaved(sessions, feeds, seconds)
        if memory:
            result.memory = {name: _memory(name, path, threads, feeds) for name in sessions}
    return result


def interleaved(
    sessions: Mapping[str, Session], feeds: Mapping[str, Array], seconds: float
) -> dict[str, Spread]:
    """Rounds of A, B, A, B, …: each has the machine for an equal time in a round, after calls that are not
    counted, so that what disturbs the machine disturbs all, and spinning threads of one do not slow the next.
    """
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            until = time.perf_counter() + 0.1 * seconds / ROUNDS
            session(feeds)
            while time.perf_counter() < until:
                session(feeds)
            until = time.perf_counter() + seconds / ROUNDS
            while True:
                start = time.perf_counter()
                session(feeds)
                end = time.perf_counter()
                times[name].append(end - start)
                if end >= until:
                    break
    return {name: spread_of(found) for name, found in times.items()}


def _time_to_open(path: Path, threads: int) -> float:
    """Seconds to open a saved artefact and find its code, ready for a call."""
    exe = dlc.compile(path, num_threads=threads)
    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        saved = Path(folder, "model.dlc")
        exe.save(saved)
        start = time.perf_counter()
        dlc.open(saved, num_threads=threads)
        return time.perf_counter() - start


def _compare(
    result: Result, sessions: Mapping[str, Session], feeds: Mapping[str, Array], expected: Mapping[str, Array]
) -> None:
    ours = sessions[OURS.name](feeds)
    for name, session in sessions.items():
        if name != OURS.name:
            result.errors[name] = max(_excess(ours[key], value) for key, value in session(feeds).items())
    if expected:
        in_order = list(ours.values())
        result.errors["expected"] = max(_excess(in_order[int(i)], value) for i, value in expected.items())
    wrong = [name for name, error in result.errors.items() if not error <= 1]
    if wrong:
        result.problem = f"results differ from {' and '.join(wrong)}"


def _excess(got: Array, wanted: Array) -> float:
    """Tolerances that the largest error takes."""
    if got.shape != wanted.shape:
        return float("inf")
    if not got.size:
        return 0.0
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    return float(np.max(np.abs(a - b) / (ATOL + RTOL * np.abs(b))))


def _memory(peer: str, path: Path, threads: int, feeds: Mapping[str, Array]) -> int:
    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        arrays = Path(folder, "feeds.npz")
        np.savez(arrays, **feeds)
        command = [sys.executable, "-m", "benchmarks.serve", peer, str(path), str(threads), str(arrays)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
        found: int = json.loads(done.stdout)["resident"]
        return found
