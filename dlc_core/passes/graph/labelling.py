"""Labels of least cost: which of several targets computes each node, given costs of nodes and of copies.

    problem = Labelling(costs, values, groups)
    labels = problem.solve(starts)

A node costs what its label says. A value costs a copy from the memory of its producer's label to the host, if
a consumer has another label, and a copy from the host to each other label of its consumers.

With two labels the result is optimal: the costs are those of a minimum cut. With more labels, pairs of labels
are exchanged by minimum cuts until none lowers the cost (swap moves [1]). Each move is optimal for its pair,
and the result is the best one over all starts.

[1] Boykov, Veksler, Zabih: Fast approximate energy minimization via graph cuts, IEEE Transactions on Pattern
Analysis and Machine Intelligence 23 (11), 2001.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations, islice

from dlc_core.support.min_cut import Network
from dlc_core.support.record import record

Labels = list[int]


@record(frozen=True)
class Value:
    """A value with its copies: `down[l]` and `up[l]` are the costs from the memory of label l to the host,
    and back.
    """

    producer: int
    consumers: tuple[int, ...]
    down: tuple[int, ...]
    up: tuple[int, ...]

    def cost(self, labels: Sequence[int]) -> int:
        """The cost of its copies."""
        own = labels[self.producer]
        others = {labels[c] for c in self.consumers} - {own}
        return self.down[own] + sum(self.up[label] for label in others) if others else 0


class Labelling:
    """A labelling problem; costs are integers of at least 0.

    `costs[n][l]` is the cost of node n with label l; None if it cannot have this label. `groups[l]` are
    disjoint groups of nodes: if one of a group has label l, all have.
    """

    def __init__(
        self,
        costs: Sequence[Sequence[int | None]],
        values: Sequence[Value],
        groups: Sequence[Sequence[Collection[int]]],
    ) -> None:
        self.costs = costs
        self.values = values
        self.group_of = [{n: tuple(group) for group in listed for n in group} for listed in groups]
        self._touching: dict[int, list[Value]] = defaultdict(list)
        for value in values:
            for n in {value.producer, *value.consumers}:
                self._touching[n].append(value)
        known = (c for row in costs for c in row if c is not None)
        copies = (c for value in values for c in (*value.down, *value.up))
        self._infinite = 1 + sum(known) + sum(copies)

    def cost(self, labels: Sequence[int]) -> int:
        """The cost of all nodes and values; larger than that of any allowed labelling if a label is not
        allowed."""
        total = sum(value.cost(labels) for value in self.values)
        for n, label in enumerate(labels):
            own = self.costs[n][label]
            whole = all(labels[m] == label for m in self.group_of[label].get(n, ()))
            total += self._infinite if own is None or not whole else own
        return total

    def copies_after(self, labels: Labels, moved: Collection[int], label: int) -> int:
        """The additional cost of copies if some nodes get another label."""
        touched = {id(value): value for n in moved for value in self._touching[n]}.values()
        before = sum(value.cost(labels) for value in touched)
        kept = {n: labels[n] for n in moved}
        for n in moved:
            labels[n] = label
        after = sum(value.cost(labels) for value in touched)
        for n, old in kept.items():
            labels[n] = old
        return after - before

    def solve(self, starts: Iterable[Labels]) -> Labels:
        """The labelling of least cost that is found from allowed labellings; of one label or two it is the
        same from each."""
        chosen = [row for row in self.costs if sum(cost is not None for cost in row) > 1]
        free = [label for label in range(len(self.group_of)) if any(row[label] is not None for row in chosen)]
        pairs = list(combinations(free, 2))
        tried = starts if len(pairs) > 1 else islice(starts, 1)
        return min((self._improved(list(start), pairs) for start in tried), key=self.cost)

    def _improved(self, labels: Labels, pairs: Sequence[tuple[int, int]]) -> Labels:
        best = self.cost(labels)
        improves = True
        while improves:
            improves = False
            for a, b in pairs:
                found = self._swapped(labels, a, b)
                cost = self.cost(found)
                if cost < best:
                    labels, best, improves = found, cost, len(pairs) > 1
        return labels

    def _swapped(self, labels: Labels, a: int, b: int) -> Labels:
        """The best labelling in which only nodes with one of two labels differ, with the other one."""
        cut = _Cut(self, labels, a, b)
        for n in cut.free:
            cut.add_node(n)
        for value in {id(v): v for n in cut.free for v in self._touching[n]}.values():
            cut.add_value(value)
        return cut.result()

    @property
    def infinite(self) -> int:
        """A cost above that of all allowed labellings."""
        return self._infinite


class _Cut:
    """The network of one exchange: the side of the source is label `a`, that of the sink `b`."""

    SOURCE, SINK = 0, 1

    def __init__(self, problem: Labelling, labels: Labels, a: int, b: int) -> None:
        self.problem, self.labels, self.a, self.b = problem, labels, a, b
        self.network = Network(2)
        self.free = [n for n, label in enumerate(labels) if label in (a, b)]
        self.number: dict[int, int] = {}
        for n in self.free:
            if n not in self.number:
                number = self.network.new_node()
                self.number.update((m, number) for m in self._together(n))

    def _whole(self, n: int, label: int) -> tuple[int, ...] | None:
        """The group of a node for a label; None if a node of it keeps a third label."""
        group = self.problem.group_of[label].get(n, (n,))
        return group if all(self.labels[m] in (self.a, self.b) for m in group) else None

    def _together(self, n: int) -> set[int]:
        """The nodes that have the same label as a node in each labelling of this exchange."""
        found, work = {n}, [n]
        for m in work:
            for label in (self.a, self.b):
                more = set(self._whole(m, label) or ()) - found
                found |= more
                work += more
        return found

    def add_node(self, n: int) -> None:
        for label, begin, end in (
            (self.a, self.number[n], self.SINK),
            (self.b, self.SOURCE, self.number[n]),
        ):
            own = self.problem.costs[n][label]
            allowed = own is not None and self._whole(n, label) is not None
            self.network.add(begin, end, own if own is not None and allowed else self.problem.infinite)

    def add_value(self, value: Value) -> None:
        a, b, labels = self.a, self.b, self.labels
        consumers = {self.number[c] for c in value.consumers if c in self.number}
        elsewhere = any(c not in self.number for c in value.consumers)
        if value.producer not in self.number:
            self._any_at_sink(self.SOURCE, consumers, value.up[b])
            self._any_at_source(self.SINK, consumers, value.up[a])
            return
        own = self.number[value.producer]
        consumers.discard(own)
        if elsewhere:
            self.network.add(own, self.SINK, value.down[a])
            self.network.add(self.SOURCE, own, value.down[b])
        more = (0, 0) if elsewhere else (value.down[a], value.down[b])
        self._any_at_sink(own, consumers, value.up[b] + more[0])
        self._any_at_source(own, consumers, value.up[a] + more[1])
        assert labels[value.producer] in (a, b)

    def _any_at_sink(self, producer: int, consumers: Collection[int], cost: int) -> None:
        """A cost if the producer is on the side of the source, and a consumer is not."""
        if cost and consumers:
            copied = self.network.new_node()
            self.network.add(producer, copied, cost)
            for consumer in consumers:
                self.network.add(copied, consumer, self.problem.infinite)

    def _any_at_source(self, producer: int, consumers: Collection[int], cost: int) -> None:
        """A cost if the producer is on the side of the sink, and a consumer is not."""
        if cost and consumers:
            copied = self.network.new_node()
            self.network.add(copied, producer, cost)
            for consumer in consumers:
                self.network.add(consumer, copied, self.problem.infinite)

    def result(self) -> Labels:
        _, side = self.network.min_cut(self.SOURCE, self.SINK)
        found = list(self.labels)
        for n in self.free:
            found[n] = self.a if self.number[n] in side else self.b
        return found


__all__ = ["Labelling", "Value"]
