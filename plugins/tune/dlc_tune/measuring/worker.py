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
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.support.record import record
from dlc_tune.measuring.build import build_file
from dlc_tune.measuring.comparing import PAIRS, Ratios, Sample, disagreement, interleave
from dlc_tune.measuring.execute import Run, digest, pin
from dlc_tune.measuring.folders import remove_left
from dlc_tune.measuring.job import MEMORY, OK, WRONG, Comparison, Job, Outcome
from dlc_tune.measuring.noise import Repeats
from dlc_tune.measuring.vendor import Measure

SLOW_SECONDS = 0.2
"""Artefacts whose opening and first runs take longer are not opened again for each round."""
TEMPORARY = ("TMPDIR", "TEMP", "TMP")
"""The variables that name the folder for temporary files."""
NO_MEMORY = ("bad_alloc", "ut of memory", "annot allocate memory", "failed to map segment")
"""Texts of errors of native code that got no memory."""
SPACE = 1 << 16
"""The most bytes of memory that is placed between runs."""


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


class WrongResultsError(Exception):
    """The results of a run differ from those of the default schedule."""


def start(
    folders: Sequence[str], log: str, environment: Mapping[str, str], setup: Callable[[], None] | None
) -> None:
    """Prepare a new process. It leads a group of its own, so that it is ended together with the compilers and
    emulators that it starts. It ends when the process that started it does, and removes its `folders` if it
    was killed. Its standard error output is in the file `log`, where native code says why it aborts. Its
    temporary files are beside this file, and removed with it: a process that is killed leaves some.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Tasks empty the file, not this: the pool starts a new process before the message of a dead one is read.
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, sys.__stderr__.fileno() if sys.__stderr__ else 2)
    os.close(output)
    temporary = Path(log).with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    os.environ.clear()
    os.environ.update({**environment, **dict.fromkeys(TEMPORARY, str(temporary))})
    tempfile.tempdir = None  # that of the environment, from now on
    threading.Thread(target=_end_with_parent, args=(folders,), daemon=True).start()
    if setup is not None:
        setup()


def _end_with_parent(folders: Sequence[str]) -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    for each in folders:
        remove_left(Path(each))
    os.killpg(0, signal.SIGKILL)


def hello() -> int:
    """The id of this process."""
    return os.getpid()


def perform(task: str, answer: str, cores: Sequence[int], memory: int | None) -> None:
    """Do a task in a file, and write its answer. The process may use these cores, and `memory` bytes more
    than it has now.
    """
    begin = time.perf_counter()
    os.truncate(sys.stderr.fileno(), 0)
    pin(cores)
    function, args, fails_as = pickle.loads(Path(task).read_bytes())  # noqa: S301  (of our parent)
    try:
        _limit_memory(memory)
        try:
            found = Answer(OK, function(*args))
        finally:
            _limit_memory(None)
    except WrongResultsError as error:
        found = Answer(WRONG, why=str(error))
    except Exception as error:  # noqa: BLE001  (a candidate may fail in any way; each is an outcome)
        found = Answer(MEMORY if _is_memory(error) else fails_as, why=_why(error))
    found = Answer(found.state, found.value, found.why, time.perf_counter() - begin)
    _write(Path(answer), found)


def _write(path: Path, value: object) -> None:
    """Write a value as a whole, so that no reader finds a part of it."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(value))
    part.replace(path)


def build_task(job: Job, path: str) -> None:
    """Write the artefact of a job."""
    build_file(job, Path(path))


def run_task(
    job: Job, path: str, flush: bool, repeats: Repeats, best: float | None, expected: str = ""
) -> Ran:
    """Measure an artefact.

    `expected` is the path of a file with the results of the default schedule, if one is kept. A run of the
    default schedule writes it. Other runs raise WrongResultsError if their results differ from it.
    """
    run = Run(Path(path), job, flush)
    results = run.results()
    if expected and job.trace is None:
        _write(Path(expected), results)
    elif expected and Path(expected).exists():
        wrong = disagreement(results, pickle.loads(Path(expected).read_bytes()))  # noqa: S301  (of a runner)
        if wrong:
            raise WrongResultsError(wrong)
    return Ran(run.costs(repeats, best), run.unit, digest(results), run.where)


def results_task(job: Job, path: str, expected: str) -> None:
    """Write the results of an artefact of the default schedule, for `run_task`."""
    _write(Path(expected), Run(Path(path), job, False).results())


def compare_task(
    candidate: Job, path: str, default: Job, default_path: str, flush: bool, seconds: float
) -> Comparison:
    """Compare two artefacts: first their results, then their times."""
    theirs = Run(Path(default_path), default, flush)
    ours = Run(Path(path), candidate, flush, theirs)
    expected = theirs.results()
    wrong = disagreement(ours.results(), expected)
    if wrong:
        return Comparison(WRONG, why=wrong)
    if theirs.measure is not None:
        found = _compare_costs(ours, theirs, theirs.measure, seconds)
    else:
        found = _compare_times(ours, theirs, seconds)
    return Comparison(OK, found.candidate, found.default, found.ratio, found.noise, same_results=True)


def _compare_costs(ours: Run, theirs: Run, measure: Measure, seconds: float) -> Ratios:
    """Compare the costs that a vendor's measure gives."""
    if not measure.deterministic:
        return interleave(lambda: (ours.cost, theirs.cost), 1, seconds)
    cost, other = ours.cost(), theirs.cost()
    ratio = cost / other if other else 1.0 + cost
    return Ratios((cost,), (other,), ratio, ratio, ratio, resolution=0.0)


def _compare_times(ours: Run, theirs: Run, seconds: float) -> Ratios:
    """Compare times. Artefacts are opened again in each round. If they open slowly, or runs are long, a round
    is a pair.
    """
    number, other = ours.number, theirs.number
    rng = np.random.default_rng(0)
    spacers: list[object] = []

    def begin() -> tuple[Sample, Sample]:
        # Other memory in between, and another order, so that code and constants are at new addresses.
        spacers[:] = [np.empty(int(size), np.uint8) for size in rng.integers(1, SPACE, 4)]
        opened = {run: run.again() for run in ((theirs, ours) if rng.integers(2) else (ours, theirs))}
        opened[ours].sample(number)
        opened[theirs].sample(other)
        return partial(opened[ours].sample, number), partial(opened[theirs].sample, other)

    before = time.perf_counter()
    first = begin()
    if time.perf_counter() - before > SLOW_SECONDS:
        return interleave(lambda: first, 1, seconds)
    return interleave(begin, PAIRS, seconds)


def outcome_of(build_seconds: float, run: Answer) -> Outcome:
    """The outcome of a job that was built in so many seconds, and of its run."""
    if run.state != OK:
        return Outcome(run.state, (), run.why, build_seconds, run.seconds)
    ran: Ran = run.value
    return Outcome(OK, ran.costs, "", build_seconds, run.seconds, ran.where, ran.digest)


def _limit_memory(limit: int | None) -> None:
    """Let this process have `limit` bytes of addresses more than now; None removes the limit."""
    if sys.platform != "linux":
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = hard
    if limit is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft = pages * resource.getpagesize() + limit
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def tells_of_memory(text: str) -> bool:
    """Whether the last message of native code, or of an error, says that there was no memory left."""
    return any(each in text for each in NO_MEMORY)


def _is_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or tells_of_memory(str(error)):
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
    "WrongResultsError",
    "build_task",
    "compare_task",
    "hello",
    "outcome_of",
    "perform",
    "results_task",
    "run_task",
    "start",
    "tells_of_memory",
]
