"""`report`: the graphs that torch.compile handed to dlc, and the operators of them that run in torch."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from dlc_core.support.record import record

log = logging.getLogger("dlc.torch")
"""Reasons are logged at the level INFO as they occur."""


@record(frozen=True)
class Fallback:
    """An operator that runs in torch: its name, the user's line, and the reason."""

    op: str
    where: str
    why: str


@record(frozen=True)
class Graph:
    """A graph that AOT autograd handed over.

    `kind` is "inference", "forward" or "backward". `nodes` counts operators, `compiled` those of them that
    run in dlc, `parts` the compiled parts. `seconds` is the time of import and compile.
    """

    kind: str
    nodes: int
    compiled: int
    parts: int
    seconds: float
    fallbacks: tuple[Fallback, ...] = ()


@record(frozen=True)
class Report:
    """All graphs since the start of the process or the last `reset`."""

    graphs: tuple[Graph, ...]

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The operators that run in torch, in the order of the graphs."""
        return tuple(each for graph in self.graphs for each in graph.fallbacks)

    def __str__(self) -> str:
        lines = []
        for number, graph in enumerate(self.graphs):
            lines.append(
                f"graph {number} ({graph.kind}): {graph.compiled} of {graph.nodes} operators in dlc, "
                f"{graph.parts} part{'' if graph.parts == 1 else 's'}, {graph.seconds:.2f} s"
            )
            for (op, where, why), count in Counter((f.op, f.where, f.why) for f in graph.fallbacks).items():
                lines.append(
                    f"  {op}{f' ({count} times)' if count > 1 else ''} runs in torch: {why} [{where}]"
                )
        return "\n".join(lines) or "no graph was compiled"


_graphs: list[Graph] = []
_lock = threading.Lock()


def add(graph: Graph) -> None:
    """Record a graph, and log why operators of it run in torch."""
    with _lock:
        _graphs.append(graph)
    for each in graph.fallbacks:
        log.info("%s runs in torch: %s [%s]", each.op, each.why, each.where)


def report() -> Report:
    """The graphs that torch.compile handed to dlc in this process."""
    with _lock:
        return Report(tuple(_graphs))


def reset() -> None:
    """Forget all graphs."""
    with _lock:
        _graphs.clear()


__all__ = ["Fallback", "Graph", "Report", "add", "report", "reset"]
