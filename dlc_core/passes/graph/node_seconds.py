"""The predicted seconds of single nodes on a target: the roofline of its description (`target/cost.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dlc_core.graph.node import CONST, GET, PARAM, TUPLE, Node
from dlc_core.ir.types import static_bytes
from dlc_core.passes.lower.costs import grouped_products
from dlc_core.passes.lower.graph_work import node_work
from dlc_core.passes.lower.views import is_view
from dlc_core.target.cost import Machine
from dlc_core.target.target import Target

FUSED = ("elementwise", "broadcast", "injective")
"""Kinds of ops that become a part of the kernel before them."""


class NodeSeconds:
    """The predictions for one target.

    An elementwise or injective node that follows another node costs its arithmetic only, because it is fused
    with that node; if a copy separates both, the copy is priced.
    """

    def __init__(self, target: Target) -> None:
        description = target.describe()
        self._machine = Machine.of(description)
        self._threads = description.workers
        self._dots = grouped_products(description)
        self._known: dict[Any, float | None] = {}

    def __call__(self, n: Node, resident: int = 0) -> float | None:
        """Return the seconds of one run; None if they depend on dims, or if its work is unknown.

        `resident` are the bytes of all constants of the model, which are read between two runs.
        """
        if is_view(n):
            return 0.0
        key = n.op, tuple(a.type for a in n.args), tuple(n.attrs.items()), n.type, _is_fused(n), resident
        try:
            known = key in self._known
        except TypeError:  # an attribute without a hash, such as a function
            return self._seconds(n, resident)
        if not known:
            self._known[key] = self._seconds(n, resident)
        return self._known[key]

    def _seconds(self, n: Node, resident: int) -> float | None:
        work = node_work(n, self._dots)
        machine = self._machine
        if _is_fused(n):
            work, machine = replace(work, bytes=0, constants=0), replace(machine, call_seconds=0.0)
        found = machine.estimate(work, threads=self._threads, resident=resident)
        return None if found is None else found.seconds


def bytes_of_constants(order: Iterable[Node]) -> int:
    """The bytes of all constants among some nodes."""
    return sum(static_bytes(n.type) or 0 for n in order if n.op is CONST)


def _is_fused(n: Node) -> bool:
    follows = any(a.op not in (PARAM, CONST, TUPLE, GET) for a in n.args)
    return follows and getattr(n.op, "kind", "") in FUSED


__all__ = ["NodeSeconds", "bytes_of_constants"]
