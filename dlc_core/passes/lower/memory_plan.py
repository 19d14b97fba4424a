"""The memory plan of a function: its steps in order, and the position of each of their values.

    print(plan_memory(steps_of(function, spaces, overwrites)))    # a table: value, bytes, offset, live range

A step is a kernel call or control flow. A result is in the caller's memory, in a window of another value, in
the memory of an input that is no longer read, or in the arena from its first write to its last read.
Workspaces are live during their step. The functions of this module are pure; `lower.entry` emits the function
according to the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from dlc_core.decisions import Decision
from dlc_core.diag import UsageError
from dlc_core.graph.node import CALL_PRIM, Function, Node, post_order
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, as_expr, const, const_value
from dlc_core.ir.types import TensorType
from dlc_core.op.std.bands import BAND, JOIN_BANDS, band_offset, join_offsets
from dlc_core.passes.lower.arena import ALIGN, Request, live_peak, plan, room
from dlc_core.passes.lower.control import is_step
from dlc_core.passes.lower.joins import Place, Windows, donations_of, joins_of, windows_of
from dlc_core.passes.lower.order import depth_first, reordered
from dlc_core.passes.lower.results import is_written, results_of
from dlc_core.passes.lower.views import origin, result_types
from dlc_core.support.record import record

ORDER = Decision(
    "steps.order",
    "In which order the kernels of a function run, of those in which each follows what it reads.",
    ("given", "least_memory", "depth_first"),
)
RESULT = Decision(
    "results.memory",
    "Whether a kernel's result lies where an input does that nothing reads any more, or has its own memory.",
    ("over_input", "own"),
)

Allocate = Callable[[Sequence[Request]], tuple[list[Expr], Expr]]
"""The byte offset of each request, and the bytes of all."""


@record(frozen=True)
class Steps:
    """The input of memory planning: the steps of a function, and what fixes where their values lie."""

    function: Function
    order: tuple[Node, ...]
    """The steps in the given order."""
    spaces: Mapping[Node, Sequence[Buffer]]
    """The workspaces of each step."""
    overwrites: Mapping[Node, Sequence[tuple[int, int]]]
    """Of kernel calls: pairs of an input and an output that may be one memory, as numbers of parameters."""
    direct: tuple[Place, ...]
    """The results of the function, which lie in the caller's memory."""
    windows: Windows
    """Tensors that are strided windows of other tensors."""
    inside: Mapping[Place, tuple[Place, int]]
    """Tensors that are computed inside of another, and at which of its elements they begin."""
    ordered: bool = False
    """Whether the steps keep the given order."""

    def whole(self, place: Place) -> tuple[Place, int]:
        """Return the tensor whose memory contains a tensor, and the offset in elements."""
        offset = 0
        while True:
            if place in self.inside:
                place, more = self.inside[place]
            elif place[0].op is BAND:
                more, place = band_offset(place[0]) or 0, origin(place[0].args[0])
            else:
                return place, offset
            offset += more


@record(frozen=True)
class Allocation:
    """A tensor or a workspace in the arena: its bytes, its live range, and its offset in bytes."""

    owner: Place | Buffer
    request: Request
    offset: Expr

    @property
    def name(self) -> str:
        return self.owner.name if isinstance(self.owner, Buffer) else name_of(self.owner[0])


