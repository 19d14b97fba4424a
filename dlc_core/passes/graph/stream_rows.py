"""stream_rows: depth-first tiling of the first layers of a convolutional network, in bands of a few rows.

Law: the function computes the same bits.

    y = conv(relu(conv(x)))
    =>   y = join_bands(conv(relu(conv(x[rows 0–6]))), conv(relu(conv(x[rows 2–8]))), …)

The large values near the input are never stored completely, but only their rows for one band of the streamed
part's result. The band is written directly to its final position. Halo rows between two bands
are computed for both. This is the patch-based inference of MCUNetV2 (Lin et al., 2021), with bands of whole
rows, which need no copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dlc_core.decisions import Decision, unrecorded
from dlc_core.graph.node import CONST, PARAM, Function, Node, post_order, rewrite, spanned
from dlc_core.ir.expr import const_value
from dlc_core.ir.types import TensorType
from dlc_core.op.std.bands import JOIN_BANDS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.grouping import Grouping, group_nodes
from dlc_core.passes.graph.halo import WINDOWED, Rows, all_rows, input_rows, on_rows, row_axis, rows_of
from dlc_core.passes.graph.node_kinds import VIEWS
from dlc_core.passes.heuristics import STREAMS
from dlc_core.support.record import record

SETTING = "stream_rows"
"""Name of the setting, and, with a hyphen, of the option of targets: rows of a band; 0 streams nothing."""
PART = Decision(
    "stream_rows.part",
    "Whether the first layers are computed in bands, if bands are enabled, and up to which layer.",
    ("whole", "streamed"),
    has_values=True,
)


@record(frozen=True)
class StreamRows(GraphPass):
    """Compute the first layers in bands of `rows` rows of their result. 0 takes the setting `stream_rows` or
    the target's description.

    The number of streamed layers is chosen by an estimate of the peak memory. If streaming would not lower
    it, nothing changes.
    """

    name: ClassVar[str] = "stream_rows"
    settings: ClassVar[tuple[str, ...]] = (SETTING,)
    rows: int = 0

    def run_function(self, function: Function, context: PassContext) -> Function:
        rows = self.rows or context.config.get(SETTING, 0)
        if not rows and context.target is not None:
            rows = context.target.describe().extra.get(SETTING, 0)
        if not rows or not any(n.op in WINDOWED for n in post_order(function.body)):
            return function
        chosen = _Chooser(function, rows).chosen()
        return function if chosen is None else _streamed(function, chosen, rows)


@record(frozen=True)
class StreamedPart:
    """The streamed part: the nodes from its inputs up to `end`, arguments first, and the axis of rows."""

    end: Node
    axis: int
    members: tuple[Node, ...]


def bands(part: StreamedPart, rows: int) -> list[Rows]:
    """Return the bands of the part's result."""
    size = all_rows(part.end, part.axis).end
    return [Rows(part.axis, begin, min(begin + rows, size)) for begin in range(0, size, rows)]


def rows_needed(part: StreamedPart, band: Rows) -> dict[Node, Rows] | None:
    """Return the rows of each member that a band of the result needs; None if an op has no band form."""
    found = {part.end: band}
    inside = frozenset(part.members)
    for n in reversed(part.members):
        inputs = input_rows(n, found[n])
        if inputs is None:
            return None
        for arg, rows in zip(n.args, inputs, strict=True):
            if rows is not None and arg in inside:
                if arg in found and found[arg].axis != rows.axis:
                    return None
                found[arg] = found[arg].union(rows) if arg in found else rows
    return found


def _streamed(function: Function, part: StreamedPart, rows: int) -> Function:
    made = []
    for band in bands(part, rows):
        found = rows_needed(part, band)
        assert found is not None
        made.append(_band(part, found))
    with spanned(part.end.spans):
        result = made[0] if len(made) == 1 else JOIN_BANDS.build(*made, axis=part.axis)
    return function.with_body(rewrite(function.body, lambda old, _: result if old is part.end else None))


