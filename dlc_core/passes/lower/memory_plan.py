"""The memory plan of a function: its steps in order, and the position of each of their values.

    print(plan_memory(steps_of(function, spaces, overwrites)))    # a table: value, bytes, offset, live range

A step is a kernel call or control flow. A result is in the caller's memory, in a window of another value, in
the memory of an input that is no longer read, or in the arena from its first write to its last read.
Workspaces are live during their step. The functions of this module are pure; `lower.entry` emits the function
according to the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from types import MappingProxyType

from dlc_core.cancel import checkpoint
from dlc_core.decisions import Decision
from dlc_core.diag import UsageError
from dlc_core.graph.node import CALL_PRIM, PARAM, Function, Node, post_order
from dlc_core.graph.updates import updates_of
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, as_expr, const, const_value
from dlc_core.ir.types import TensorType
from dlc_core.op.std.bands import BAND, JOIN_BANDS, band_offset, join_offsets
from dlc_core.passes.lower.arena import ALIGN, Request, live_peak, nonnegative_bound, plan
from dlc_core.passes.lower.control import is_step
from dlc_core.passes.lower.joins import TensorRef, Windows, donations_of, joins_of, windows_of
from dlc_core.passes.lower.order import depth_first, reordered
from dlc_core.passes.lower.results import is_written, results_of
from dlc_core.passes.lower.takeover import takeover
from dlc_core.passes.lower.views import origin, result_types
from dlc_core.support.record import record

ORDER = Decision(
    "steps.order",
    "In which topological order the kernels of a function run.",
    ("given", "least_memory", "depth_first"),
)
RESULT = Decision(
    "results.memory",
    "Whether a kernel's result reuses the memory of an input after its last read, or has its own memory.",
    ("over_input", "own"),
)

Allocate = Callable[[Sequence[Request]], tuple[list[Expr], Expr]]
"""The byte offset of each request, and the bytes of all."""


@record(frozen=True)
class Steps:
    """The input of memory planning: the steps of a function, and constraints on their memory."""

    function: Function
    order: tuple[Node, ...]
    """The steps in the given order."""
    workspaces: Mapping[Node, Sequence[Buffer]]
    """The workspaces of each step."""
    overwrites: Mapping[Node, Sequence[tuple[int, int]]]
    """For kernel calls: pairs of an input and an output that may share memory, as parameter indices."""
    results: tuple[TensorRef, ...]
    """The results of the function, which are in the caller's memory."""
    windows: Windows
    """Tensors that are strided windows of other tensors."""
    parts: Mapping[TensorRef, tuple[TensorRef, int]]
    """Tensors that are part of another one, with that one and the offset in it, in elements."""
    keeps_order: bool = False
    """Whether the steps keep the given order."""
    taken: Mapping[TensorRef, TensorRef] = field(default_factory=dict)
    """New values of updated inputs, which are in the memory of another value: the input, or an older value of
    it."""

    def root(self, tensor: TensorRef) -> tuple[TensorRef, int]:
        """Return the tensor whose memory contains a tensor, and the offset in elements."""
        tensor, offset = self.whole(tensor)
        while tensor in self.taken:
            tensor, more = self.whole(self.taken[tensor])
            offset += more
        return tensor, offset

    def whole(self, tensor: TensorRef) -> tuple[TensorRef, int]:
        """Return the tensor that a tensor is a part of, itself if it is none, and the offset in elements."""
        offset = 0
        while True:
            if tensor in self.parts:
                tensor, more = self.parts[tensor]
            elif tensor[0].op is BAND:
                more, tensor = band_offset(tensor[0]) or 0, origin(tensor[0].args[0])
            else:
                return tensor, offset
            offset += more


@record(frozen=True)
class Allocation:
    """A tensor or a workspace in the arena: its bytes, its live range, and its offset in bytes."""

    owner: TensorRef | Buffer
    request: Request
    offset: Expr

    @property
    def name(self) -> str:
        return self.owner.name if isinstance(self.owner, Buffer) else name_of(self.owner[0])


@record(frozen=True)
class MemoryPlan:
    """The memory of a function's values; `str` returns the table."""

    steps: Steps
    order: tuple[Node, ...]
    """The steps in the order in which they run."""
    allocations: tuple[Allocation, ...]
    size: Expr
    """Bytes of the arena."""
    reuses: Mapping[TensorRef, TensorRef]
    """Results that reuse the memory of another value, with the first value of that memory."""
    last: Mapping[TensorRef, int]
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
            (name_of(tensor[0]), "", f"over {name_of(first[0])}", "") for tensor, first in self.reuses.items()
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        table = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([head, *table])


def steps_of(
    function: Function,
    workspaces: Mapping[Node, Sequence[Buffer]],
    overwrites: Mapping[Node, Sequence[tuple[int, int]]],
    *,
    in_place: Mapping[Node, Sequence[tuple[int, int]]] = MappingProxyType({}),
    keeps_order: bool = False,
) -> Steps:
    """Collect the steps of a lowered function. `in_place` are pairs that must share memory.

    Raises UsageError if a result has no kernel of its own.
    """
    nodes = list(post_order(function.body))
    parts = {
        (arg, 0): ((n, 0), offset)
        for n in nodes
        if n.op is JOIN_BANDS
        for arg, offset in zip(n.args, join_offsets(n) or (), strict=True)
    }
    windows = windows_of(function)
    results: list[TensorRef] = []
    for value in results_of(function):
        tensor = origin(value)
        # A result in a donated input's memory is a window; the caller passes that memory.
        if tensor in results or not (tensor in windows or is_written(tensor[0])):
            raise UsageError("a result has no kernel of its own", hint="run the pass copy_results first")
        results.append(tensor)
    if updates_of(function):
        found = takeover(function, in_place, overwrites, windows)
        return Steps(
            function, found.order, workspaces, overwrites, tuple(results), windows, parts, True, found.memory
        )
    order = tuple(n for n in nodes if is_step(n))
    fixed = keeps_order or bool(donations_of(function))
    return Steps(function, order, workspaces, overwrites, tuple(results), windows, parts, fixed)


