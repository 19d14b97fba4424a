"""The phases of a model, each in a separate process, so that a crash is an outcome too.

    1 thread     compiled for one thread and run there
    2 threads    compiled for two, run there, and kept in the cache
    cached       opened from the cache by a new process
    guarded      compiled and run in guard mode (`config={"guard": "end"}`)

Outputs are compared with those stored with the model. The first three make a second call with other inputs
and a third one with the first inputs, whose outputs must have the bits of the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PHASES = ("1 thread", "2 threads", "cached", "guarded")
LIMIT = 900.0
"""The time limit of a phase, in seconds."""
TOLERANCE = {"float32": 1e-4, "float64": 1e-9, "float16": 1e-2}
"""By dtype, the tolerance relative to the largest magnitude of an output. Other dtypes must be equal."""


def run_phase(path: Path, phase: str) -> dict[str, Any]:
    """The outcome of one phase in this process, which uses the model's cache. `error` is the largest error of
    an output relative to its largest magnitude.
    """
    import dlc_core as dlc

    feeds, expected = stored(path)
    settings: dict[str, Any] = {"num_threads": 1 if phase == "1 thread" else 2}
    settings["cache"] = phase in ("2 threads", "cached")
    if phase == "guarded":
        settings["config"] = {"guard": "end"}
    start = time.perf_counter()
    exe = dlc.compile(path, "llvm", **settings)
    made = time.perf_counter()
    found = list(exe.run(feeds).values())
    record: dict[str, Any] = {"compile": made - start, "call": time.perf_counter() - made}
    record["error"], problems = compared(found, expected)
    if phase == "cached" and exe.report["cache"] != "hit":
        problems.append(f"the cache said {exe.report['cache']}")
    if phase != "guarded":
        other = list(exe.run({name: np.flip(array).copy() for name, array in feeds.items()}).values())
        if all(a.tobytes() == b.tobytes() for a, b in zip(found, other)):
            problems.append("other inputs give the same outputs")
        again = list(exe.run(feeds).values())
        if any(a.tobytes() != b.tobytes() for a, b in zip(found, again)):
            problems.append("a later call with the same inputs gives other bits")
    return {**record, "outcome": "; ".join(problems) or "right"}


def stored(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """The stored inputs of a model by name, and the expected outputs in order."""
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as saved:
        feeds = {key[3:]: saved[key] for key in saved.files if key.startswith("in_")}
        count = sum(key.startswith("out_") for key in saved.files)
        return feeds, [saved[f"out_{index}"] for index in range(count)]


def compared(found: Sequence[Any], expected: Sequence[Any]) -> tuple[float, list[str]]:
    """The largest error, and a text for wrong results."""
    worst, problems = 0.0, []
    if len(found) != len(expected):
        problems.append(f"{len(found)} outputs, {len(expected)} are expected")
    for index, (got, want) in enumerate(zip(found, expected)):
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            problems.append(f"output {index} is {got.dtype}{list(got.shape)}")
            continue
        error = _error(got, want)
        worst = max(worst, error)
        if not error <= TOLERANCE.get(str(want.dtype), 0.0):
            problems.append(f"output {index} is off by {error:.1e}")
    return worst, problems


def _error(got: Any, expected: Any) -> float:
    if not np.isfinite(got.astype(np.float64)).all():
        return float("inf")
    scale = max(float(np.abs(expected.astype(np.float64)).max(initial=0)), 1e-30)
    return float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).max(initial=0)) / scale


def outcomes(path: Path, phases: Sequence[str] = PHASES, limit: float = LIMIT) -> dict[str, dict[str, Any]]:
    """The record of each phase of a model."""
    with tempfile.TemporaryDirectory(prefix="dlc-phases-") as cache:
        environment = {**os.environ, "DLC_CACHE_DIR": cache, "DLC_CACHE": "1"}
        return {phase: _apart(path, phase, environment, limit) for phase in phases}


def _apart(path: Path, phase: str, environment: Mapping[str, str], limit: float) -> dict[str, Any]:
    """Run a phase in a separate process."""
    fault = Path(environment["DLC_CACHE_DIR"]) / "fault"
    command = [sys.executable, "-W", "ignore", "-m", __name__, str(path), phase, str(fault)]
    try:
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"outcome": f"took more than {limit:g} s"}
    if done.returncode == 0:
        record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return record
    from dlc_core.runtime.guard.faults import reported

    last = [*reported(fault).lines(), *done.stderr.strip().splitlines()[-3:]]
    return {"outcome": f"ended with {done.returncode}: {'; '.join(last)}"}


def all_right(records: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(record["outcome"] == "right" for record in records.values())


def rows(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A table in Markdown: a line for each model, seconds to compile / of the first call in the cells."""
    phases = list(next(iter(found.values()), {}))
    lines = [f"| model | {' | '.join(phases)} | error |", "| --- " * (len(phases) + 2) + "|"]
    for name, records in found.items():
        cells = [
            f"{r['compile']:.1f} / {r['call']:.2f} s" if r["outcome"] == "right" else str(r["outcome"])
            for r in records.values()
        ]
        error = max((float(r.get("error", 0)) for r in records.values()), default=0.0)
        lines.append(f"| {name} | {' | '.join(cells)} | {error:.1e} |")
    right = sum(map(all_right, found.values()))
    return "\n".join([*lines, "", f"{right} of {len(found)} right in every phase."])


def _main(path: str, phase: str, fault: str) -> None:
    import faulthandler

    from dlc_core.runtime.guard.faults import report_to

    faulthandler.enable()
    report_to(Path(fault))
    sys.stdout.write(json.dumps(run_phase(Path(path), phase)) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])

__all__ = ["PHASES", "all_right", "outcomes", "rows", "run_phase"]
