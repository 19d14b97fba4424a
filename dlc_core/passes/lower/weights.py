"""The constants of a module: their offsets in one block of memory, and writing them there."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from dlc_core.graph.node import Array
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import const, const_value
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.passes.lower.arena import ALIGN
from dlc_core.passes.lower.guard_layout import PAGE, GuardLayout, slot
from dlc_core.runtime.guard.mode import Slot
from dlc_core.runtime.memory.mapped import drop_pages
from dlc_core.schedule.index_map import IndexMap

NDArray = np.ndarray[Any, Any]


class Repacked:
    """An array in the layout that a kernel's schedule requires, written directly to its final position."""

    def __init__(self, source: NDArray, layout: IndexMap) -> None:
        self.source = source
        self.layout = layout
        self.dtype: np.dtype[Any] = source.dtype

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.layout.output_shape(self.source.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def write(self, to: NDArray) -> None:
        """Write the repacked array to an array of its shape."""
        self.layout.apply_numpy(self.source, out=to)


Constant = NDArray | Repacked


class Weights:
    """Constants, each once, at multiples of `align` bytes. `size` is the end of the last one.

    In guard mode `guard_layout` is their layout, and `slots` has their positions.
    """

    def __init__(self, align: int = ALIGN, guard_layout: GuardLayout | None = None) -> None:
        self.align = align
        self.guard_layout = guard_layout
        self.slots: list[Slot] = []
        self.constants: list[tuple[int, Constant]] = []
        self.size = 0
        self._allocated: dict[tuple[Array, str], tuple[int, TensorType]] = {}

    def allocate(
        self, key: tuple[Array, str], make: Callable[[], Constant], name: str = "const"
    ) -> tuple[int, TensorType]:
        """Return the offset and type of a constant. `make` is called on first use; `name` is for messages."""
        found = self._allocated.get(key)
        if found is None:
            data = make()
            type_ = tensor_type(data.shape, dtype(data.dtype))
            if self.guard_layout is None:
                begin = -(-self.size // self.align) * self.align
                self.size = begin + data.nbytes
            else:
                (offset,), end = self.guard_layout.plan([const(data.nbytes)], max(0, self.size - PAGE))
                begin, self.size = const_value(offset) or 0, const_value(end) or 0
                self.slots.append(slot(f"constant {name!r}", offset, const(data.nbytes), type_.dtype))
            found = self._allocated[key] = begin, type_
            self.constants.append((begin, data))
        return found


def write_constant(constant: Constant, to: NDArray) -> None:
    """Write a constant to an array of exactly its bytes. Pages of the model's file are dropped after that."""
    allocate: Any = to.view(constant.dtype).reshape(constant.shape)
    if isinstance(constant, Repacked):
        constant.write(allocate)
        drop_pages(constant.source)
    else:
        np.copyto(allocate, constant)
        drop_pages(constant)


__all__ = ["ALIGN", "Constant", "Repacked", "Weights", "write_constant"]
