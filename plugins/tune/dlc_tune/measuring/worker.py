"""The work of builder and runner processes, and how it enters and leaves them.

A task is a file with a pickled function and its arguments; its answer is another file. Only their paths go
through the pipe of a process. Such messages are written at once, so a process that is killed leaves none half
written for the next one. The files are in a folder that only this user can read.
"""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.support.record import record
from dlc_tune.measuring.build import build_file
from dlc_tune.measuring.comparing import disagreement, interleave
from dlc_tune.measuring.execute import Run, digest, pin
from dlc_tune.measuring.job import MEMORY, OK, WRONG, Comparison, Job, Outcome
from dlc_tune.measuring.noise import Repeats

UNLIMITED = resource.RLIM_INFINITY


@record(frozen=True)
class Answer:
    """The end of a task: a state of `job.STATES`, the value if it is OK, and the reason if it is not."""

    state: str
    value: Any = None
    why: str = ""
    seconds: float = 0.0


@record(frozen=True)
class Ran:
    """The costs of a run, their unit, a hash of the results, and where it ran."""

    costs: tuple[float, ...]
    unit: str
    digest: str
    where: str


def start(folder: str, environment: Mapping[str, str], setup: Callable[[], None] | None) -> None:
    """Prepare a new process. It leads a group of its own, so that it is ended together with the compilers and
    emulators that it starts. It ends when the process that started it does.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    if setup is not None:
        setup()


def _end_with_parent(folder: str) -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def hello() -> int:
    """The id of this process."""
    return os.getpid()


def perform(task: str, answer: str, cores: Sequence[int], memory: int | None) -> None:
    """Do a task in a file, and write its answer. The process may use these cores, and `memory` bytes more
    than it has now.
    """
    begin = time.perf_counter()
    pin(cores)
    function, args, fails_as = pickle.loads(Path(task).read_bytes())  # noqa: S301  (of our parent)
    try:
        _limit_memory(memory)
        try:
            found = Answer(OK, function(*args))
        finally:
            _limit_memory(None)
    except Exception as error:  # noqa: BLE001  (a candidate may fail in any way; each is an outcome)
        found = Answer(MEMORY if _is_memory(error) else fails_as, why=_why(error))
    found = Answer(found.state, found.value, found.why, time.perf_counter() - begin)
    part = Path(f"{answer}.part")
    part.write_bytes(pickle.dumps(found))
    part.replace(answer)


def build_task(job: Job, path: str) -> None:
    """Write the artefact of a job."""
    build_file(job, Path(path))


def run_task(job: Job, path: str, flush: bool, repeats: Repeats, best: float | None) -> Ran:
    """Measure an artefact."""
    run = Run(Path(path), job, flush)
    costs = run.costs(repeats, best)
    return Ran(costs, run.unit, digest(run.results()), run.where)


def compare_task(
    candidate: Job, path: str, default: Job, default_path: str, flush: bool, seconds: float
) -> Comparison:
    """Compare two artefacts: first their results, then their times."""
    theirs = Run(Path(default_path), default, flush)
    expected = theirs.results()
    ours = Run(Path(path), candidate, flush, None if theirs.measure else theirs.call.outputs)
    wrong = disagreement(ours.results(), expected)
    if wrong:
        return Comparison(WRONG, why=wrong)
    if theirs.measure is not None:
        costs, others = ours.costs(Repeats()), theirs.costs(Repeats())
        if theirs.measure.deterministic:
            ratio = costs[0] / others[0] if others[0] else 1.0
            return Comparison(OK, costs[:1], others[:1], ratio, 0.0, same_results=True)
    number, others_number = ours.number, theirs.number
    found = interleave(lambda: ours.sample(number), lambda: theirs.sample(others_number), seconds)
    return Comparison(OK, found.candidate, found.default, found.ratio, found.noise, same_results=True)


def outcome_of(build_seconds: float, run: Answer) -> Outcome:
    """The outcome of a job that was built in so many seconds, and of its run."""
    if run.state != OK:
        return Outcome(run.state, (), run.why, build_seconds, run.seconds)
    ran: Ran = run.value
    return Outcome(OK, ran.costs, "", build_seconds, run.seconds, ran.where)


def _limit_memory(limit: int | None) -> None:
    """Let this process have `limit` bytes of addresses more than now; None removes the limit."""
    if sys.platform != "linux":
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = hard
    if limit is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft = pages * resource.getpagesize() + limit
        soft = soft if hard == UNLIMITED else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _is_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _why(error: Exception) -> str:
    if isinstance(error, DlcError):
        return f"{error.what}: {error.why}" if error.why else error.what
    return f"{type(error).__name__}: {error}"


__all__ = [
    "Answer",
    "Ran",
    "build_task",
    "compare_task",
    "hello",
    "outcome_of",
    "perform",
    "run_task",
    "start",
]
