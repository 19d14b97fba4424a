"""The order of steps where some write over the memory of a value that other steps read.

A step that overwrites a value must run after all other readers of this value (a write after read). These
constraints come in addition to the data dependences. `Hazards` adds them one writer at a time, and refuses a
writer whose readers depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

from dlc_core.graph.node import Node, post_order
from dlc_core.op.std.bands import BAND
from dlc_core.passes.lower.views import origin, result_types

TensorRef = tuple[Node, int]


class Hazards:
    """The dependences between steps of a function: `steps` are its steps in a valid order."""

    def __init__(self, body: Node, steps: Sequence[Node]) -> None:
        self.steps = steps
        self._after: dict[Node, set[Node]] = {step: set() for step in steps}
        """The steps that must run after each step."""
        self.readers: dict[TensorRef, list[Node]] = {}
        """The steps that read each tensor, in order."""
        sources: dict[Node, frozenset[Node]] = {}
        known = set(steps)
        for n in post_order(body):
            found = frozenset[Node]().union(*(sources[arg] for arg in n.args))
            if n in known:
                for source in found:
                    self._after[source].add(n)
                found = frozenset([n])
                for tensor in dict.fromkeys(t for arg in n.args for t in tensors_read(arg)):
                    self.readers.setdefault(tensor, []).append(n)
            sources[n] = found

    def overwrite(self, tensor: TensorRef, writer: Node) -> bool:
        """Require that `writer` runs after all other readers of a tensor. Returns False, and requires
        nothing, if one of them depends on it.
        """
        others = [reader for reader in self.readers.get(tensor, ()) if reader is not writer]
        if not self._reachable(writer).isdisjoint(others):
            return False
        for reader in others:
            self._after[reader].add(writer)
        return True

    def copy(self) -> Hazards:
        """A copy, to which constraints can be added on trial."""
        made = object.__new__(Hazards)
        made.steps, made.readers = self.steps, self.readers
        made._after = {step: set(later) for step, later in self._after.items()}
        return made

    def order(self, left_out: Collection[Node] = ()) -> list[Node]:
        """The steps in an order that satisfies all constraints, as close to the given one as possible."""
        number = {step: i for i, step in enumerate(self.steps)}
        missing = dict.fromkeys(self.steps, 0)
        for later in self._after.values():
            for step in later:
                missing[step] += 1
        ready = [number[step] for step, count in missing.items() if not count]
        heapify(ready)
        found: list[Node] = []
        while ready:
            step = self.steps[heappop(ready)]
            found.append(step)
            for other in self._after[step]:
                missing[other] -= 1
                if not missing[other]:
                    heappush(ready, number[other])
        assert len(found) == len(self.steps), "steps wait for each other"
        return [step for step in found if step not in left_out]

    def _reachable(self, first: Node) -> set[Node]:
        """The steps that must run after a step."""
        found: set[Node] = set()
        work = [first]
        while work:
            for step in self._after[work.pop()] - found:
                found.add(step)
                work.append(step)
        return found


def tensors_read(value: Node) -> list[TensorRef]:
    """The tensors whose memory a step reads when it reads a value."""
    return [memory_of(value, index) for index in range(len(result_types(value)))]


def memory_of(value: Node, index: int = 0) -> TensorRef:
    """The tensor that contains output `index` of a value. Views and bands are inside of another tensor."""
    tensor = origin(value, index)
    while tensor[0].op is BAND:
        tensor = origin(tensor[0].args[0])
    return tensor


__all__ = ["Hazards", "memory_of", "tensors_read"]
