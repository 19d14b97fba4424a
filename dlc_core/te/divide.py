"""Division of a program of library functions into kernels, as fusion divides a model.

`dlc_core.topi` marks the operations of one function as a unit (`one_unit`). A program whose reductions belong
to several units becomes one kernel for each of these, with the pointwise operations that follow it:

    hidden = relu(matmul(x, w))          kernel 1: matmul, relu
    scores = softmax(hidden)             kernel 2: softmax

A program with other reductions is one kernel: its author combined them, such as the passes of a softmax.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dlc_core.ir.buffer import Buffer
from dlc_core.te.func import operations_of
from dlc_core.te.tensor import ComputeOp, Operation, Tensor, collect

_units: weakref.WeakKeyDictionary[Operation, object] = weakref.WeakKeyDictionary()


@contextmanager
def one_unit() -> Iterator[None]:
    """The operations that are made inside are one unit."""
    unit = object()
    with collect() as made:
        yield
    for tensor in made:
        if tensor.op is not None:
            _units.setdefault(tensor.op, unit)


@dataclass(eq=False)
class _Unit:
    """Operations that stay together, and where their results are read."""

    operations: list[Operation] = field(default_factory=list)
    inputs: dict[_Unit, None] = field(default_factory=dict)
    readers: dict[_Unit, None] = field(default_factory=dict)
    is_output: bool = False

    @property
    def is_anchor(self) -> bool:
        """Whether it is more than pointwise operations."""
        return any(not isinstance(op, ComputeOp) or op.reduce_axes for op in self.operations)

    @property
    def shape(self) -> tuple[object, ...]:
        """The shape of its result; empty if there are several."""
        shapes = [shape for shape, _ in self.operations[-1].results()]
        return shapes[0] if len(shapes) == 1 else ()

    def feeds_only(self, reader: _Unit) -> bool:
        """Whether nothing but this unit reads its results."""
        return not self.is_output and list(self.readers) == [reader]


@dataclass(frozen=True)
class Part:
    """A kernel: its name, the tensors that it reads, and those that later parts or the caller read."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def divide(outputs: Sequence[Tensor], inputs: Iterable[Tensor]) -> list[Part]:
    """The kernels of a program in order of execution; none if it should be one kernel."""
    sources = {t.buffer for t in inputs}
    order = operations_of(outputs, sources)
    marks = {op: _units.get(op) for op in order}
    anchors = [op for op in order if not isinstance(op, ComputeOp) or op.reduce_axes]
    if any(marks[op] is None for op in anchors) or len({marks[op] for op in anchors}) < 2:
        return []
    made = {buffer: op for op in order for buffer in op.buffers()}
    units = _units_of(order, marks, made, {t.buffer for t in outputs})
    return [_part(group, made, outputs) for group in _groups(units)]


def _units_of(
    order: Sequence[Operation],
    marks: dict[Operation, object],
    made: dict[Buffer, Operation],
    outputs: set[Buffer],
) -> list[_Unit]:
    """The units in dependence order, with what they read."""
    by_mark: dict[object, _Unit] = {}
    unit_of = {op: by_mark.setdefault(marks[op] or op, _Unit()) for op in order}
    for op, unit in unit_of.items():
        unit.operations.append(op)
        unit.is_output |= not outputs.isdisjoint(op.buffers())
        for maker in (made[b] for b in op.reads() if b in made):
            if unit_of[maker] is not unit:
                unit.inputs[unit_of[maker]] = None
                unit_of[maker].readers[unit] = None
    found: dict[_Unit, None] = {}
    stack = [(unit, False) for unit in reversed(list(by_mark.values()))]
    while stack:
        unit, expanded = stack.pop()
        if expanded:
            found[unit] = None
        elif unit not in found:
            stack += [(unit, True), *((one, False) for one in reversed(list(unit.inputs)))]
    return list(found)


def _groups(units: Sequence[_Unit]) -> list[list[_Unit]]:
    """Units that share a kernel, in order of execution: pointwise ones follow what only they read."""
    group_of: dict[_Unit, list[_Unit]] = {}
    for unit in units:
        own = [unit]
        if not unit.is_anchor:
            fed = [one for one in unit.inputs if one.feeds_only(unit)]
            ends = [one for one in fed if _anchored(group_of[one]) and one.shape == unit.shape != ()]
            before = [group_of[one] for one in fed if not _anchored(group_of[one])]
            own = [one for group in (*(group_of[end] for end in ends[-1:]), *before) for one in group]
            own.append(unit)
        for one in own:
            group_of[one] = own
    return [group for unit in units if (group := group_of[unit])[-1] is unit]


def _anchored(group: Sequence[_Unit]) -> bool:
    return any(unit.is_anchor for unit in group)


def _part(group: Sequence[_Unit], made: dict[Buffer, Operation], outputs: Sequence[Tensor]) -> Part:
    operations = [op for unit in group for op in unit.operations]
    inside = {b for op in operations for b in op.buffers()}
    read = dict.fromkeys(b for op in operations for b in op.reads() if b not in inside)
    last = group[-1]
    outside = {b for reader in last.readers for op in reader.operations for b in op.reads()}
    results = [
        Tensor(buffer, op, index)
        for op in last.operations
        for index, buffer in enumerate(op.buffers())
        if buffer in outside or any(buffer is t.buffer for t in outputs)
    ]
    name = "_".join(dict.fromkeys(op.name for unit in group for op in unit.operations[-1:]))
    return Part(name, tuple(Tensor(b, made.get(b)) for b in read), tuple(results))


__all__ = ["Part", "divide", "one_unit"]
