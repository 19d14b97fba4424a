"""Dask futures that are under way, each with a number, and their results in the order in which they end."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlc_core.support.lazy import lazy
from dlc_tune.measuring.job import CRASH, LOST, Outcome

if TYPE_CHECKING:
    import distributed
    from distributed import scheduler
else:
    distributed = lazy("distributed")
    scheduler = lazy("distributed.scheduler")

GATHER = 30.0
"""Seconds for the transfer of a result. Later it counts as not ended: its worker has vanished with it."""

DISCONNECTED = Outcome(LOST, why="the connection to the scheduler of the cluster broke")


class Futures:
    """Futures by number. The errors of tasks become Outcomes."""

    def __init__(self) -> None:
        self.pending: dict[distributed.Future, int] = {}
        self._ended: queue.SimpleQueue[distributed.Future] = queue.SimpleQueue()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the futures that are under way."""
        return list(self.pending.values())

    def add(self, number: int, future: distributed.Future) -> None:
        self.pending[future] = number
        future.add_done_callback(self._ended.put)

    def ended(self, seconds: float) -> Iterator[tuple[int, Any]]:
        """The next results, after at most `seconds` without one."""
        try:
            future = self._ended.get(timeout=seconds)
        except queue.Empty:
            return
        number = self.pending.pop(future, None)
        if number is None:
            return
        try:
            found = _result(future)
        except TimeoutError:
            self.add(number, future)
            return
        yield number, found

    def drop(self, number: int) -> None:
        """Cancel a future by its number."""
        self._cancel([each for each, own in self.pending.items() if own == number])

    def cancel(self) -> None:
        """Cancel all."""
        self._cancel(list(self.pending))

    def _cancel(self, futures: Sequence[distributed.Future]) -> None:
        for each in futures:
            del self.pending[each]
        if futures and futures[0].client.status != "closed":
            futures[0].client.cancel(futures, force=True)


def _result(future: distributed.Future) -> Any:
    if future.status in ("cancelled", "lost"):
        return DISCONNECTED
    error = future.exception(timeout=GATHER) if future.status == "error" else None
    if isinstance(error, scheduler.KilledWorker):
        count, last = error.allowed_failures + 1, error.last_worker.address
        return Outcome(CRASH, why=f"{count} workers ended while they worked on it, the last one at {last}")
    if error is not None:
        return Outcome(LOST, why=f"the worker raised {type(error).__name__}: {error}")
    return future.result(timeout=GATHER)


__all__ = ["DISCONNECTED", "Futures"]
