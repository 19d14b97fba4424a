"""The regions of a graph that other targets take.

`cover` finds matches of one partitioner's patterns; a match is a node with the nodes that only it uses.
`merged` joins neighbouring matches to regions if no path between them leads through other nodes.  So the
graph of regions and single nodes has no cycle, whatever regions other targets take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlc_core.diag import DlcError, Span, TargetError
from dlc_core.graph.node import CONST, GET, Node
from dlc_core.rewrite.pattern import Match, OpPattern, match, mismatch
from dlc_core.support.record import record
from dlc_core.target.partitioner import Partitioner, RegionPattern, Verdict
from dlc_core.target.target import Target

NO_REASON = "its predicate refuses"


@record(frozen=True, eq=False)
class Candidate:
    """A target and one of its partitioners, which may take nodes."""

    target: Target
    partitioner: Partitioner
    source: str = ""
    """The plugin that provides the partitioner, for errors."""

    def where(self) -> str:
        """The partitioner, its plugin and its target as a line of an error's details."""
        source = f" of {self.source}" if self.source else ""
        return f"in partitioner {self.partitioner.name!r}{source}, for {self.target}"

    def refusal(self, about: str, verdict: Callable[[], Verdict], spans: Iterable[Span]) -> str:
        """Return why a predicate refuses; empty if it accepts.

        Raises TargetError if the predicate raises, or returns neither a truth value nor text.
        """
        what = f"a predicate of partitioner {self.partitioner.name!r} failed: {about}"
        try:
            found: object = verdict()
        except DlcError as error:
            error.details += (what, self.where())
            raise error.at(spans) from error.__cause__
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise TargetError(what, why=why, spans=spans, details=[self.where()]) from error
        if not isinstance(found, (bool, np.bool_, str)):
            why = f"it returned {found!r:.80}"
            hint = "return True, or text that says why it refuses"
            raise TargetError(what, why=why, hint=hint, spans=spans, details=[self.where()])
        if isinstance(found, str):
            return found or NO_REASON
        return "" if found else NO_REASON


@record(frozen=True)
class RegionPart:
    """One match of a pattern in a region: its nodes, arguments first."""

    candidate: Candidate
    pattern: RegionPattern
    root: Node
    members: tuple[Node, ...]


class Graph:
    """A function's nodes in order, with their users."""

    def __init__(self, order: Sequence[Node], users: Mapping[Node, Sequence[Node]], body: Node) -> None:
        self.order = order
        self.users = users
        self.body = body
        self.position = {n: i for i, n in enumerate(order)}

    def escapes(self, n: Node, inside: Collection[Node]) -> bool:
        """Whether a node outside of `inside` uses a node."""
        return n is self.body or any(user not in inside for user in self.users[n])


@dataclass
class Cover:
    """The matches found so far, and by node and target why other nodes are in none."""

    graph: Graph
    parts: list[RegionPart] = field(default_factory=list)
    covered: set[Node] = field(default_factory=set)
    refused: dict[Node, dict[str, list[str]]] = field(default_factory=dict)

    def refuse(self, n: Node, candidate: Candidate, why: str) -> None:
        """Record why a partitioner does not take a node."""
        reasons = self.refused.setdefault(n, {}).setdefault(str(candidate.target), [])
        if why not in reasons:
            reasons.append(why)

    def take(self, part: RegionPart) -> None:
        """Add a match whose nodes are in no match yet."""
        self.covered.update(part.members)
        self.parts.append(part)

    def add_refusals(self, other: Cover) -> None:
        """Add the reasons of another cover."""
        for n, by_target in other.refused.items():
            for target, reasons in by_target.items():
                known = self.refused.setdefault(n, {}).setdefault(target, [])
                known += [why for why in reasons if why not in known]

    def add(self, candidate: Candidate, offered: Callable[[Node], bool]) -> None:
        """Add a candidate's matches among the nodes that are in no match yet and `offered` to it.

        Patterns are tried in their order, for nodes from the results backwards.
        """
        for pattern in candidate.partitioner.patterns:
            for n in reversed(self.graph.order):
                if n not in self.covered and offered(n):
                    self._try(candidate, pattern, n, offered)

    def _try(
        self, candidate: Candidate, pattern: RegionPattern, root: Node, offered: Callable[[Node], bool]
    ) -> None:
        found = match(pattern.pattern, root)
        if found is None:
            if isinstance(pattern.pattern, OpPattern) and root.op in pattern.pattern.ops:
                self.refuse(root, candidate, f"{pattern.name}: {mismatch(pattern.pattern, root)}")
            return
        members = {n for n in found.nodes if n.op is not CONST}
        why = self._why_not(found, members, offered) or candidate.refusal(
            pattern.name, lambda: pattern.accepts(found, candidate.target), root.spans
        )
        if why:
            for n in members - self.covered:
                self.refuse(n, candidate, f"{pattern.name}: {why}")
            return
        members |= {u for n in members for u in self.graph.users[n] if u.op is GET}
        self.covered |= members
        ordered = tuple(sorted(members, key=self.graph.position.__getitem__))
        self.parts.append(RegionPart(candidate, pattern, root, ordered))

    def _why_not(self, found: Match, members: Collection[Node], offered: Callable[[Node], bool]) -> str:
        for n in members:
            if n in self.covered:
                return f"{n.op.name} is part of another match"
            if not offered(n):
                return f"{n.op.name} is placed elsewhere"
            if n is not found.root and self.graph.escapes(n, members):
                return f"the result of {n.op.name} is used outside of the pattern too"
        return ""


