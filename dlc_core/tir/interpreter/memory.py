"""Memory of the interpreter: bytes with typed windows, and the checked kind that knows who wrote what.

A pointer is the tuple (Memory, byte offset, NumPy dtype of the element).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.ir.dtype import DType
from dlc_core.tir.interpreter.scalars import memory_format

POISON = 0xA5
"""Fills fresh memory of integers; fresh floats are NaN."""


class Memory:
    """One allocation or array."""

    __slots__ = ("bytes", "races")

    def __init__(self, data: Any, races: Races | None = None) -> None:
        self.bytes: Any = data
        self.races = races

    def typed(self, offset: int, type_: DType, name: str) -> Any:
        """The elements of `type_` from a byte offset on, indexable by element number."""
        code = memory_format(type_)
        if code is None:
            raise UnsupportedError(f"the interpreter does not hold {type_} (buffer {name})")
        size = type_.numpy.itemsize
        rest = self.bytes[offset:]
        count = len(rest) // size
        # An empty memoryview cannot be cast; nothing can be read from it either.
        window = rest[: count * size].cast(code) if count else rest[:0]
        return window if self.races is None else CheckedWindow(window, self, offset, size, name)


class CheckedMemory(Memory):
    """Memory that remembers which bytes were written, and by which iterations of parallel loops."""

    __slots__ = ("defined", "readers", "writer")

    def __init__(self, data: Any, races: Races, *, defined: bool) -> None:
        super().__init__(data, races)
        self.defined = bytearray(b"\x01" if defined else b"\x00") * len(data)
        self.writer: dict[int, Where] = {}
        self.readers: dict[int, list[Where]] = {}


Where = tuple[tuple[int, str, int], ...]
"""The parallel iterations around an access: (number of the loop's execution, its variable, the iteration)."""


class Races:
    """The parallel loops being executed, outermost first."""

    def __init__(self) -> None:
        self.stack: list[tuple[int, str, int]] = []
        self.here: Where = ()
        self._count = 0

    def enter(self, name: str) -> None:
        self._count += 1
        self.stack.append((self._count, name, 0))

    def step(self, iteration: int) -> None:
        number, name, _ = self.stack[-1]
        self.stack[-1] = (number, name, iteration)
        self.here = tuple(self.stack)

    def leave(self) -> None:
        self.stack.pop()
        self.here = tuple(self.stack)


def conflict(a: Where, b: Where) -> str | None:
    """How two accesses may run at once: two iterations of one execution of one loop."""
    for (number_a, name, i), (number_b, _, j) in zip(a, b):
        if number_a != number_b:
            return None
        if i != j:
            return f"{name} = {i} and {name} = {j}"
    return None


class CheckedWindow:
    """A typed window that reports reads of undefined memory and conflicting accesses."""

    __slots__ = ("memory", "name", "offset", "size", "window")

    def __init__(self, window: Any, memory: Memory, offset: int, size: int, name: str) -> None:
        assert isinstance(memory, CheckedMemory)
        self.window = window
        self.memory: CheckedMemory = memory
        self.offset = offset
        self.size = size
        self.name = name

    def __len__(self) -> int:
        return len(self.window)

    def __getitem__(self, index: int) -> Any:
        memory, at = self.memory, self.offset + index * self.size
        if not all(memory.defined[at : at + self.size]):
            raise RuntimeFailure(f"element {index} of {self.name} is read before it is written")
        assert memory.races is not None
        here = memory.races.here
        if here:
            self._against(memory.writer.get(at), here, "written", "read", index)
            readers = memory.readers.setdefault(at, [])
            # Two readers in different iterations suffice: any later writer conflicts with one of them.
            readers[1 if readers and conflict(readers[0], here) else 0 :] = [here]
        return self.window[index]

    def __setitem__(self, index: int, value: Any) -> None:
        memory, at = self.memory, self.offset + index * self.size
        self.window[index] = value
        memory.defined[at : at + self.size] = b"\x01" * self.size
        assert memory.races is not None
        here = memory.races.here
        if here:
            self._against(memory.writer.get(at), here, "written", "written", index)
            for reader in memory.readers.get(at, ()):
                self._against(reader, here, "read", "written", index)
            memory.writer[at] = here

    def _against(self, other: Where | None, here: Where, did: str, does: str, index: int) -> None:
        how = None if other is None else conflict(other, here)
        if how is not None:
            raise RuntimeFailure(
                f"race: element {index} of {self.name} is {did} and {does} by different parallel iterations",
                details=[f"iterations {how}"],
            )


def of_array(array: np.ndarray[Any, Any], races: Races | None) -> Memory:
    """The memory of a C-contiguous array."""
    flat: Any = array.reshape(-1).view(np.uint8)
    data = memoryview(flat)
    return Memory(data) if races is None else CheckedMemory(data, races, defined=True)


def allocate(elements: int, type_: DType, races: Races | None) -> Memory:
    """Fresh memory full of poison."""
    data: Any
    if type_.is_float:
        data = np.full(elements, np.nan).astype(type_.numpy).view(np.uint8)
    else:
        data = np.full(elements * type_.numpy.itemsize, 1 if type_.is_bool else POISON, np.uint8)
    view = memoryview(data)
    return Memory(view) if races is None else CheckedMemory(view, races, defined=False)
