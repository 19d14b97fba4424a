"""One worker process that survives what it runs: it is replaced when it crashes, hangs or is killed.

    process = WorkerProcess(locked_folder("dlc-tune-"))
    task = process.begin(function, args, timeout=10.0, fails_as="run")
    ...                              until task.future is done
    answer = process.end(task)
    process.close()

It is a pebble pool of one worker. A pool of several shares a lock and a pipe among its workers, and a worker
that is killed while it holds them stops the others. Workers are forks of a server that has imported the
compiler once (`multiprocessing`'s fork server). So a new one starts in hundredths of a second, and no thread
of this process is in the middle of anything in it.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing import context, set_forkserver_preload, spawn
from pathlib import Path
from threading import Lock
from typing import Any

from pebble import ProcessExpired, ProcessPool

from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.support.record import record
from dlc_tune.measuring import worker
from dlc_tune.measuring.folders import sockets_folder
from dlc_tune.measuring.job import CRASH, MEMORY, TIMEOUT
from dlc_tune.measuring.worker import Answer, tells_of_memory

START_SECONDS = 120.0
"""The time limit of the start of a process."""
POLL_SECONDS = 0.5
"""How often a process is looked at while its task does not end."""
NOTICE_SECONDS = 2.0
"""The time in which a pool notices that its process has ended."""
TRIES = 2
"""How often a task is given to a process that ended before it began with it."""
MESSAGES = 2000
"""The bytes of its standard error output that are read when a process has ended."""
PRELOADED = ["dlc_tune.measuring.worker", "dlc_tune.measuring.preloaded"]
"""The modules that the fork server imports."""
Setup = Callable[[], None]


@record(frozen=True, eq=False)
class Task:
    """A task that a process does."""

    future: Future[None]
    again: Callable[[], Task]
    answer: Path
    task: Path
    timeout: float
    fails_as: str
    tries: int


MAX_FOLDER = 75
"""The characters of the folder for temporary files that leave room for the names of sockets (108 in all)."""


class WorkerProcess:
    """A process that does one task at a time. `folder` is a `locked_folder` for files of its tasks; `setup`,
    a function of a module, runs first in each new process.
    """

    def __init__(self, folder: Path, setup: Setup | None = None) -> None:
        self._folder = folder
        self._log = folder / f"{next(_numbers)}.log"
        self._setup = setup
        self._pool: ProcessPool | None = None
        self._hello: Future[int] | None = None
        self._count = 0
        self._is_over = False

    def start(self) -> None:
        """Begin to start the process, if it does not run. Raises RuntimeFailure if it has ended for good."""
        if self._is_over:
            raise RuntimeFailure("a worker process of the tuner has ended for good")
        if self._pool is None:
            _check_temporary_folder()
            set_forkserver_preload(PRELOADED)
            folders = (str(self._folder), str(sockets_folder()))
            given = (folders, str(self._log), dict(os.environ), self._setup)
            self._pool = ProcessPool(1, initializer=worker.start, initargs=given, context=_Context())
            self._hello = self._pool.schedule(worker.hello)

    @property
    def pid(self) -> int:
        """The id of the process. Raises RuntimeFailure if it does not start."""
        for _ in range(TRIES):
            self.start()
            assert self._hello is not None
            try:
                return self._hello.result(START_SECONDS)
            except (
                BrokenProcessPool,
                ProcessExpired,
                CancelledError,
                FutureTimeoutError,
                RuntimeError,
            ) as error:
                failure = error
                self.close()
        raise RuntimeFailure(
            "a worker process of the tuner does not start",
            why=f"{type(failure).__name__}: {failure}",
            details=self._messages(),
        ) from failure

    def begin(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        *,
        timeout: float,
        fails_as: str,
        cores: Sequence[int] = (),
        memory: int | None = None,
        tries: int = TRIES,
    ) -> Task:
        """Give the process a task: a function of a module and its arguments. If the function raises an error,
        the state of the answer is `fails_as`.
        """
        pid = self.pid
        self._count += 1
        task = self._folder / f"{pid}-{self._count}.task"
        answer = task.with_suffix(".answer")
        content = pickle.dumps((function, tuple(args), fails_as))
        given = (str(task), str(answer), tuple(cores), memory)
        assert self._pool is not None
        future: Future[None]
        try:
            task.write_bytes(content)
            future = self._pool.schedule(worker.perform, args=given, timeout=timeout)
        except (OSError, RuntimeError) as error:  # the disk is full, or the process has ended meanwhile
            future = Future()
            future.set_exception(error)

        def again() -> Task:
            return self.begin(
                function,
                args,
                timeout=timeout,
                fails_as=fails_as,
                cores=cores,
                memory=memory,
                tries=tries - 1,
            )

        return Task(future, again, answer, task, timeout, fails_as, tries)

    def answer(self, function: Callable[..., Any], args: Sequence[Any], **options: Any) -> Answer:
        """The answer of a task, which `begin` describes. Waits for it."""
        return self.wait_for(self.begin(function, args, **options))

    def wait_for(self, task: Task) -> Answer:
        """The answer of a task. If the wait is interrupted, the process ends at once."""
        try:
            while True:
                wait([task.future], POLL_SECONDS)
                if task.future.done() or self.has_vanished(task):
                    found = self.end(task)
                    if isinstance(found, Answer):
                        return found
                    task = found
        except BaseException:
            self.close()
            raise

    def has_vanished(self, task: Task) -> bool:
        """Whether the process has ended without an answer and without an error, such as by `os._exit(0)`."""
        if task.future.done() or self._hello is None:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            # The pool notices other ends in a moment, with the exit status.
            return not wait([task.future], NOTICE_SECONDS).done
        return False

    def end(self, task: Task) -> Answer | Task:
        """The answer of a task that has ended or vanished. If the process ended before it began with the
        task, it is a new task, which a new process does.
        """
        try:
            if not task.future.done():
                self.close()
                return Answer(CRASH, why="the process ended with exit status 0")
            task.future.result()
            found: Answer = pickle.loads(task.answer.read_bytes())  # noqa: S301  (of our own process)
            if found.state == MEMORY:  # what could not be loaded would be missing in later tasks
                self.close()
            return found
        except (FutureTimeoutError, CancelledError):
            self.close()
            return Answer(TIMEOUT, why=f"it took longer than {task.timeout:g} s", seconds=task.timeout)
        except ProcessExpired as error:
            self.close()
            last = "".join(f": {line}" for line in self._messages()[-1:])
            state = MEMORY if tells_of_memory(last) else CRASH
            return Answer(state, why=f"{_exit_text(error.exitcode)}{last}")
        except (BrokenProcessPool, RuntimeError):
            self.close()
            if task.tries > 1:
                return task.again()
            return Answer(CRASH, why=f"{TRIES} processes ended as they began with it")
        except Exception as error:  # noqa: BLE001  (such as a full disk: the loss of one task)
            return Answer(task.fails_as, why=f"{type(error).__name__}: {error}")
        finally:
            for file in (task.task, task.answer):
                file.unlink(missing_ok=True)

    def _messages(self) -> list[str]:
        """The last lines of the standard error output of the last process."""
        try:
            text = self._log.read_bytes()[-MESSAGES:].decode(errors="replace")
        except OSError:
            return []
        return [line.strip() for line in text.splitlines() if line.strip()]

    def close(self, for_good: bool = False) -> None:
        """End the process at once, with all that it has started. A later task starts a new one, unless the
        end is `for_good`, which other threads may ask for.
        """
        self._is_over = self._is_over or for_good
        pool, hello = self._pool, self._hello
        self._pool = self._hello = None
        if pool is None:
            return
        if hello is not None and hello.done() and not hello.cancelled() and hello.exception() is None:
            with suppress(OSError):
                os.killpg(hello.result(), signal.SIGKILL)
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _check_temporary_folder() -> None:
    """Raise UsageError if sockets in the folder for temporary files have too long a path for the system."""
    folder = tempfile.gettempdir()
    if len(folder) > MAX_FOLDER:
        raise UsageError(
            f"the folder for temporary files has a path of {len(folder)} characters: {folder}",
            why=f"the processes of a measurer talk through sockets there, which allow {MAX_FOLDER}",
            hint="set TMPDIR to a folder with a shorter path",
        )


def _exit_text(status: int | None) -> str:
    """How a process ended, from its exit status; negative ones are signals."""
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"the process was ended by {signal.Signals(-status).name}"
    return f"the process ended with exit status {status}"


_numbers = count()
_STARTING = Lock()


@contextmanager
def _without_main(name: str) -> Iterator[None]:
    """Within this context, processes of this name do not import the main module of this one.

    They need none of it, and a script that tunes at its top level would begin again in each of them.
    """

    def preparation_data(other: str) -> Mapping[str, Any]:
        data = full(other)
        kept = {key: value for key, value in data.items() if not key.startswith("init_main")}
        return kept if other == name else data

    with _STARTING:
        full = spawn.get_preparation_data
        spawn.get_preparation_data = preparation_data  # type: ignore[assignment]
        try:
            yield
        finally:
            spawn.get_preparation_data = full


class _Process(context.ForkServerProcess):
    def start(self) -> None:
        with _without_main(self.name):
            super().start()


class _Context(context.ForkServerContext):
    Process = _Process


__all__ = ["Setup", "Task", "WorkerProcess"]
