"""Workers that load a model and call it alternately: in this process, or in separate ones. A separate process
isolates crashes, hangs, conflicting libraries and memory. Parent and worker exchange pickled messages over a
pipe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.environment import environment
from benchmarks.peers.base import Array, Peer, Session

CALLS = 3
"""The number of calls after which the memory is measured."""


class Here:
    """A peer in this process that has loaded a model and called it once; errors are RuntimeErrors."""

    def __init__(self, peer: Peer, path: Path, threads: int, feeds: Mapping[str, Array]) -> None:
        self._feeds = dict(feeds)
        start = time.perf_counter()
        try:
            self._session = peer.load(path, threads)
            loaded = time.perf_counter()
            self.outputs = dict(self._session(self._feeds))
        except Exception as error:
            raise RuntimeError(_reason(error)) from error
        self.load_seconds = loaded - start
        self.first_seconds = time.perf_counter() - start
        self._last = self.first_seconds - self.load_seconds

    def measure(self, seconds: float) -> list[float]:
        """Like `Worker.measure`."""
        try:
            found = _measure(self._session, self._feeds, seconds, self._last)
        except Exception as error:
            raise RuntimeError(_reason(error)) from error
        self._last = found[-1]
        return found

    def close(self) -> None:
        del self._session


class Worker:
    """A peer in a separate process that has loaded a model and called it once. All errors, including crashes,
    are RuntimeErrors.
    """

    load_seconds: float
    """From the file to the first possible call, the import of the library included."""
    first_seconds: float
    """From the file to the first result."""
    outputs: dict[str, Array]

    def __init__(
        self, peer: Peer, path: Path, threads: int, feeds: Mapping[str, Array], limit: float
    ) -> None:
        self.limit = limit
        self._pipe, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment(PYTHONPATH=os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path]))),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        try:
            self.load_seconds, self.first_seconds, self.outputs = self._request(
                (peer, path, threads, dict(feeds))
            )
        except BaseException:
            self.close()
            raise

    def measure(self, seconds: float) -> list[float]:
        """The seconds of consecutive calls, after warm-up calls."""
        found: list[float] = self._request(("measure", seconds))
        return found

    def resident(self) -> int:
        """The resident bytes of the process after a few calls, including pages shared with files."""
        found: int = self._request(("resident",))
        return found

    def peak(self) -> int:
        """The peak of resident bytes of the process so far, including its compile."""
        found: int = self._request(("peak",))
        return found

    def close(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.wait()

    def _request(self, message: tuple[Any, ...]) -> Any:
        try:
            self._pipe.send(message)
            if not self._pipe.poll(self.limit):
                raise RuntimeError(f"late: no answer in {self.limit:g} s")
            status, value = self._pipe.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            raise RuntimeError(
                f"crashed: signal {-code}" if code < 0 else f"crashed: it ended with {code}"
            ) from None
        if status == "failed":
            raise RuntimeError(value)
        return value


def serve(pipe: Connection) -> None:
    """The worker's side: load, then answer until the parent closes the pipe."""
    peer, path, threads, feeds = pipe.recv()
    start = time.perf_counter()
    session = peer.load(path, threads)
    loaded = time.perf_counter()
    outputs = dict(session(feeds))
    first = time.perf_counter()
    pipe.send(("done", (loaded - start, first - start, outputs)))
    last = first - loaded
    while True:
        what, *arguments = pipe.recv()
        if what == "measure":
            found = _measure(session, feeds, *arguments, last)
            last = found[-1]
            pipe.send(("done", found))
        elif what == "peak":
            pipe.send(("done", _status("VmHWM")))
        else:
            for _ in range(CALLS - 1):
                session(feeds)
            pipe.send(("done", _status("VmRSS")))


def _measure(session: Session, feeds: Mapping[str, Array], seconds: float, last: float) -> list[float]:
    """The times of at least one call. If a call takes longer than `seconds`, there is no warm-up call."""
    if last < seconds:
        until = time.perf_counter() + 0.1 * seconds
        session(feeds)
        while time.perf_counter() < until:
            session(feeds)
    found = []
    until = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        session(feeds)
        end = time.perf_counter()
        found.append(end - start)
        if end >= until:
            return found


def _status(key: str) -> int:
    """A number of bytes of this process by its name in /proc/self/status; 0 if the system has none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:")), 0)


def _reason(error: Exception) -> str:
    """The first line of an error that contains "error", else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else type(error).__name__)


if __name__ == "__main__":
    channel = Connection(int(sys.argv[1]))
    try:
        serve(channel)
    except EOFError:
        pass  # the parent has closed the pipe
    except Exception as error:  # noqa: BLE001 (the parent tells it below the tables)
        channel.send(("failed", _reason(error)))
