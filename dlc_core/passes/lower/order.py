"""Orders of steps with low peak memory.

Any topological order of the steps is correct. The peak memory differs if values have several readers or
branches join. Finding the best order is NP-hard (Sethi, "Complete register allocation problems", 1975), so
this module uses beam search: it extends the few best partial orders step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

from dlc_core.cancel import checkpoint
from dlc_core.graph.node import Node, post_order
from dlc_core.passes.heuristics import MEMORY
from dlc_core.support.record import record


@record(frozen=True)
class Work:
    """The inputs and the output of a step, by step numbers; all of `reads` are smaller than its own."""

    reads: tuple[int, ...]
    """Steps whose results it reads."""
    result_bytes: int
    """Bytes of its results."""
    scratch_bytes: int = 0
    """Bytes that it needs while it runs."""
    kept: bool = False
    """Whether its results are never freed."""


def reordered(
    steps: Sequence[Node], body: Node, sizes: Callable[[Node], tuple[int, int] | None]
) -> list[Node] | None:
    """Reorder the steps of a function for clearly lower peak memory; None if no such order is found.

    `sizes` returns the bytes of a step's results and of its scratch memory, or None if they are symbolic. The
    steps are not reordered then.
    """
    number = {n: i for i, n in enumerate(steps)}
    sources: dict[Node, frozenset[int]] = {}
    reads: dict[Node, tuple[int, ...]] = {}
    for n in post_order(body):
        found = frozenset().union(*(sources[arg] for arg in n.args))
        if n in number:
            reads[n] = tuple(sorted(found))
            found = frozenset([number[n]])
        sources[n] = found
    works = []
    for n in steps:
        size = sizes(n)
        if size is None:
            return None
        works.append(Work(reads[n], *size, kept=number[n] in sources[body]))
    order = better_order(works)
    return None if order is None else [steps[i] for i in order]


def depth_first(steps: Sequence[Node], body: Node) -> list[Node]:
    """Return the steps of a function in depth-first order: values that are read last are computed first."""
    selected, found = set(steps), []
    work: list[tuple[Node, bool]] = [(body, False)]
    seen: set[Node] = set()
    while work:
        n, ready = work.pop()
        if ready:
            found.append(n)
        elif n not in seen:
            seen.add(n)
            work.append((n, True))
            work += [(arg, False) for arg in n.args]  # the last one is popped first
    return [n for n in found if n in selected]


def better_order(steps: Sequence[Work]) -> list[int] | None:
    """Return an order with clearly lower peak memory than the given one, if one is found."""
    readers: list[list[int]] = [[] for _ in steps]
    for number, step in enumerate(steps):
        for read in step.reads:
            readers[read].append(number)
    if all(step.reads == (number - 1,) for number, step in enumerate(steps) if number):
        return None  # a chain has one order
    found = _beam(steps, readers, max(1, min(MEMORY.beam, MEMORY.effort // len(steps))))
    given = live_bytes(steps, range(len(steps)))
    divisor = MEMORY.gain_divisor
    return found if live_bytes(steps, found) * divisor < given * (divisor - 1) else None


def live_bytes(steps: Sequence[Work], order: Sequence[int]) -> int:
    """Return the peak of live bytes over the steps of an order."""
    readers_left = _reader_counts(steps)
    live = peak = 0
    for number in order:
        step = steps[number]
        peak = max(peak, live + step.result_bytes + step.scratch_bytes)
        live += step.result_bytes - _freed(steps, number, readers_left)
        for read in step.reads:
            readers_left[read] -= 1
    return peak


def _reader_counts(steps: Sequence[Work]) -> list[int]:
    """Return the number of steps that read each step's results, plus one if they are kept."""
    counts = [int(step.kept) for step in steps]
    for step in steps:
        for read in step.reads:
            counts[read] += 1
    return counts


def _freed(steps: Sequence[Work], number: int, readers_left: Sequence[int]) -> int:
    """Return the bytes that are freed after a step, given the remaining readers of each value."""
    step = steps[number]
    own = step.result_bytes if readers_left[number] == 0 else 0
    return own + sum(steps[read].result_bytes for read in step.reads if readers_left[read] == 1)


