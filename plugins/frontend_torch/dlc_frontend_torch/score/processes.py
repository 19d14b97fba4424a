"""Operators judged in processes of their own: `judged`.

A process that ends early has crashed at a sample. The operator is judged again with each sample compiled
alone, to find which one, and again without that sample.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from dlc_frontend_torch.score.judging import Options
from dlc_frontend_torch.score.results import CRASHED, Outcome, Score

PER_PROCESS = 25
PATIENCE = 300.0
"""Seconds that one sample, or one group of them, may take."""
MAX_CRASHES = 8
"""After so many samples of an operator, the rest counts as crashed too."""


def judged(ops: Sequence[str], options: Options, gradients: bool) -> Iterator[Score]:
    """The scores of operators, as they are found."""
    waiting = list(ops)
    crashed: list[tuple[str, str, int]] = []
    alone: set[str] = set()
    while waiting:
        part = [waiting[0]] if waiting[0] in alone else waiting[:PER_PROCESS]
        given = replace(options, group=1) if waiting[0] in alone else options
        at: tuple[str, str, int] | None = None
        for line in _lines(
            {"ops": part, "options": asdict(given), "gradients": gradients, "crashed": crashed}
        ):
            if "at" in line:
                at = (line["at"][0], line["at"][1], line["at"][2])
            else:
                waiting.remove(line["op"])
                at = None
                yield Score.from_json(line)
        if at is None:
            if waiting and waiting[0] in part:
                raise RuntimeError("the process that judges operators cannot start")
            continue
        name = at[0]
        if name not in alone and not gradients:
            alone.add(name)
            continue
        crashed.append(at)
        alone.add(name)
        number = sum(op == name for op, _, _ in crashed)
        if at[2] < 0 or crashed.count(at) > 1 or number > MAX_CRASHES:
            waiting.remove(name)
            yield Score(
                name, tuple(Outcome(d, i, CRASHED, "the process ended") for o, d, i in crashed if o == name)
            )


def _lines(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines that a process writes until it ends."""
    command = [sys.executable, "-m", "dlc_frontend_torch.score.worker"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        while True:
            timer = threading.Timer(PATIENCE, process.kill)
            timer.start()
            line = process.stdout.readline()
            timer.cancel()
            if not line.endswith("\n"):
                return
            yield json.loads(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


__all__ = ["judged"]