def _band(part: StreamedPart, found: Mapping[Node, Rows]) -> Node:
    """Compute one band of the part's result."""
    built: dict[Node, Node] = {}
    for n in part.members:
        args = []
        for arg, rows in zip(n.args, input_rows(n, found[n]) or (), strict=True):
            if rows is None:
                args.append(arg)
            elif arg in built:
                args.append(rows_of(built[arg], rows.inside(found[arg])))
            else:
                args.append(rows_of(arg, rows))
        with spanned(n.spans):
            built[n] = on_rows(n, found[n], args)
    return built[part.end]


def _fractions(part: StreamedPart, band: Rows) -> tuple[float, ...]:
    """Return the fraction of each member that a band needs."""
    found = rows_needed(part, band)
    assert found is not None
    return tuple(found[n].count / max(1, all_rows(n, found[n].axis).count) for n in part.members)


class _Chooser:
    """Chooses the part of a function whose streaming needs the least memory."""

    def __init__(self, function: Function, rows: int) -> None:
        self.function = function
        self.rows = rows
        with unrecorded():
            self.grouping: Grouping = group_nodes(function)
        self.order = self.grouping.order
        self.index = {n: i for i, n in enumerate(self.order)}
        self.users: dict[Node, set[Node]] = {n: set() for n in self.order}
        for n in self.order:
            for arg in n.args:
                self.users[arg].add(n)
        self.roots = [n for n in self.order if self._writes(n)]
        self.axes = self._axes()

    def _writes(self, n: Node) -> bool:
        """Whether a kernel writes a node's value to memory."""
        if n.op in (PARAM, CONST) or n.op.name in VIEWS or not isinstance(n.type, TensorType):
            return False
        group = self.grouping.groups.get(n)
        return group is None or group.root is n

    def _axes(self) -> dict[Node, int]:
        """Return the row axis of each value after a window."""
        found: dict[Node, int] = {}
        for n in self.order:
            own = row_axis(n)
            if own is not None:
                found[n] = own
                continue
            for arg in n.args:
                if arg in found and isinstance(n.type, TensorType):
                    axes = (a for a in range(len(n.shape)) if _keeps_axis(n, a, arg, found[arg]))
                    axis = next(axes, None)
                    if axis is not None:
                        found[n] = axis
                        break
        return found

    def chosen(self) -> StreamedPart | None:
        def candidates() -> list[StreamedPart | None]:
            found = (self.part(end) for end in self.roots)
            return [None, *(part for part in found if part is not None and self.peak(part) is not None)]

        best = self.best()
        spans = () if best is None else (span for n in best.members for span in n.spans)
        return PART.pick(
            best,
            candidates,
            lambda part: "whole" if part is None else "streamed",
            lambda part: "" if part is None else f"{part.end.op.name} {self.index[part.end]}",
            where=self.function.name,
            cost=self.peak,
            unit="bytes",
            compared=lambda: [None, *([] if best is None else [best])],
            spans=spans,
        )

    def best(self) -> StreamedPart | None:
        result = self.peak(None)
        if result is None:
            return None
        # The estimate is not a memory plan, so that a small predicted gain may be a loss.
        lowest, chosen = int(STREAMS.peak_fraction * result), None
        for end in self.roots:
            part = self.part(end)
            peak = None if part is None else self.peak(part)
            if peak is not None and peak < lowest:
                lowest, chosen = peak, part
        return chosen

    def part(self, end: Node) -> StreamedPart | None:
        """Return the part that ends with a value; None if another node reads a value inside it."""
        axis = self.axes.get(end)
        if axis is None or end in self.function.results or all_rows(end, axis).end <= self.rows:
            return None
        members: dict[Node, Rows] = {}
        work = [(end, all_rows(end, axis))]
        while work:
            n, rows = work.pop()
            inputs = input_rows(n, rows)
            if n in members or inputs is None:
                continue
            members[n] = rows
            work += [(a, r) for a, r in zip(n.args, inputs, strict=True) if r is not None]
        if not any(n.op in WINDOWED for n in members):
            return None
        if any(n is not end and not self.users[n] <= members.keys() for n in members):
            return None
        if any(n in self.function.results for n in members):
            return None
        part = StreamedPart(end, axis, tuple(sorted(members, key=self.index.__getitem__)))
        return None if any(rows_needed(part, band) is None for band in bands(part, self.rows)) else part

    # Memory

    def peak(self, part: StreamedPart | None) -> int | None:
        """Return the peak of live bytes; None if sizes are unknown."""
        if part is None:
            return self._live(self.roots, {}, {})
        inner = [n for n in self.roots if n in part.members]
        within = 0
        # Most bands have equal shares, so that each distinct tuple is estimated once.
        for fractions in dict.fromkeys(_fractions(part, band) for band in bands(part, self.rows)):
            peak = self._live(inner, dict(zip(part.members, fractions, strict=True)), {}, without=part.end)
            if peak is None:
                return None
            within = max(within, peak)
        outer = [n for n in self.roots if n not in part.members or n is part.end]
        return self._live(outer, {}, {part.end: within})

    def _live(
        self,
        steps: Sequence[Node],
        part_of: Mapping[Node, float],
        extra: Mapping[Node, int],
        without: Node | None = None,
    ) -> int | None:
        """Return the peak memory of steps. `part_of` scales values, `extra` is added to steps."""
        index = {n: i for i, n in enumerate(steps)}
        last = dict(index)
        for n in steps:
            for source in self._reads(n):
                if source in index:
                    last[source] = max(last[source], index[n])
        sizes = {}
        for n in steps:
            size = _bytes(n)
            if size is None:
                return None
            sizes[n] = 0 if n is without or n in self.function.results else size * part_of.get(n, 1)
        ends: dict[int, list[Node]] = {}
        for n in steps:
            ends.setdefault(last[n], []).append(n)
        peak = live = 0.0
        for i, n in enumerate(steps):
            live += sizes[n]
            border = extra[n] if n in extra else sum(b * part_of.get(m, 1) for m, b in self._borders(n))
            peak = max(peak, live + border)
            live -= sum(sizes[m] for m in ends.get(i, ()))
        return int(peak)

    def _group(self, root: Node) -> Sequence[Node]:
        group = self.grouping.groups.get(root)
        return [root] if group is None else group.members

    def _reads(self, root: Node) -> set[Node]:
        """Return the values in memory that a kernel reads."""
        members = set(self._group(root))
        work = [arg for m in members for arg in m.args if arg not in members]
        found: set[Node] = set()
        while work:
            n = work.pop()
            if n.op in (PARAM, CONST):
                continue
            if self._writes(n):
                found.add(n)
            else:
                work += n.args
        return found

    def _borders(self, root: Node) -> list[tuple[Node, int]]:
        """Return the padded copies that windowed ops of a kernel read: the op, and bytes."""
        return [
            (m, _bytes(m.args[0]) or 0)
            for m in self._group(root)
            if m.op in WINDOWED and any(m.attrs["padding"] or ())
        ]


def _keeps_axis(n: Node, axis: int, arg: Node, rows: int) -> bool:
    """Whether a node keeps an axis of its argument row by row."""
    inputs = input_rows(n, all_rows(n, axis))
    index = n.args.index(arg)
    return inputs is not None and (found := inputs[index]) is not None and found.axis == rows


def _bytes(value: Node) -> int | None:
    total = value.dtype.itemsize
    for dim in value.shape:
        size = const_value(dim)
        if size is None:
            return None
        total *= size
    return total


__all__ = ["SETTING", "StreamRows", "StreamedPart", "bands", "rows_needed"]
