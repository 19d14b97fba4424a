"""Placement by cost: which of the matches that targets could take they get, so that the predicted time of the
model is least.

The time is the sum over all nodes on their targets, one after another, and over all copies between memories.
A copy goes through the host, is made once for all readers on a target, and costs the latency and bandwidth of
the description (`transfer_seconds`, `transfer_bandwidth`). Each target offers its matches as if it were the
only one; a match of several nodes is taken whole or not at all. The choice is a minimum cut of the graph
(`labelling.py`): optimal for one target and the host, and nearly so for more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, TargetError, seconds_text
from dlc_core.graph.node import CONST, GET, PARAM, STRUCTURAL, TUPLE, Node
from dlc_core.ir.types import static_bytes
from dlc_core.passes.graph.labelling import Labelling, Labels, Value
from dlc_core.passes.graph.node_seconds import bytes_of_constants
from dlc_core.passes.graph.regions import Cover, Graph, RegionPart
from dlc_core.rewrite.pattern import match
from dlc_core.support.record import record
from dlc_core.target.target import Target

_UNIT = 1e-12
"""The unit of integer costs in seconds."""
_MEMORY = 0
"""The node that stands for the host's memory: it gives the inputs and reads the results."""


@record(frozen=True)
class CostModel:
    """The costs of a placement.

    `seconds(node, target, resident)` predicts a run; None if it depends on dims. `resident` are the bytes of
    all constants of the model. `has_own_memory(target)` says whether values must be copied to the target's
    device.
    """

    seconds: Callable[[Node, Target, int], float | None]
    has_own_memory: Callable[[Target], bool]

    def copy_seconds(self, target: Target, size: int | None) -> float:
        """The seconds of a copy of so many bytes between a target's device and the host; those of a launch
        if they share memory, because another segment begins.
        """
        description = target.describe()
        if not self.has_own_memory(target):
            return description.launch_seconds
        return description.transfer_seconds + (size or 0) / description.transfer_bandwidth

    def part_seconds(self, part: RegionPart, resident: int) -> float | None:
        """The seconds of a match on its target. Raises TargetError if the partitioner's `cost` fails."""
        target, partitioner = part.candidate.target, part.candidate.partitioner
        if partitioner.cost is None:
            each = [self.seconds(n, target, resident) for n in part.members if n.op.name not in STRUCTURAL]
            known = [one for one in each if one is not None]
            return sum(known) if len(known) == len(each) else None
        found = match(part.pattern.pattern, part.root)
        assert found is not None
        what = f"`cost` of partitioner {partitioner.name!r} failed: {part.pattern.name}"
        cost = partitioner.cost
        return asked_seconds(lambda: cost(found, target), what, part.root, [part.candidate.where()])


def asked_seconds(ask: Callable[[], object], what: str, n: Node, details: Sequence[str]) -> float:
    """Return the seconds that a plugin predicts. Raises TargetError if it raises, or returns no number of at
    least 0.
    """
    try:
        cost = ask()
    except DlcError as error:
        error.details += (what, *details)
        raise error.at(n.spans) from error.__cause__
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise TargetError(what, why=why, spans=n.spans, details=details) from error
    known = isinstance(cost, (int, float, np.number)) and 0 <= cost < math.inf
    if not known:
        why = f"it returned {cost!r:.80}"
        raise TargetError(what, why=why, hint="return seconds of at least 0", spans=n.spans, details=details)
    return float(cost)  # type: ignore[arg-type]


