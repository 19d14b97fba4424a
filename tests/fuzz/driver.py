"""Runs the cases of a target in workers, and shrinks and stores findings."""

from __future__ import annotations

import json
import math
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from dlc_core.testing.isolation import exit_text
from tests.fuzz.mutations import parts_of_bytes
from tests.fuzz.worker import case_of, inputs_of, target_of

ROOT = Path(__file__).resolve().parents[2]
COMMAND: tuple[str, ...] = ("-m", "tests.fuzz.worker")
"""The arguments of Python for a worker."""
START_SECONDS = 300.0
"""The time limit of a worker's start."""
PATIENCE = 10.0
"""A case may take its seconds of processor time, and so many times its seconds in all."""
PER_WORKER = 5000
"""The most cases of a worker: it keeps the caches of a process, which grow."""
PROGRESS_SECONDS = 30.0
SHRINK_SECONDS = 60.0
"""The time for the shrinking of one finding."""
_RUN = re.compile(r" in (_?run|run_function)$")  # the frame of a pass: frames in it are others each time


@dataclass
class Finding:
    """A case that failed: where, how, and its input, the shrunk one if that failed too."""

    number: int
    place: str
    text: str
    data: bytes = b""
    rng: str = ""


@dataclass
class Report:
    """The outcomes of a run, and one finding for each place."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    seconds: float = 0.0

    def text(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        total = sum(self.outcomes.values())
        return f"{total} cases in {self.seconds:.0f} s: {counts}; {len(self.findings)} distinct findings"


class Worker:
    """A process that runs cases of a target."""

    def __init__(self, name: str, folder: Path) -> None:
        path = [str(ROOT), *filter(None, sys.path)]
        self.errors = folder / "errors"
        self._errors = self.errors.open("wb")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "DLC_CACHE_DIR": str(folder / "cache"),
            "DLC_REPRODUCER_DIR": str(folder / "reproducers"),
            "DLC_COMPILE_PROCESSES": "1",
            "HOME": str(folder),
        }
        environment.pop("DLC_CACHE", None)
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=folder,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait(START_SECONDS)

    def ask(self, **task: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()

    def wait(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None after the time, or if the process has ended.

        The time in which both processes are stopped does not count.
        """
        line = None
        for _ in range(math.ceil(seconds)):
            with suppress(queue.Empty):
                line = self._lines.get(timeout=min(seconds, 1.0))
                break
        if line is None:
            return None
        if line:
            return json.loads(line)
        # The pipe closes before the status of the process can be read.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """End the process, and return its status."""
        if self.alive() and self._process.stdin is not None:
            self._process.kill()
        status = self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # the process did not read its last task
                    continue
        return status


@contextmanager
def worker(name: str) -> Iterator[Worker]:
    with tempfile.TemporaryDirectory(prefix="dlc-fuzz-") as folder:
        started = Worker(name, Path(folder))
        try:
            yield started
        finally:
            started.end()


def run(
    name: str,
    runs: int,
    seed: int = 0,
    first: int = 0,
    out: Path | None = None,
    shrink: bool = True,
    progress: Callable[[Report], object] = lambda report: None,
    seconds: float = math.inf,
) -> Report:
    """Run cases of a target for at most `seconds`. Findings go to `out`; `progress` is for each 30 s."""
    report, begin = Report(), time.monotonic()
    inputs, last = inputs_of(name), first + runs
    told = partial(_tell, report, progress, begin)
    while first < last and time.monotonic() < begin + seconds:
        with worker(name) as process:
            end = min(last, first + PER_WORKER)
            process.ask(seed=seed, first=first, last=end)
            for finding in _outcomes(name, process, report, end, told, begin + seconds):
                first = finding.number + 1
                if finding.place not in report.findings:
                    finding.data = case_of(name, inputs, seed, finding.number)
                    finding.rng = f"{name}:{seed}:{finding.number}:check"
                    report.findings[finding.place] = finding
                    if out is not None:
                        _store(finding, out)
                if not process.alive():
                    break
            else:
                first = end
    for finding in report.findings.values():
        if shrink:
            shrunk(name, finding)
            if out is not None:
                _store(finding, out)
    report.seconds = time.monotonic() - begin
    return report


