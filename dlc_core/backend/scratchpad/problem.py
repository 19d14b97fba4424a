"""A contraction as the choice of tiles sees it: axes with roles, and the footprints of its operands.

Every GEMM and every direct convolution has this form: target[m…, n…] += left[m…, k…] * right[n…, k…]. An
index may be a sum of several axes, as in windows: x[c, y + r].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dlc_core.arith import Analyzer
from dlc_core.backend.scratchpad.commands import runs
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Binary, Call, Cast, Const, Expr, Load, Var, const, const_value, post_order
from dlc_core.schedule.rules.analysis import extent_of, loads_of, update_of
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, Store

Source = tuple[tuple[int, ...], tuple[int, ...]]
"""For each dim of a buffer, the size and the stride in bytes of the tensor in main memory that it copies."""
M, N, K, BATCH = "m", "n", "k", "batch"
"""Roles of axes: of target and left, of target and right, of left and right, of all three."""


@record(frozen=True)
class Axis:
    """An axis of the block, by its number."""

    number: int
    name: str
    extent: int
    role: str


@record(frozen=True)
class Footprint:
    """The elements of a tensor that a tile needs."""

    sizes: tuple[int, ...]
    """The most elements of each dim that are copied from main memory."""
    strides: tuple[int, ...]
    """The distance in bytes between elements of each dim in main memory."""
    steps: tuple[tuple[tuple[int, int], ...], ...]
    """For each dim the pairs (number of an axis, step of the axis in this dim)."""
    itemsize: int

    def box(self, tile: Mapping[int, int]) -> list[int]:
        """The elements of each dim that a tile needs, with the border."""
        return [1 + sum(abs(step) * (tile[axis] - 1) for axis, step in terms) for terms in self.steps]

    def bytes(self, tile: Mapping[int, int]) -> int:
        """The bytes of the tile on the chip."""
        return math.prod(self.box(tile)) * self.itemsize

    def runs(self, tile: Mapping[int, int]) -> tuple[int, int]:
        """The contiguous runs of the tile in main memory, and the bytes of each."""
        box = [min(a, b) for a, b in zip(self.box(tile), self.sizes, strict=True)]
        return runs(box, self.strides, self.itemsize)

    def uses(self, axis: Axis) -> bool:
        return any(number == axis.number for terms in self.steps for number, _ in terms)


@record(frozen=True)
class Problem:
    """A contraction with its epilogue. `extras` are the other tensors that the epilogue reads."""

    axes: tuple[Axis, ...]
    target: Footprint
    left: Footprint
    right: Footprint
    extras: tuple[Footprint, ...]
    operations: int
    """Elementwise operations of the epilogue; 0 if the sums are stored as they are."""
    result_bytes: int
    """The bytes of an element of the result."""

    def of(self, role: str) -> list[Axis]:
        """The axes of a role, outer to inner."""
        return [axis for axis in self.axes if axis.role == role]

    def size(self, role: str) -> int:
        """The product of the extents of a role."""
        return math.prod(axis.extent for axis in self.of(role))


def problem_of(block: Block, sources: Mapping[Buffer, Source], epilogue: Block | None) -> Problem:
    """The problem of a reduction block. `sources` has the place in main memory of buffers that are copies.

    Raises ScheduleError for a block that is no contraction with known sizes and affine indices.
    """
    factors = factors_of(block)
    if factors is None or not isinstance(block.body, Store):
        raise ScheduleError(f"block {block.name!r} is no sum of products")
    numbers = {axis.var: i for i, axis in enumerate(block.axes)}
    target = _footprint(block.body.buffer, block.body.indices, numbers, sources)
    left, right = (_footprint(load.buffer, load.indices, numbers, sources) for load in factors)
    axes = []
    for number, axis in enumerate(block.axes):
        extent = extent_of(axis)
        if not extent:
            raise ScheduleError(f"axis {axis.var.name} of block {block.name!r} has no known extent above 0")
        own = Axis(number, axis.var.name, extent, "")
        used = (target.uses(own), left.uses(own), right.uses(own))
        roles = {(True, True, False): M, (True, False, True): N, (True, True, True): BATCH}
        role = roles.get(used, K if axis.kind == "reduce" else BATCH)
        axes.append(Axis(number, axis.var.name, extent, role))
    extras: tuple[Footprint, ...] = ()
    operations, size = 0, block.body.buffer.dtype.itemsize
    if epilogue is not None:
        assert isinstance(epilogue.body, Store)
        own_numbers = {axis.var: _number_of(axis.var, epilogue, block) for axis in epilogue.axes}
        others = dict.fromkeys(load for load in loads_of(epilogue) if load.buffer is not block.body.buffer)
        extras = tuple(_footprint(load.buffer, load.indices, own_numbers, sources) for load in others)
        operations = count_operations(epilogue.body.value)
        size = epilogue.body.buffer.dtype.itemsize
    return Problem(tuple(axes), target, left, right, extras, operations, size)


def factors_of(block: Block) -> tuple[Load, Load] | None:
    """The loads whose product a block sums, without their casts."""
    update = update_of(block)
    if not isinstance(update, Binary) or update.op != "mul":
        return None
    found = [f.a if isinstance(f, Cast) else f for f in (update.a, update.b)]
    loads = [f for f in found if isinstance(f, Load)]
    return (loads[0], loads[1]) if len(loads) == 2 else None


def copied_load(block: Block) -> Load | None:
    """The load of a block that copies a tensor, also with a border of a constant; None for other blocks."""
    value = block.body.value if isinstance(block.body, Store) else None
    if isinstance(value, Call) and value.name == "if_then_else" and isinstance(value.args[2], Const):
        value = value.args[1]
    return value if isinstance(value, Load) and block.init is None else None


def count_operations(value: Expr) -> int:
    """The elementwise operations of an expression; indices do not count."""
    inside = {e for load in post_order(value) if isinstance(load, Load) for e in post_order(*load.indices)}
    return max(1, sum(not isinstance(e, Load | Const | Var) and e not in inside for e in post_order(value)))


def _number_of(var: Var, epilogue: Block, block: Block) -> int:
    """The axis of the contraction that an axis of the epilogue is."""
    assert isinstance(block.body, Store)
    for load in loads_of(epilogue):
        if load.buffer is block.body.buffer:
            for index, own in zip(load.indices, block.body.indices, strict=True):
                if index is var:
                    return next((i for i, axis in enumerate(block.axes) if axis.var is own), -1)
    return -1


def _footprint(
    buffer: Buffer, indices: Sequence[Expr], numbers: Mapping[Var, int], sources: Mapping[Buffer, Source]
) -> Footprint:
    analyzer = Analyzer()
    steps = []
    for index in indices:
        terms = []
        for var, number in numbers.items():
            factor = analyzer.coefficient_of(index, var)
            known = None if factor is None else const_value(factor)
            if known is None:
                raise ScheduleError(
                    f"{buffer.name} is accessed at {index}", why=f"it is not affine in {var.name}"
                )
            if known and number >= 0:
                terms.append((number, int(known)))
        steps.append(tuple(terms))
    source = sources.get(buffer)
    if source is None:
        source = source_of(buffer)
    return Footprint(*source, tuple(steps), buffer.dtype.itemsize)


def source_of(buffer: Buffer, copy: Block | None = None) -> Source:
    """Where the elements of a buffer are in main memory: the buffer itself, or the tensor that `copy` copies
    to it. Raises ScheduleError for symbolic shapes, and for copies that are not affine.
    """
    shape, width = buffer.static_shape(), buffer.dtype.itemsize
    if shape is None:
        raise ScheduleError(f"{buffer.name} has no known shape")
    if copy is None:
        return shape, tuple(width * math.prod(shape[d + 1 :]) for d in range(len(shape)))
    load, analyzer = copied_load(copy), Analyzer()
    assert load is not None
    assert isinstance(copy.body, Store)
    offset = load.buffer.linear_index(load.indices)
    sizes, strides = [], []
    for index, extent in zip(copy.body.indices, shape, strict=True):
        factor = analyzer.coefficient_of(offset, index) if isinstance(index, Var) else const(0)
        known = None if factor is None else const_value(factor)
        if known is None:
            raise ScheduleError(
                f"{buffer.name} is a copy of {load.buffer.name} at {offset}, which is not affine"
            )
        same = [
            const_value(size) or extent
            for position, size in zip(load.indices, load.buffer.shape, strict=True)
            if isinstance(index, Var)
            and const_value(analyzer.coefficient_of(position, index) or const(0)) == 1
        ]
        sizes.append(min([extent, *map(int, same)]))
        strides.append(int(known) * width)
    return tuple(sizes), tuple(strides)


__all__ = [
    "BATCH",
    "Axis",
    "Footprint",
    "K",
    "M",
    "N",
    "Problem",
    "Source",
    "copied_load",
    "count_operations",
    "factors_of",
    "problem_of",
    "source_of",
]
