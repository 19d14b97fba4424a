"""Search strategies: which points of a space are tried, in which order.

A strategy starts a *search* for one task and one space. The tuner asks it for points, has them measured, and
tells it the results, until the budget ends or the search has no more points:

    search = strategy.start(task, space, seed)
    for made in search.ask(8):           candidates, all legal, at most 8
        ...
    search.tell([Tried(made, seconds=1e-3), ...])

Plugins declare strategies by the hook `dlc_search_strategies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dlc_core.support.record import record
from dlc_tune.space import Candidate, Space
from dlc_tune.task import Task


@record(frozen=True)
class Tried:
    """A measured candidate: the seconds (or another cost, the lower the better) of one run; None if it could
    not be built or run, or was wrong.
    """

    candidate: Candidate
    seconds: float | None


class Search(Protocol):
    """The search for one task. Its methods are called from one thread."""

    def ask(self, count: int) -> Sequence[Candidate]:
        """At most `count` legal candidates to measure next, none of which was asked for before; none if the
        search has ended.
        """
        ...

    def tell(self, tried: Sequence[Tried]) -> None:
        """Take the results of candidates, those of this search or of earlier records."""
        ...


class Strategy(Protocol):
    """A search strategy. `about` is one line for users.

    An optional method `for_model()` returns the strategy that searches the kernels of one model, such as one
    with a cost model that they share.
    """

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    def start(self, task: Task, space: Space, seed: int) -> Search:
        """Begin the search for a task. Equal seeds and results give equal points."""
        ...


__all__ = ["Search", "Strategy", "Tried"]
