"""Dask futures that are under way, each with a number, and their results in the order in which they end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlc_core.support.lazy import lazy
from dlc_tune.measuring.cluster_tasks import Rejected
from dlc_tune.measuring.job import CRASH, LOST, Comparison, Outcome

if TYPE_CHECKING:
    import distributed
    from distributed import scheduler
else:
    distributed = lazy("distributed")
    scheduler = lazy("distributed.scheduler")

PAUSE = 0.1
"""Seconds after which the results are looked at again, in case a notice was missed."""
DISCONNECTED = Outcome(LOST, why="the connection to the scheduler of the cluster broke")


class Futures:
    """Futures of one client by number. The errors of tasks become Outcomes."""

    def __init__(self, client: distributed.Client) -> None:
        self._client = client
        self._pending: dict[distributed.Future, int] = {}
        self._completed = distributed.as_completed([], client.loop, with_results=True, raise_errors=False)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the futures that are under way."""
        return list(self._pending.values())

    def add(self, number: int, future: distributed.Future) -> None:
        self._pending[future] = number
        self._completed.add(future)

    def ended(self, seconds: float) -> Iterator[tuple[int, Any]]:
        """The results that have arrived, or that arrive next; none after `seconds` without one."""
        end, condition = time.monotonic() + seconds, self._completed.thread_condition
        while not self._completed.has_ready() and time.monotonic() < end:
            with condition:
                condition.wait(PAUSE)
        for future, result in self._completed.next_batch(block=False):
            number = self._pending.pop(future, None)
            if number is not None:
                yield number, _outcome(result)

    def drop(self, number: int) -> None:
        """Cancel a future by its number."""
        self._cancel([each for each, own in self._pending.items() if own == number])

    def cancel(self) -> None:
        """Cancel all."""
        self._cancel(list(self._pending))

    def _cancel(self, futures: Sequence[distributed.Future]) -> None:
        for each in futures:
            del self._pending[each]
        if futures and self._client.status != "closed":
            self._client.cancel(futures, force=True)


def _outcome(result: Any) -> Any:
    """The result of a task; for a task without one, `result` is its error or the end of the connection."""
    if isinstance(result, (Outcome, Comparison, Rejected)):
        return result
    if not isinstance(result, tuple):
        return DISCONNECTED
    _, error, _ = result
    if isinstance(error, scheduler.KilledWorker):
        count, last = error.allowed_failures + 1, error.last_worker.address
        return Outcome(CRASH, why=f"{count} workers ended while they worked on it, the last one at {last}")
    return Outcome(LOST, why=f"the worker raised {type(error).__name__}: {error}")


__all__ = ["DISCONNECTED", "Futures"]
