"""The allocation of the arena: the offset of each request for memory.

Requests whose live ranges do not overlap may share bytes.  Known sizes are placed largest first at the lowest
offset that is free during their live range; symbolic sizes share slots of equal size after them.

A symbolic size with a small upper bound counts as known, with that bound.  Otherwise a detector with one
symbolic dim for each of its classes has offsets that are sums over all of these dims, and proofs about them
take long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.decisions import Decision
from dlc_core.ir.expr import Expr, const, const_value, free_vars, maximum
from dlc_core.passes.heuristics import MEMORY
from dlc_core.support.record import record
from dlc_core.target.description import Description

ALIGN = Description().value_align
"""The default alignment of values in bytes."""
ARENA = Decision(
    "arena.share",
    "In which order values get the lowest free bytes of the arena, or whether each has bytes of its own.",
    ("largest_first", "first_used_first", "separate"),
)
SYMBOLIC = Decision(
    "arena.symbolic",
    "Whether values of symbolic sizes get the bytes of their upper bound, or those that each call needs.",
    ("upper_bound", "exact"),
)


@record(frozen=True)
class Request:
    """Memory of `size` bytes needed from step `first` to step `last`, both included."""

    size: Expr
    first: int
    last: int

    def overlaps(self, other: Request) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan(requests: Sequence[Request], align: int = ALIGN) -> tuple[list[Expr], Expr]:
    """Return the byte offset of each request, and the arena's size; all are multiples of `align`."""
    offsets: list[Expr | None] = [None] * len(requests)
    form = ARENA.choose("largest_first")
    if form == "separate":
        requests = [Request(request.size, 0, 0) for request in requests]
    requests = _bounded(requests)
    total = _allocate_static(requests, offsets, align, in_order=form == "first_used_first")
    size = _allocate_symbolic(requests, offsets, const(total), align)
    return [o for o in offsets if o is not None], size


def live_peak(requests: Sequence[Request], align: int = ALIGN) -> int | None:
    """Return the peak of live bytes, a lower bound of every plan; None if sizes are symbolic."""
    changes: dict[int, int] = {}
    for request in requests:
        size = const_value(request.size)
        if size is None:
            return None
        changes[request.first] = changes.get(request.first, 0) + _rounded(size, align)
        changes[request.last + 1] = changes.get(request.last + 1, 0) - _rounded(size, align)
    peak = live = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def nonnegative_bound(size: Expr) -> Expr:
    """Return an upper bound of max(size, 0).

    The extent of an empty tensor with strides is negative: its last element is before index zero.
    """
    if const_value(size) is not None:
        return const(max(0, const_value(size) or 0))
    analyzer = Analyzer()
    for var in free_vars(size):
        analyzer.declare_dim(var, low=0)
    if analyzer.prove(size >= 0):
        return size
    terms, constant = analyzer.linear(size)
    if not all(analyzer.prove(atom >= 0) for atom in terms):
        return maximum(size, 0)
    # The sum of the positive terms is an upper bound without a `max`, which would complicate proofs and code.
    bound: Expr = const(max(0, constant))
    for atom, factor in terms.items():
        bound = bound + atom * max(0, factor)
    return bound


def _bounded(requests: Sequence[Request]) -> Sequence[Request]:
    """Return the requests with the upper bounds of symbolic sizes that have a small one."""
    bounds = [_small_bound(request.size) for request in requests]
    if all(bound is None for bound in bounds) or SYMBOLIC.choose("upper_bound") == "exact":
        return requests
    return [
        request if bound is None else replace(request, size=const(bound))
        for request, bound in zip(requests, bounds, strict=True)
    ]


def _small_bound(size: Expr) -> int | None:
    """Return the largest value of a symbolic size, if it is at most `MEMORY.bounded_bytes`."""
    if const_value(size) is not None:
        return None
    analyzer = Analyzer()
    for var in free_vars(size):
        analyzer.declare_dim(var, low=0)
    _, high = analyzer.const_bounds(size)
    return max(0, int(high)) if high <= MEMORY.bounded_bytes else None


def _rounded(size: int, align: int) -> int:
    return -(-size // align) * align


def _allocate_static(
    requests: Sequence[Request], offsets: list[Expr | None], align: int, *, in_order: bool
) -> int:
    known = [(value, i) for i, r in enumerate(requests) if (value := const_value(r.size)) is not None]
    live = _LiveRanges(max((request.last for request in requests), default=0) + 1)
    placed: dict[int, tuple[int, int]] = {}
    end = 0
    order = known if in_order else sorted(known, key=lambda item: (-item[0], item[1]))
    for size, i in order:
        size = _rounded(size, align)
        start = 0
        for other_start, other_end in sorted(placed[j] for j in live.overlapping(requests[i])):
            if other_start >= start + size:
                break
            start = max(start, other_end)
        offsets[i] = const(start)
        placed[i] = (start, start + size)
        live.add(i, requests[i])
        end = max(end, start + size)
    return end


class _LiveRanges:
    """A segment tree of live ranges: finds those that overlap another one without a look at the others.

    Node 1 stands for all steps, and nodes 2n and 2n + 1 for the halves of the steps of node n.
    """

    def __init__(self, steps: int) -> None:
        self.leaves = 1 << (steps - 1).bit_length()
        self.covering: dict[int, list[int]] = {}
        """For a node, the ranges whose least cover by nodes has this node."""
        self.below: dict[int, list[int]] = {}
        """For a node, the ranges whose least cover has a node below it."""

    def add(self, number: int, request: Request) -> None:
        above: set[int] = set()
        for n in self._cover(request):
            self.covering.setdefault(n, []).append(number)
            above |= {n >> shift for shift in range(1, n.bit_length())}
        for n in above:
            self.below.setdefault(n, []).append(number)

    def overlapping(self, request: Request) -> set[int]:
        """The numbers of the ranges that were added and overlap a request's."""
        found: set[int] = set()
        for n in self._cover(request):
            found.update(self.below.get(n, ()))
            for shift in range(n.bit_length()):
                found.update(self.covering.get(n >> shift, ()))
        return found

    def _cover(self, request: Request) -> Iterator[int]:
        """Yield the fewest nodes that stand for the steps of a live range."""
        first, end = request.first + self.leaves, request.last + self.leaves + 1
        while first < end:
            if first & 1:
                yield first
                first += 1
            if end & 1:
                end -= 1
                yield end
            first, end = first >> 1, end >> 1


def _allocate_symbolic(
    requests: Sequence[Request], offsets: list[Expr | None], begin: Expr, align: int
) -> Expr:
    """Place requests in slots of equal symbolic size. Requests with disjoint live ranges share a slot.

    Sizes and offsets are simplified, so that equal sizes are one expression. This keeps proofs about slots
    and the code that computes offsets short.
    """
    analyzer = Analyzer()
    slots: list[tuple[Expr, Expr, list[int]]] = []
    for i, request in enumerate(requests):
        if offsets[i] is not None:
            continue
        own_size = analyzer.simplify(request.size)
        for size, offset, members in slots:
            if size is own_size and not any(request.overlaps(requests[j]) for j in members):
                members.append(i)
                offsets[i] = offset
                break
        else:
            offsets[i] = begin
            slots.append((own_size, begin, [i]))
            begin = analyzer.simplify(begin + (own_size + (align - 1)) // align * align)
    return begin