class CostPlacement:
    """The choice among the matches of several targets in one graph.

    `covers` have the matches of each target by its text, in order of preference. `pins` are nodes that are
    placed by name.
    """

    def __init__(
        self,
        graph: Graph,
        host: Target,
        covers: Mapping[Target, Cover],
        pins: Mapping[Node, str],
        model: CostModel,
    ) -> None:
        self._graph, self._model = graph, model
        self.targets = [*covers, host]
        self._memory_label = len(self.targets)
        self._nodes = [n for n in graph.order if n.op.name not in STRUCTURAL]
        self._number = {n: i for i, n in enumerate(self._nodes, _MEMORY + 1)}
        resident = bytes_of_constants(graph.order)
        self._parts: list[list[RegionPart]] = [list(cover.parts) for cover in covers.values()]
        self._seconds = {
            id(part): model.part_seconds(part, resident) for parts in self._parts for part in parts
        }
        self._host = {n: model.seconds(n, host, resident) for n in self._nodes}
        self._fixed = self._fixed_labels(pins)
        self._parts = [
            [part for part in parts if self._may_have(part, label)] for label, parts in enumerate(self._parts)
        ]
        self._names: list[Node] = []
        self._problem = Labelling(self._costs(), self._values(), self._groups())
        self._starts = [self._all_on(label) for label in range(len(self.targets))]
        self._preferred = self._by_preference()
        self.labels: Labels = self._problem.solve([self._preferred, *self._starts])

    def _members(self, part: RegionPart) -> list[int]:
        return [self._number[n] for n in part.members if n in self._number]

    def _may_have(self, part: RegionPart, label: int) -> bool:
        return all(self._fixed.get(n, label) == label for n in self._members(part))

    def _fixed_labels(self, pins: Mapping[Node, str]) -> dict[int, int]:
        """The labels of nodes that are placed by name or whose time is unknown, with those of their matches.

        The first target that can take a node of unknown time gets it.
        """
        fixed: dict[int, int] = {}
        unknown = {n for n, seconds in self._host.items() if seconds is None}
        unknown |= {
            n for parts in self._parts for p in parts if self._seconds[id(p)] is None for n in p.members
        }
        for label, parts in enumerate(self._parts):
            text = str(self.targets[label])
            for part in parts:
                numbers = self._members(part)
                wanted = any(pins.get(n) == text or n in unknown for n in part.members)
                if wanted and not any(n in fixed for n in numbers):
                    fixed.update(dict.fromkeys(numbers, label))
        return fixed

    def _costs(self) -> list[list[int | None]]:
        """The cost of each node with each label; that of a match belongs to its root."""
        host = len(self.targets) - 1
        others: list[int | None] = [None] * host
        rows: list[list[int | None]] = [[*others, None, 0]]
        for n in self._nodes:
            allowed = self._fixed.get(self._number[n], host) == host
            rows.append([*others, _units(self._host[n]) if allowed else None, None])
        for label, parts in enumerate(self._parts):
            for part in parts:
                for number in self._members(part):
                    rows[number][label] = 0
                rows[self._number[part.root]][label] = _units(self._seconds[id(part)])
        return rows

    def _groups(self) -> list[list[list[int]]]:
        return [*([self._members(part) for part in parts] for parts in self._parts), [], []]

    def _values(self) -> list[Value]:
        """The values that nodes pass to each other, and their copies."""
        readers: dict[Node, dict[int, None]] = defaultdict(dict)
        for n in self._nodes:
            for leaf in _leaves(n.args):
                readers[leaf][self._number[n]] = None
        for leaf in _leaves((self._graph.body,)):
            readers[leaf][_MEMORY] = None
        found = []
        for leaf, consumers in readers.items():
            seconds = [self._model.copy_seconds(t, static_bytes(leaf.type)) for t in self.targets]
            if not self._model.has_own_memory(self.targets[-1]):
                seconds[-1] = 0.0
            copies = (*map(_units, seconds), 0)
            producer = self._number.get(_producer(leaf), _MEMORY)
            self._names.append(leaf)
            found.append(Value(producer, tuple(consumers), copies, copies))
        return found

    def _all_on(self, label: int) -> Labels:
        """All nodes that a target can take on it, the rest on the host."""
        found = [self._memory_label]
        for number in range(1, len(self._nodes) + 1):
            can = self._problem.costs[number][label] is not None
            found.append(self._fixed.get(number, label if can else len(self.targets) - 1))
        return found

    def _by_preference(self) -> Labels:
        """The first target that can take a node gets it."""
        found = [self._memory_label, *[len(self.targets) - 1] * len(self._nodes)]
        for number, label in self._fixed.items():
            found[number] = label
        taken = set(self._fixed)
        for label, parts in enumerate(self._parts):
            for part in parts:
                numbers = self._members(part)
                if taken.isdisjoint(numbers):
                    taken.update(numbers)
                    for number in numbers:
                        found[number] = label
        return found

    def chosen(self) -> Iterable[RegionPart]:
        """The matches that targets get."""
        for label, parts in enumerate(self._parts):
            yield from (part for part in parts if self.labels[self._number[part.root]] == label)

    def refusals(self) -> Iterable[tuple[RegionPart, str]]:
        """The matches that targets do not get, each with the times that decide."""
        for label, parts in enumerate(self._parts):
            for part in parts:
                numbers = self._members(part)
                if all(self.labels[n] != label for n in numbers):
                    yield part, self._why(part, label, numbers)

    def _why(self, part: RegionPart, label: int, numbers: Sequence[int]) -> str:
        here = sum(self._problem.costs[n][self.labels[n]] or 0 for n in numbers)
        there = sum(self._problem.costs[n][label] or 0 for n in numbers)
        on = " and ".join(dict.fromkeys(str(self.targets[self.labels[n]]) for n in numbers))
        copies = self._problem.copies_after(self.labels, numbers, label)
        times = f"{seconds_text(there * _UNIT)} here, {seconds_text(here * _UNIT)} on {on}"
        more = f"; copies would take {seconds_text(copies * _UNIT)} more" if copies > 0 else ""
        return f"{part.pattern.name}: predicted {times}{more}"

    def report(self) -> dict[str, Any]:
        """The predicted times as plain data: of the choice, its copies, and of other placements."""
        total = self._problem.cost(self.labels)
        copies = []
        for leaf, value in zip(self._names, self._problem.values, strict=True):
            own = self.labels[value.producer]
            for label in dict.fromkeys(self.labels[c] for c in value.consumers):
                if label != own and (cost := value.down[own] + value.up[label]):
                    ends = self._place(own), self._place(label)
                    copies.append(_copy(leaf, *ends, cost * _UNIT))
        copied = sum(value.cost(self.labels) for value in self._problem.values)
        return {
            "seconds": total * _UNIT,
            "copy_seconds": copied * _UNIT,
            "copies": copies,
            "preference": self._problem.cost(self._preferred) * _UNIT,
            "alone": {
                str(target): self._problem.cost(start) * _UNIT
                for target, start in zip(self.targets, self._starts, strict=True)
            },
        }

    def _place(self, label: int) -> str:
        return "the host's memory" if label == self._memory_label else str(self.targets[label])


def _copy(leaf: Node, begin: str, end: str, seconds: float) -> dict[str, Any]:
    base = _producer(leaf)
    name = base.attrs["name"] if base.op is PARAM else ", ".join(s.name for s in base.spans if s.name)
    size = static_bytes(leaf.type)
    return {"value": name or base.op.name, "from": begin, "to": end, "bytes": size, "seconds": seconds}


def _leaves(args: Iterable[Node]) -> Iterable[Node]:
    """The values that arguments consist of: fields of tuples are separate values."""
    work = list(args)[::-1]
    while work:
        n = work.pop()
        if n.op is TUPLE:
            work += n.args[::-1]
        elif n.op is not CONST:
            yield n


def _producer(leaf: Node) -> Node:
    """The node that computes a value, or the input that it is."""
    while leaf.op is GET:
        leaf = leaf.args[0]
    return leaf


def _units(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds / _UNIT)


__all__ = ["CostModel", "CostPlacement", "asked_seconds"]
