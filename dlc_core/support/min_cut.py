"""Minimum cuts of networks with integer capacities, by Dinic's algorithm [1].

    network = Network(4)
    network.add(0, 1, 3)
    value, side = network.min_cut(0, 3)         side: the nodes on the side of the source

[1] Dinic: Algorithm for solution of a problem of maximum flow in networks with power estimation, Soviet
Mathematics Doklady 11, 1970.
"""

from __future__ import annotations

from collections import deque


class Network:
    """A directed network of numbered nodes. Arcs may be parallel."""

    def __init__(self, nodes: int = 0) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(nodes)]
        """The arcs that leave each node; arc k and k ^ 1 are the two directions of one."""
        self._to: list[int] = []
        self._capacity: list[int] = []

    def new_node(self) -> int:
        """Add a node; return its number."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def add(self, source: int, to: int, capacity: int) -> None:
        """Add an arc with a capacity of at least 0."""
        for begin, end, size in ((source, to, capacity), (to, source, 0)):
            self._arcs[begin].append(len(self._to))
            self._to.append(end)
            self._capacity.append(size)

    def min_cut(self, source: int, sink: int) -> tuple[int, set[int]]:
        """Return the capacity of a minimum cut, and the nodes on the side of the source: the fewest of all
        minimum cuts. It uses up the capacities.
        """
        total = 0
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return total, {n for n, depth in enumerate(level) if depth >= 0}
            total += self._blocking_flow(source, sink, level)

    def _levels(self, source: int) -> list[int]:
        """The distance of each node from the source along arcs with capacity; -1 if there is no path."""
        level = [-1] * len(self._arcs)
        level[source] = 0
        work = deque([source])
        while work:
            n = work.popleft()
            for arc in self._arcs[n]:
                to = self._to[arc]
                if self._capacity[arc] and level[to] < 0:
                    level[to] = level[n] + 1
                    work.append(to)
        return level

    def _blocking_flow(self, source: int, sink: int, level: list[int]) -> int:
        """Send flow along shortest paths until none is left; return its size."""
        total = 0
        position = [0] * len(self._arcs)
        path: list[int] = []
        n = source
        while True:
            if n == sink:
                size = min(self._capacity[arc] for arc in path)
                total += size
                for arc in path:
                    self._capacity[arc] -= size
                    self._capacity[arc ^ 1] += size
                first_full = next(i for i, arc in enumerate(path) if not self._capacity[arc])
                n = self._to[path[first_full] ^ 1]
                del path[first_full:]
                continue
            arcs = self._arcs[n]
            while position[n] < len(arcs):
                arc = arcs[position[n]]
                if self._capacity[arc] and level[self._to[arc]] == level[n] + 1:
                    break
                position[n] += 1
            if position[n] < len(arcs):
                path.append(arcs[position[n]])
                n = self._to[path[-1]]
            elif path:
                n = self._to[path.pop() ^ 1]
                position[n] += 1
            else:
                return total


__all__ = ["Network"]
