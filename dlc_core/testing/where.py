"""Where the nodes of a compiled model run: on the target under test, or on a host.

A target without a code generator, or with one for some operations only, gets regions of a model. The last
target of the compile, the host, computes the rest. A right result therefore does not show that the target
computed anything. `where_of` reads the record of the compile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from dlc_core.diag import first_names
from dlc_core.graph.node import STRUCTURAL, Function, functions_of, post_order
from dlc_core.ir.module import IRModule
from dlc_core.op.declare import OpDecl
from dlc_core.passes.graph.partition import NO_MATCH
from dlc_core.passes.lower.graph_work import graph_work
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.kernels import HOST as ON_HOST
from dlc_core.runtime.measure.kernels import entries_of
from dlc_core.target import Target
from dlc_core.target.cost import Work, known_sum
from dlc_core.target.target import THREADS

DEVICE, MIXED, HOST = "device", "mixed", "host"
PLACES = (DEVICE, MIXED, HOST)

SHOWN = 3
"""The maximum number of reasons that a text has."""


@dataclass(frozen=True)
class Where:
    """The number of a model's nodes that run on the target, and of all its nodes.

    `work_on` and `work` are the same for multiply-adds; both are 0 if they are not known. `why` is the reason
    why nodes run on the host. `declared` says that the target's declarations exclude all of these nodes:
    their dtypes are not in `Description.dtypes`, or a predicate refused them with a reason.
    """

    on: int
    nodes: int
    why: str = ""
    declared: bool = True
    work_on: int = 0
    work: int = 0

    @property
    def share(self) -> float:
        """The fraction of nodes that run on the target, from 0 to 1."""
        return self.on / self.nodes if self.nodes else 0.0

    @property
    def place(self) -> str:
        """`device`, `mixed` or `host`."""
        return HOST if not self.on else DEVICE if self.on == self.nodes else MIXED

    @property
    def work_share(self) -> float | None:
        """The fraction of multiply-adds that the target computes; None if there are none."""
        return self.work_on / self.work if self.work else None

    def record(self) -> list[Any]:
        """As JSON data."""
        return list(astuple(self))

    @staticmethod
    def of_record(data: Sequence[Any] | None) -> Where | None:
        """The value of `record()`; None is None."""
        return None if data is None else Where(*data)


@dataclass
class Tally:
    """Where many cases run, and the sums of their nodes and multiply-adds."""

    places: Counter[str] = field(default_factory=Counter)
    on: int = 0
    nodes: int = 0
    work_on: int = 0
    work: int = 0
    undeclared: str = ""
    """A case on the host that no declaration of the target excludes, with the reason."""

    def add(self, case: str, where: Where) -> None:
        """Count a case."""
        self.places[where.place] += 1
        self.on += where.on
        self.nodes += where.nodes
        self.work_on += where.work_on
        self.work += where.work
        if where.place == HOST and not where.declared and not self.undeclared:
            self.undeclared = f"{case}: {where.why}"

    def merge(self, other: Tally) -> None:
        """Count the cases of another tally."""
        self.places += other.places
        self.on += other.on
        self.nodes += other.nodes
        self.work_on += other.work_on
        self.work += other.work
        self.undeclared = self.undeclared or other.undeclared

    @property
    def share(self) -> float | None:
        """The fraction of nodes that run on the target; None without cases."""
        return self.on / self.nodes if self.nodes else None

    @property
    def work_share(self) -> float | None:
        """The fraction of multiply-adds that the target computes; None if there are none."""
        return self.work_on / self.work if self.work else None

    @property
    def problem(self) -> str:
        """Why these cases do not test the target: none of them ran on it, and its declarations do not exclude
        all of them. Empty if they do.
        """
        tested = self.places[DEVICE] + self.places[MIXED]
        return "" if tested or not self.places[HOST] else self.undeclared

    def record(self) -> list[Any]:
        """As JSON data."""
        return [dict(self.places), self.on, self.nodes, self.work_on, self.work, self.undeclared]

    @staticmethod
    def of_record(data: Sequence[Any]) -> Tally:
        """The value of `record()`."""
        places, *rest = data
        return Tally(Counter(places), *rest)


def where_of(exe: Executable, target: Target, module: IRModule) -> Where:
    """Where an executable runs, which was compiled from a module for a target, alone or with others."""
    own: dict[bool, list[int | None]] = {True: [], False: []}
    for entry in entries_of(exe):
        works = [Work.of_record(site).multiply_adds for site in entry.sites]
        own[entry.kind != ON_HOST and is_same(entry.target, target)] += works
    total, here = known_sum([*own[True], *own[False]]), known_sum(own[True])
    found = _nodes_of(exe, target, module)
    return found if total is None or here is None else replace(found, work_on=int(here), work=int(total))


def work_of(module: IRModule) -> int:
    """The multiply-adds of a module; 0 if they are not known, or if it has no op that may have some."""
    entry = module[module.entry]
    if not isinstance(entry, Function):
        return 0
    decls = (n.op for n in post_order(entry.body) if isinstance(n.op, OpDecl))
    if not any(decl.kind == "contraction" or decl.is_composite for decl in decls):
        return 0
    return graph_work(entry).multiply_adds or 0


def _nodes_of(exe: Executable, target: Target, module: IRModule) -> Where:
    """`where_of` without multiply-adds."""
    placed = exe.about.get("placed", {"regions": (), "why_not": ()})
    if not is_same(exe.target, target):
        found = where_placed(placed, target)
        return found if found.nodes else Where(0, max(1, count_nodes(module)), f"{exe.target} runs it", False)
    # The target takes what no other target takes, except ops without native code.
    own = str(replace(target, host=None))
    host = exe.about.get("host", ())
    others = sum(len(region["ops"]) for region in placed["regions"] if region["target"] != own)
    # A host program has the nodes after expansion: an op may become a native segment and a node on the host.
    native = sum(len(one["ops"]) for one in exe.about.get("native", ()))
    elsewhere = len(host) + others
    nodes = native + elsewhere if native else max(1, elsewhere, count_nodes(module))
    return Where(nodes - elsewhere, nodes, _reasons((one["op"], (one["why"],)) for one in host))


def where_placed(placed: Mapping[str, Any], target: Target) -> Where:
    """Where a model runs whose last target is another one, by the record of the pass `partition`."""
    own = str(replace(target, host=None))
    on = sum(len(region["ops"]) for region in placed["regions"] if region["target"] == own)
    refused = [one for one in placed["why_not"] if one["target"] == own]
    elsewhere = sum(len(one["op"].split()) for one in refused)
    why = _reasons((one["op"], one["reasons"]) for one in refused)
    declared = bool(refused) and all(NO_MATCH not in one["reasons"] for one in refused)
    return Where(on, on + elsewhere, why, declared)


def is_same(one: Target, other: Target) -> bool:
    """Whether two targets are equal, apart from their hosts and numbers of threads."""
    first, second = ((t.kind.name, _options(t), t.facts, t.own_keys) for t in (one, other))
    return first == second


def _options(target: Target) -> dict[str, Any]:
    return {name: value for name, value in target.options if name != THREADS}


def count_nodes(module: IRModule) -> int:
    """The number of operations of the entry of a module, with those in bodies of control flow."""
    entry = module[module.entry]
    work, count = ([entry] if isinstance(entry, Function) else []), 0
    for function in work:
        for n in post_order(function.body):
            count += n.op.name not in STRUCTURAL
            work += functions_of(n)
    return count


def _reasons(found: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The reasons of ops as one line, each reason once."""
    by_reason: dict[str, dict[str, None]] = {}
    for op, reasons in found:
        for reason in reasons:
            by_reason.setdefault(reason, {})[op] = None
    texts = [f"{first_names(list(ops), SHOWN)}: {reason}" for reason, ops in by_reason.items()]
    more = f"; {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more


__all__ = [
    "DEVICE",
    "HOST",
    "MIXED",
    "PLACES",
    "Tally",
    "Where",
    "count_nodes",
    "is_same",
    "where_of",
    "where_placed",
    "work_of",
]