def merged(graph: Graph, parts: Iterable[RegionPart]) -> list[list[RegionPart]]:
    """Return the parts of each region, arguments first."""
    clusters = _Clusters()
    part_at = {part.root: part for part in parts}
    inside = {n for part in part_at.values() for n in part.members}
    for n in graph.order:
        part = part_at.get(n)
        if part is not None:
            own = clusters.add(part)
            if part.candidate.partitioner.merges:
                for other in sorted(clusters.direct[own]):
                    other = clusters.find(other)
                    if clusters.parts[other][0].candidate is part.candidate:
                        clusters.join(clusters.find(own), other)
        elif n not in inside:
            clusters.reach[n] = clusters.nearest(n.args)
    by_region: dict[int, list[RegionPart]] = {}
    for number, found in enumerate(clusters.parts):
        if clusters.find(number) == number:
            by_region[number] = sorted(found, key=lambda part: graph.position[part.root])
    return list(by_region.values())


class _Clusters:
    """Joined matches, with their direct dependences and those through other nodes."""

    def __init__(self) -> None:
        self.parts: list[list[RegionPart]] = []
        self.direct: list[set[int]] = []
        """For each cluster: the clusters whose values it reads."""
        self.indirect: list[set[int]] = []
        """For each cluster: those on which it depends through nodes that are in no cluster."""
        self.reach: dict[Node, frozenset[int]] = {}
        """For nodes in no cluster: the nearest clusters on which they depend."""
        self.cluster_of: dict[Node, int] = {}
        self._parent: list[int] = []

    def find(self, number: int) -> int:
        """Return the cluster that a cluster has been merged into."""
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number

    def nearest(self, args: Iterable[Node]) -> frozenset[int]:
        """Return the nearest clusters that some values depend on."""
        found: set[int] = set()
        for arg in args:
            if arg in self.cluster_of:
                found.add(self.cluster_of[arg])
            else:
                found |= self.reach.get(arg, frozenset())
        return frozenset(found)

    def add(self, part: RegionPart) -> int:
        """Add a cluster of one part, after all existing ones."""
        number = len(self.parts)
        members = set(part.members)
        reads = [a for n in part.members for a in n.args if a not in members]
        self.parts.append([part])
        self._parent.append(number)
        self.direct.append({self.cluster_of[a] for a in reads if a in self.cluster_of})
        self.indirect.append({c for a in reads for c in self.reach.get(a, ())})
        self.cluster_of.update(dict.fromkeys(members, number))
        return number

    def join(self, last: int, first: int) -> None:
        """Merge two clusters, where `last` reads `first`, unless another path between them forms a cycle."""
        if last == first or self._depends_indirectly(last, first):
            return
        small, large = sorted((last, first), key=lambda number: len(self.parts[number]))
        self._parent[small] = large
        self.parts[large] += self.parts[small]
        self.direct[large] |= self.direct[small]
        self.indirect[large] |= self.indirect[small]

    def _depends_indirectly(self, last: int, first: int) -> bool:
        """Whether `last` depends on `first` through other nodes."""
        indirect = {self.find(c) for c in self.indirect[last]}
        if first in indirect:
            return True
        work = [c for c in indirect | {self.find(c) for c in self.direct[last]} if c not in (last, first)]
        seen = set(work)
        while work:
            current = work.pop()
            for other in (*self.direct[current], *self.indirect[current]):
                found = self.find(other)
                if found == first:
                    return True
                if found not in seen:
                    seen.add(found)
                    work.append(found)
        return False


__all__ = ["Candidate", "Cover", "Graph", "RegionPart", "merged"]
