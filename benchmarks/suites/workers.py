"""Outcomes of models in separate processes, where a crash or an endless run is an outcome."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PER_PROCESS = 100
"""Models of one process, so that the memory of all does not add up."""


class Worker:
    """A process of `judging`; started with the first model, and again after its end."""

    def __init__(self, target: str | None, limit: float, guard: bool) -> None:
        self._target, self._limit = target, limit
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if guard:
            self._environment["DLC_GUARD"] = "end"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._served = 0

    def judge(self, path: Path) -> dict[str, Any]:
        """The outcome of one model."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps([str(path), self._target]) + "\n")
        process.stdin.flush()
        stage: list[Any] = ["start"]
        while True:
            try:
                line = self._lines.get(timeout=self._limit)
            except queue.Empty:
                self.close()
                return _ended(stage, f"no result in {self._limit:g} s")
            if line is None:
                code = process.wait()
                self.close()
                return _ended(stage, f"signal {-code}" if code < 0 else f"exit code {code}")
            record: dict[str, Any] = json.loads(line)
            if "outcome" in record:
                self._served += 1
                return record
            stage = record["stage"]

    def _started(self) -> subprocess.Popen[str]:
        if self._served >= PER_PROCESS:
            self.close()
        if self._process is None:
            self._served, self._lines = 0, queue.Queue()
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "benchmarks.suites.judging"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env=self._environment,
            )  # fmt: skip
            threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("{"):  # libraries may print to it too
                lines.put(line)
    except ValueError:  # closed
        return
    lines.put(None)


def _ended(stage: Sequence[Any], reason: str) -> dict[str, Any]:
    if stage[0] == "dlc":
        about = {"stored": "crashed"} if "stored" in stage[1] else {}
        return {**stage[1], **about, "outcome": "crashed", "reason": reason}
    return {"outcome": "skipped", "reason": "", "peer": f"crashed: {reason}"}


def outcomes(
    paths: Sequence[Path], target: str | None, limit: float, guard: bool
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The outcome of each model in turn."""
    worker = Worker(target, limit, guard)
    try:
        for path in paths:
            yield path, worker.judge(path)
    finally:
        worker.close()