def _tell(report: Report, progress: Callable[[Report], object], begin: float) -> None:
    seconds = time.monotonic() - begin
    if seconds > report.seconds + PROGRESS_SECONDS:
        report.seconds = seconds
        progress(report)


def _outcomes(
    name: str,
    process: Worker,
    report: Report,
    last: int,
    told: Callable[[], object] = lambda: None,
    until: float = math.inf,
) -> Iterator[Finding]:
    """The findings of a worker's cases; after a death or a hang it has ended."""
    limit = target_of(name).SECONDS
    number = -1
    while time.monotonic() < until:
        message = process.wait(PATIENCE * limit)
        if message is None:
            finding = _death(process, number, limit)
            report.outcomes[finding.place.split(" ")[0]] += 1
            yield finding
            return
        if "ready" in message:  # the start took longer than expected
            continue
        if "begin" in message:
            number = message["begin"]
            continue
        report.outcomes[message["outcome"]] += 1
        told()
        if message["outcome"] == "finding":
            yield Finding(message["end"], message["place"], message["text"])
        if message["end"] + 1 == last:
            return


def _death(process: Worker, number: int, limit: float) -> Finding:
    idle = process.alive()
    status = process.end()
    stack = [line.strip() for line in process.errors.read_text(errors="replace").splitlines()]
    start = next((i for i, line in enumerate(stack) if line.startswith("Current thread")), len(stack))
    frames = [line for line in stack[start + 1 :] if line.startswith("File")]
    if idle:
        return Finding(number, f"hang of more than {PATIENCE * limit:g} s", "\n".join(stack[-40:]))
    if status == -getattr(signal, "SIGPROF", 0):
        where = next(filter(_RUN.search, frames), frames[0] if frames else "an unknown place")
        where = re.sub(r'File "(?:.*/)?(.*)", line \d+ in ', r"\1:", where)
        place = f"hang of more than {limit:g} s of processor time in {where}"
        return Finding(number, place, "\n".join(stack[-110:]))
    where = frames[0] if frames else "unknown place"
    return Finding(number, f"death: the process {exit_text(status)} at {where}", "\n".join(stack[-60:]))


def replay(name: str, data: bytes, rng: str = "replay") -> Finding | None:
    """The finding of one input, or None."""
    return next(replays(name, [(data, rng)]))


def replays(name: str, tasks: Iterable[tuple[bytes, str]]) -> Iterator[Finding | None]:
    """The findings of inputs, each with its random numbers, or None. A worker serves until it ends."""
    with ExitStack() as stack:
        process = None
        for data, rng in tasks:
            if process is None or not process.alive():
                process = stack.enter_context(worker(name))
            yield _attempt(name, process, data, rng)


def _attempt(name: str, process: Worker, data: bytes, rng: str) -> Finding | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input"
        path.write_bytes(data)
        process.ask(path=str(path), rng=rng)
        return next(_outcomes(name, process, Report(), 1), None)


def shrunk(name: str, finding: Finding) -> None:
    """Make the input of a finding smaller, as long as it fails at the same place."""
    end = time.monotonic() + SHRINK_SECONDS
    parts = getattr(target_of(name), "parts", parts_of_bytes)
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        smallest = [data for data in parts(finding.data) if len(data) < len(finding.data)]
        for data, again in zip(smallest, replays(name, ((data, finding.rng) for data in smallest))):
            if again is not None and again.place == finding.place:
                finding.data, finding.text, smaller = data, again.text, True
                break
            if time.monotonic() > end:
                break


def _store(finding: Finding, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stem = sha256(finding.place.encode()).hexdigest()[:12]
    (folder / stem).write_bytes(finding.data)
    about = f"case {finding.number}, random numbers {finding.rng}\n{finding.place}\n\n{finding.text}\n"
    (folder / f"{stem}.txt").write_text(about)


__all__ = ["Finding", "Report", "Worker", "replay", "replays", "run", "shrunk"]
