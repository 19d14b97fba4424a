"""The input rows that an op needs for some rows of its result, and the op on those rows alone.

Rows are the elements of one axis. For the rows 4 to 7, a window of 3 with stride 1 needs the rows 3 to 8 and
no padding; for the rows 0 to 3 it needs the rows 0 to 4 and one row of padding before them. Each element is
computed from the same elements in the same order, so it equals that of the complete result bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.graph.node import Node
from dlc_core.ir.expr import const_value
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.bands import elements_of_step
from dlc_core.op.std.window import Window
from dlc_core.passes.graph.node_kinds import POINTWISE
from dlc_core.passes.graph.rules_shape import permutation
from dlc_core.support.record import record

CONV, MAX_POOL, AVG_POOL = (OPS[name] for name in ("conv", "max_pool", "avg_pool"))
TRANSPOSE, CONCAT, PAD, SLICE, BAND = (OPS[name] for name in ("transpose", "concat", "pad", "slice", "band"))
WINDOWED = (CONV, MAX_POOL, AVG_POOL)


@record(frozen=True)
class Rows:
    """Elements `begin` to `end` of an axis."""

    axis: int
    begin: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.begin

    def union(self, other: Rows) -> Rows:
        """Return the smallest range that contains both."""
        return Rows(self.axis, min(self.begin, other.begin), max(self.end, other.end))

    def inside(self, whole: Rows) -> Rows:
        """Return the same rows relative to the first row of `whole`."""
        return Rows(self.axis, self.begin - whole.begin, self.end - whole.begin)


def all_rows(value: Node, axis: int) -> Rows:
    """Return all rows of a value of known size."""
    return Rows(axis, 0, const_value(value.shape[axis]) or 0)


def row_axis(n: Node) -> int | None:
    """Return the first window axis of a node; None for other ops."""
    if n.op not in WINDOWED:
        return None
    return 1 if n.attrs["layout"] == "NXC" else 2


def _window(n: Node) -> Window:
    if n.op is not CONV:
        return Window.of(n.attrs["kernel"], n.attrs)
    shape = n.args[1].shape
    spatial = shape[:-2] if n.attrs["kernel_layout"] == "XIO" else shape[2:]
    return Window.of([const_value(size) or 0 for size in spatial], n.attrs)


def _window_rows(n: Node, rows: Rows) -> tuple[Rows, int, int] | None:
    """Return the input rows that windows read, and the rows of padding before and after these."""
    window_axis = rows.axis - (row_axis(n) or 0)
    window = _window(n)
    if not 0 <= window_axis < len(window.kernel) or _overhangs(n, window):
        return None
    size = const_value(n.args[0].shape[rows.axis]) or 0
    begin = rows.begin * window.strides[window_axis] - window.before[window_axis]
    end = (
        (rows.end - 1) * window.strides[window_axis]
        - window.before[window_axis]
        + window.extents[window_axis]
    )
    if begin >= size or end <= 0:
        return None  # a window that reads only padding
    return Rows(rows.axis, max(begin, 0), min(end, size)), max(-begin, 0), max(end - size, 0)


def _overhangs(n: Node, window: Window) -> bool:
    """Whether the last window along some axis extends beyond the padding."""
    first = row_axis(n) or 0
    sizes = n.args[0].shape[first : first + len(window.kernel)]
    counts = n.shape[first : first + len(window.kernel)]
    return bool(n.attrs.get("ceil_mode")) and window.positions(sizes) != tuple(counts)


def _padded(n: Node, rows: Rows) -> tuple[Rows, int, int] | None:
    pads, rank = n.attrs["pads"], len(n.shape)
    if n.attrs["mode"] != "constant" or min(pads) < 0:
        return None
    size = const_value(n.args[0].shape[rows.axis]) or 0
    begin, end = rows.begin - pads[rows.axis], rows.end - pads[rows.axis]
    if begin >= size or end <= 0 or len(pads) != 2 * rank:
        return None
    return Rows(rows.axis, max(begin, 0), min(end, size)), max(-begin, 0), max(end - size, 0)


def input_rows(n: Node, rows: Rows) -> list[Rows | None] | None:
    """Return the rows of each input that rows of the result need; None for all rows of an input.

    Return None instead of a list if the op cannot be computed by rows.
    """
    decl = n.op
    if not isinstance(decl, OpDecl) or not isinstance(n.type, TensorType) or not n.type.is_static:
        return None
    others: list[Rows | None] = [None] * (len(n.args) - 1)
    if decl in WINDOWED or decl is PAD:
        reach = _padded(n, rows) if decl is PAD else _window_rows(n, rows)
        return None if reach is None else [reach[0], *others]
    if decl is TRANSPOSE:
        return [replace(rows, axis=permutation(n)[rows.axis])]
    if decl is CONCAT:
        return None if n.attrs["axis"] % len(n.shape) == rows.axis else [rows] * len(n.args)
    if decl.kind in POINTWISE and "shape" not in n.attrs:
        return [_aligned(arg, n, rows) for arg in n.args]
    return None


def _aligned(arg: Node, n: Node, rows: Rows) -> Rows | None:
    """Return the rows of an operand of an elementwise operation, whose axes are aligned at the right."""
    if not isinstance(arg.type, TensorType):
        return None
    axis = rows.axis - (len(n.shape) - len(arg.shape))
    if axis < 0 or arg.shape[axis] != n.shape[rows.axis]:
        return None
    return replace(rows, axis=axis)


def on_rows(n: Node, rows: Rows, args: Sequence[Node]) -> Node:
    """Compute some rows of a node's result. `args` have the rows that `input_rows` returns."""
    decl = n.op
    assert isinstance(decl, OpDecl)
    attrs = dict(n.attrs)
    if decl in WINDOWED:
        window_axis, window, reach = rows.axis - (row_axis(n) or 0), _window(n), _window_rows(n, rows)
        assert reach is not None
        before, after = list(window.before), list(window.after)
        before[window_axis], after[window_axis] = reach[1:]
        attrs["padding"] = (*before, *after)
        if "ceil_mode" in attrs:
            attrs["ceil_mode"] = False
    elif decl is PAD:
        reach = _padded(n, rows)
        assert reach is not None
        pads = list(attrs["pads"])
        pads[rows.axis], pads[len(n.shape) + rows.axis] = reach[1:]
        attrs["pads"] = tuple(pads)
    return decl.build(*args, **attrs)


def rows_of(value: Node, rows: Rows) -> Node:
    """Return some rows of a value, without a copy if they are contiguous."""
    if rows == all_rows(value, rows.axis):
        return value
    if elements_of_step(value.shape, rows.axis) is not None:
        return BAND.build(value, axis=rows.axis, begin=rows.begin, end=rows.end)
    return SLICE.build(value, begins=(rows.begin,), ends=(rows.end,), axes=(rows.axis,))


__all__ = ["WINDOWED", "Rows", "all_rows", "input_rows", "on_rows", "row_axis", "rows_of"]