def plan_memory(steps: Steps, align: int = ALIGN, allocate: Allocate | None = None) -> MemoryPlan:
    """Plan memory for the tried order of steps that needs the least memory.

    Values begin at multiples of `align` bytes. `allocate` replaces the allocator that shares bytes.
    """
    allocator = partial(plan, align=align) if allocate is None else allocate
    given = plan_in_order(steps, steps.order, align, allocator)
    if steps.keeps_order:
        return given
    plans = {"given": given}
    other = reordered(steps.order, steps.function.body, partial(_step_bytes, steps))
    preferred = "given"
    if other is not None:
        plans["least_memory"] = plan_in_order(steps, other, align, allocator)
        if (const_value(plans["least_memory"].size) or 0) < (const_value(given.size) or 0):
            preferred = "least_memory"
    chosen = ORDER.choose(preferred, ORDER.alternatives if other else ("given", "depth_first"))
    if chosen in plans:
        return plans[chosen]
    return plan_in_order(steps, depth_first(steps.order, steps.function.body), align, allocator)


def plan_in_order(steps: Steps, order: Sequence[Node], align: int, allocate: Allocate) -> MemoryPlan:
    """Plan memory for one order of the steps."""
    last = last_reads(steps, order)
    reuses = results_in_place(steps, order, last)
    number = {n: i for i, n in enumerate(order)}
    for tensor, first in reuses.items():
        last[first] = max(last[first], last.get(tensor, number[tensor[0]]))
    owners, requests = requests_of(steps, order, last, reuses)
    offsets, size = allocate(requests)
    allocations = tuple(map(Allocation, owners, requests, offsets))
    return MemoryPlan(steps, tuple(order), allocations, size, reuses, last, align)


def last_reads(steps: Steps, order: Sequence[Node]) -> dict[TensorRef, int]:
    """Return the last step that reads each tensor; for results, the number of steps."""
    last: dict[TensorRef, int] = {}
    for number, n in enumerate(order):
        checkpoint()
        for arg in n.args:
            for tensor in tensors_of(arg):
                last[steps.root(tensor)[0]] = number
    for result in steps.function.results:
        for tensor in tensors_of(result):
            last[steps.root(tensor)[0]] = len(order)
    return last


def results_in_place(
    steps: Steps, order: Sequence[Node], last: Mapping[TensorRef, int]
) -> dict[TensorRef, TensorRef]:
    """Return the results that reuse the memory of an input of their kernel after its last read.

    The kernel has to allow it in its attribute `overwrites`.
    """
    reuses: dict[TensorRef, TensorRef] = {}
    number = {n: i for i, n in enumerate(order)}
    excluded = {*steps.results, *steps.windows, *steps.parts, *steps.taken}
    for step, n in enumerate(order):
        given = [tensor for arg in n.args for tensor in tensors_of(arg)]
        roots = [steps.root(tensor)[0] for tensor in given]
        for source, output in steps.overwrites.get(n, ()):
            tensor, result = given[source], (n, output - len(given))
            if result in reuses or {tensor, result} & excluded:
                continue
            if tensor[0] not in number or last[tensor] != step or roots.count(tensor) != 1:
                continue
            if RESULT.choose("over_input", where=f"{step} {source} {output}") == "over_input":
                reuses[result] = reuses.get(tensor, tensor)
                excluded.add(tensor)
    return reuses


def requests_of(
    steps: Steps, order: Sequence[Node], last: Mapping[TensorRef, int], reuses: Mapping[TensorRef, TensorRef]
) -> tuple[list[TensorRef | Buffer], list[Request]]:
    """Return the arena's requests with their owners. Results live until their last read, workspaces in their
    step."""
    found: dict[TensorRef | Buffer, Request] = {}
    number = {n: i for i, n in enumerate(order)}
    placed = {*steps.results, *steps.windows, *reuses}
    for join in joins_of(steps.function):
        if (join, 0) not in placed:
            parts = [tensor for arg in join.args for tensor in tensors_of(arg)]
            begin = min(number[value] for value, _ in parts)
            end = max(last.get(tensor, begin) for tensor in ((join, 0), *parts))
            found[join, 0] = Request(size_of(join.tensor_type), begin, end)
    for step, n in enumerate(order):
        for result in tensors_of(n):
            tensor, _ = steps.root(result)
            if tensor not in placed and tensor not in found and tensor[0].op is not PARAM:
                found[tensor] = Request(size_of(type_of(tensor)), step, last.get(tensor, step))
        for space in steps.workspaces[n]:
            found[space] = Request(nonnegative_bound(bytes_of(space)), step, step)
    return list(found), list(found.values())


def _step_bytes(steps: Steps, n: Node) -> tuple[int, int] | None:
    """Return the arena bytes of a step's results and of its workspaces, if known."""
    results = [size_of(type_of(tensor)) for tensor in tensors_of(n) if tensor not in steps.results]
    found = [const_value(size) for size in (*results, *map(bytes_of, steps.workspaces[n]))]
    known = [size for size in found if size is not None]
    return None if len(known) < len(found) else (sum(known[: len(results)]), sum(known[len(results) :]))


def tensors_of(value: Node) -> list[TensorRef]:
    """Return the tensors of a value's outputs."""
    return [origin(value, i) for i in range(len(result_types(value)))]


def type_of(tensor: TensorRef) -> TensorType:
    """Return the type of a tensor."""
    return result_types(tensor[0])[tensor[1]]


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