@record(frozen=True)
class MemoryPlan:
    """Where the values of a function lie; `str` gives the table."""

    steps: Steps
    order: tuple[Node, ...]
    """The steps in the order in which they run."""
    allocations: tuple[Allocation, ...]
    size: Expr
    """Bytes of the arena."""
    over: Mapping[Place, Place]
    """Results that reuse the memory of another value, with the first value of that memory."""
    last: Mapping[Place, int]
    """The last step that reads a tensor; the number of steps for results of the function."""
    align: int = ALIGN

    @cached_property
    def live_peak(self) -> int | None:
        """Return the peak of live bytes over all steps; None if sizes are symbolic."""
        return live_peak([one.request for one in self.allocations], self.align)

    def shifted(self, begin: int) -> MemoryPlan:
        """Return the plan with `begin` bytes before all values."""
        moved = tuple(replace(one, offset=one.offset + begin) for one in self.allocations)
        return replace(self, allocations=moved, size=self.size + begin)

    def __str__(self) -> str:
        head = f"{len(self.order)} steps, {self.size} bytes"
        rows = [("value", "bytes", "offset", "steps")]
        rows += [
            (one.name, str(one.request.size), str(one.offset), f"{one.request.first}-{one.request.last}")
            for one in self.allocations
        ]
        rows += [
            (name_of(place[0]), "", f"over {name_of(first[0])}", "") for place, first in self.over.items()
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        table = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([head, *table])


def steps_of(
    function: Function,
    spaces: Mapping[Node, Sequence[Buffer]],
    overwrites: Mapping[Node, Sequence[tuple[int, int]]],
    *,
    ordered: bool = False,
) -> Steps:
    """Collect the steps of a lowered function. Raises UsageError if a result has no kernel of its own."""
    nodes = list(post_order(function.body))
    inside = {
        (arg, 0): ((n, 0), offset)
        for n in nodes
        if n.op is JOIN_BANDS
        for arg, offset in zip(n.args, join_offsets(n) or (), strict=True)
    }
    windows = windows_of(function)
    direct: list[Place] = []
    for value in results_of(function):
        place = origin(value)
        # A result in a donated input's memory is a window; the caller passes that memory.
        if place in direct or not (place in windows or is_written(place[0])):
            raise UsageError(
                "a result is not what a kernel of its own writes", hint="run the pass copy_results first"
            )
        direct.append(place)
    order = tuple(n for n in nodes if is_step(n))
    fixed = ordered or bool(donations_of(function))
    return Steps(function, order, spaces, overwrites, tuple(direct), windows, inside, fixed)


def plan_memory(steps: Steps, align: int = ALIGN, allocate: Allocate | None = None) -> MemoryPlan:
    """Plan memory for the tried order of steps that needs the least memory.

    Values begin at multiples of `align` bytes. `allocate` replaces the allocator that shares bytes.
    """
    taken = partial(plan, align=align) if allocate is None else allocate
    given = plan_in_order(steps, steps.order, align, taken)
    if steps.ordered:
        return given
    plans = {"given": given}
    other = reordered(steps.order, steps.function.body, partial(_step_bytes, steps))
    preferred = "given"
    if other is not None:
        plans["least_memory"] = plan_in_order(steps, other, align, taken)
        if (const_value(plans["least_memory"].size) or 0) < (const_value(given.size) or 0):
            preferred = "least_memory"
    chosen = ORDER.choose(preferred, ORDER.alternatives if other else ("given", "depth_first"))
    if chosen in plans:
        return plans[chosen]
    return plan_in_order(steps, depth_first(steps.order, steps.function.body), align, taken)


def plan_in_order(steps: Steps, order: Sequence[Node], align: int, allocate: Allocate) -> MemoryPlan:
    """Plan memory for one order of the steps."""
    last = last_reads(steps, order)
    over = results_over_inputs(steps, order, last)
    number = {n: i for i, n in enumerate(order)}
    for place, first in over.items():
        last[first] = max(last[first], last.get(place, number[place[0]]))
    owners, requests = requests_of(steps, order, last, over)
    offsets, size = allocate(requests)
    allocations = tuple(map(Allocation, owners, requests, offsets))
    return MemoryPlan(steps, tuple(order), allocations, size, over, last, align)


def last_reads(steps: Steps, order: Sequence[Node]) -> dict[Place, int]:
    """Return the last step that reads each tensor; for results, the number of steps."""
    last: dict[Place, int] = {}
    for number, n in enumerate(order):
        for arg in n.args:
            for place in places_of(arg):
                last[steps.whole(place)[0]] = number
    for result in steps.function.results:
        for place in places_of(result):
            last[steps.whole(place)[0]] = len(order)
    return last


def results_over_inputs(steps: Steps, order: Sequence[Node], last: Mapping[Place, int]) -> dict[Place, Place]:
    """Return the results that reuse the memory of an input of their kernel after its last read.

    The kernel has to allow it in its attribute `overwrites`.
    """
    over: dict[Place, Place] = {}
    number = {n: i for i, n in enumerate(order)}
    apart = {*steps.direct, *steps.windows, *steps.inside}
    for now, n in enumerate(order):
        given = [place for arg in n.args for place in places_of(arg)]
        wholes = [steps.whole(place)[0] for place in given]
        for source, output in steps.overwrites.get(n, ()):
            place, result = given[source], (n, output - len(given))
            dies = place[0] in number and last[place] == now and wholes.count(place) == 1
            if not dies or result in over or {place, result} & apart:
                continue
            if RESULT.choose("over_input", where=f"{now} {source} {output}") == "over_input":
                over[result] = over.get(place, place)
                apart.add(place)
    return over


def requests_of(
    steps: Steps, order: Sequence[Node], last: Mapping[Place, int], over: Mapping[Place, Place]
) -> tuple[list[Place | Buffer], list[Request]]:
    """Return the arena's requests with their owners. Results live until their last read, workspaces in their
    step."""
    found: dict[Place | Buffer, Request] = {}
    number = {n: i for i, n in enumerate(order)}
    elsewhere = {*steps.direct, *steps.windows, *over}
    for join in joins_of(steps.function):
        if (join, 0) not in elsewhere:
            held = [place for arg in join.args for place in places_of(arg)]
            begin = min(number[value] for value, _ in held)
            end = max(last.get(place, begin) for place in ((join, 0), *held))
            found[join, 0] = Request(size_of(join.tensor_type), begin, end)
    for now, n in enumerate(order):
        for result in places_of(n):
            place, _ = steps.whole(result)
            if place not in elsewhere and place not in found:
                found[place] = Request(size_of(type_of(place)), now, last.get(place, now))
        for space in steps.spaces[n]:
            found[space] = Request(room(bytes_of(space)), now, now)
    return list(found), list(found.values())


def _step_bytes(steps: Steps, n: Node) -> tuple[int, int] | None:
    """Return the arena bytes of a step's results and of its workspaces, if known."""
    results = [size_of(type_of(place)) for place in places_of(n) if place not in steps.direct]
    found = [const_value(size) for size in (*results, *map(bytes_of, steps.spaces[n]))]
    known = [size for size in found if size is not None]
    return None if len(known) < len(found) else (sum(known[: len(results)]), sum(known[len(results) :]))


def places_of(value: Node) -> list[Place]:
    """Return the tensors of a value's outputs."""
    return [origin(value, i) for i in range(len(result_types(value)))]


def type_of(place: Place) -> TensorType:
    """Return the type of a tensor."""
    return result_types(place[0])[place[1]]


def name_of(n: Node) -> str:
    """Return the name of a step's result, which is the name of its kernel."""
    name: str = n.attrs["symbol"] if n.op is CALL_PRIM else n.op.name
    return name.removeprefix("fused_")


def bytes_of(buffer: Buffer) -> Expr:
    """Return the bytes of a buffer's elements."""
    return buffer.num_elements() * buffer.dtype.itemsize


def size_of(type_: TensorType) -> Expr:
    """Return the bytes of a tensor of a type."""
    total: Expr = const(type_.dtype.itemsize)
    for dim in type_.shape:
        total = as_expr(dim) * total
    return total