class _Prefix:
    """The first steps of an order: their peak of live bytes, the live bytes after them, and what may follow.

    `last` is the last step with the prefix before it. `ready` has the steps whose arguments are computed,
    those that became ready last at the end. `missing` counts the arguments of each step that are not
    computed, and `readers_left` the steps that still read its results.
    """

    __slots__ = ("key", "last", "live", "missing", "peak", "readers_left", "ready")

    def __init__(
        self, ready: list[int], missing: list[int], readers_left: list[int], peak: int = 0, live: int = 0
    ) -> None:
        self.ready, self.missing, self.readers_left = ready, missing, readers_left
        self.peak, self.live = peak, live
        self.key = 0
        self.last: tuple[int, _Last] | None = None

    def copy(self) -> _Prefix:
        made = _Prefix([*self.ready], [*self.missing], [*self.readers_left], self.peak, self.live)
        made.key, made.last = self.key, self.last
        return made

    def append(self, steps: Sequence[Work], readers: Sequence[Sequence[int]], chosen: _Next) -> None:
        """Add a step at the end."""
        number = chosen.number
        for read in steps[number].reads:
            self.readers_left[read] -= 1
        del self.ready[chosen.place]
        for reader in readers[number]:
            self.missing[reader] -= 1
            if not self.missing[reader]:
                self.ready.append(reader)
        self.peak, self.live, self.key = chosen.peak, chosen.live, chosen.key
        self.last = (number, self.last)


_Last = tuple[int, "_Last"] | None


class _Next(NamedTuple):
    """A step that may follow a prefix: its place among those that are ready, and the prefix after it."""

    peak: int
    live: int
    key: int
    prefix: int
    place: int
    number: int


def _beam(steps: Sequence[Work], readers: Sequence[Sequence[int]], width: int) -> list[int]:
    """Find an order by beam search: after each step, keep the `width` best prefixes."""
    missing = [len(step.reads) for step in steps]
    first = [number for number, count in enumerate(missing) if count == 0]
    beam = [_Prefix(first, missing, _reader_counts(steps))]
    keys = [_key(number) for number in range(len(steps))]
    for _ in steps:
        checkpoint()
        found: dict[int, _Next] = {}
        for index, prefix in enumerate(beam):
            for after in _continuations(steps, keys, prefix, index):
                # Prefixes with equal sets of steps have equal continuations: keep the best one.
                other = found.get(after.key)
                if other is None or after.peak < other.peak:
                    found[after.key] = after
        best = sorted(found.values(), key=lambda one: one[:2])[:width]
        uses = Counter(one.prefix for one in best)
        extended = []
        for one in best:
            uses[one.prefix] -= 1
            # The last continuation of a prefix takes its lists, which saves a copy.
            prefix = beam[one.prefix].copy() if uses[one.prefix] else beam[one.prefix]
            prefix.append(steps, readers, one)
            extended.append(prefix)
        beam = extended
    order, last = [], beam[0].last
    while last is not None:
        number, last = last
        order.append(number)
    return order[::-1]


def _continuations(
    steps: Sequence[Work], keys: Sequence[int], prefix: _Prefix, index: int
) -> Iterator[_Next]:
    """Yield the steps that may follow a prefix: of many, those that became ready first and last."""
    count, half = len(prefix.ready), MEMORY.tried // 2
    places = range(count) if count <= 2 * half else chain(range(half), range(count - half, count))
    for place in places:
        number = prefix.ready[place]
        step = steps[number]
        peak = prefix.live + step.result_bytes + step.scratch_bytes
        live = prefix.live + step.result_bytes - _freed(steps, number, prefix.readers_left)
        yield _Next(max(prefix.peak, peak), live, prefix.key ^ keys[number], index, place, number)


def _key(number: int) -> int:
    """Return a hash of 64 bits of a step. The exclusive or over a set of steps is the key of the set."""
    return int.from_bytes(blake2b(number.to_bytes(8, "little"), digest_size=8).digest(), "little")


__all__ = ["Work", "better_order", "depth_first", "live_bytes", "reordered"]
