"""Memory of the interpreter: bytes with typed views, and a checked kind that records which iteration wrote
each element.

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
        """A view of the elements of `type_` from a byte offset on, indexed by element number."""
        code = memory_format(type_)
        if code is None:
            raise UnsupportedError(f"the interpreter does not hold {type_} (buffer {name})")
        size = type_.numpy.itemsize
        rest = self.bytes[offset:]
        count = len(rest) // size
        # An empty memoryview cannot be cast. It has no elements to read anyway.
        window = rest[: count * size].cast(code) if count else rest[:0]
        return window if self.races is None else CheckedWindow(window, self, offset, size, name)


class CheckedMemory(Memory):
    """Memory that remembers which bytes were written, and by which iterations of parallel loops."""

    __slots__ = ("copied", "defined", "readers", "shared", "writer")

    def __init__(self, data: Any, races: Races, *, defined: bool, shared: bool = False) -> None:
        super().__init__(data, races)
        self.shared = shared
        self.copied: dict[int, tuple[Frame, int]] = {}
        """Elements written by copies: the thread, and the number of its group."""
        self.defined = bytearray(b"\x01" if defined else b"\x00") * len(data)
        self.writer: dict[int, Where] = {}
        self.readers: dict[int, list[Where]] = {}

    def define(self, offset: int) -> None:
        """Mark all bytes from an offset on as written. Used for functions whose writes are not observed."""
        self.defined[offset:] = b"\x01" * (len(self.defined) - offset)


Where = tuple[tuple[int, str, int, int], ...]
"""The parallel iterations around an access: (number of the loop's execution, the loop, the iteration,
barriers passed)."""


class Frame:
    """One iteration of a parallel loop that is being executed."""

    __slots__ = ("arrived", "copying", "ended", "epoch", "iteration", "loop", "number")

    def __init__(self, number: int, loop: str, iteration: int) -> None:
        self.number = number
        self.loop = loop
        self.iteration = iteration
        self.epoch = 0
        """Barriers that the iteration has met with the others of its loop."""
        self.copying = False
        """Whether what it writes to shared memory now may be late."""
        self.ended = self.arrived = 0
        """Groups of its copies that have ended, and those that it has waited for."""


class Races:
    """The parallel loops being executed, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Frame] = []
        self.here: Where = ()
        self.thread = Frame(0, "", 0)
        """The thread that runs, of those that meet."""
        self._count = 0

    def next_number(self) -> int:
        """A fresh number for one execution of a loop."""
        self._count += 1
        return self._count

    def enter(self, loop: str) -> None:
        self.stack.append(Frame(self.next_number(), loop, 0))

    def step(self, iteration: int) -> None:
        self.stack[-1].iteration = iteration
        self._settle()

    def leave(self) -> None:
        self.stack.pop()
        self._settle()

    def enter_stack(self, stack: list[Frame]) -> None:
        """Continue as another thread."""
        self.stack = stack
        self.thread = stack[-1] if stack else Frame(0, "", 0)
        self._settle()

    def copies_begin(self) -> int:
        self.thread.copying = True
        return 0

    def copies_end(self) -> int:
        self.thread.copying = False
        self.thread.ended += 1
        return 0

    def wait(self, groups: int) -> None:
        """Record that all copies of the thread have arrived, except those of its last `groups` groups."""
        self.thread.arrived = max(self.thread.arrived, self.thread.ended - groups)

    def _settle(self) -> None:
        self.here = tuple([(f.number, f.loop, f.iteration, f.epoch) for f in self.stack])


def conflict(a: Where, b: Where) -> str | None:
    """Describe how two accesses can run concurrently: in two iterations of one execution of a loop, with no
    barrier between. None if they cannot.
    """
    for (number_a, loop, i, epoch_a), (number_b, _, j, epoch_b) in zip(a, b):
        if number_a != number_b:
            return None
        if i != j:
            return f"{i} and {j} of the loop {loop}" if epoch_a == epoch_b else None
    return None


class CheckedWindow:
    """A typed window that reports reads of undefined memory and conflicting accesses."""

    __slots__ = ("memory", "name", "offset", "shape", "size", "window")

    def __init__(self, window: Any, memory: Memory, offset: int, size: int, name: str) -> None:
        assert isinstance(memory, CheckedMemory)
        self.window = window
        self.memory: CheckedMemory = memory
        self.offset = offset
        self.size = size
        self.name = name
        self.shape: tuple[int, ...] | None = None
        """The buffer's dims where it is row-major, for messages."""

    def place(self, index: int) -> str:
        """The element in the program's notation, for messages."""
        if self.shape is None:
            return f"element {index} of {self.name}"
        indices: list[int] = []
        for dim in reversed(self.shape):
            index, rest = divmod(index, dim)
            indices.append(rest)
        return f"{self.name}[{', '.join(map(str, reversed(indices)))}]"

    def __len__(self) -> int:
        return len(self.window)

    def __getitem__(self, index: int) -> Any:
        memory, at = self.memory, self.offset + index * self.size
        assert memory.races is not None
        if not all(memory.defined[at : at + self.size]):
            raise RuntimeFailure(
                f"{self.place(index)} is read before it is written",
                why="a parallel iteration may write it at the same time: a race" if memory.races.here else "",
            )
        here = memory.races.here
        if memory.copied:
            self._arrived(at, index, "read")
        if here:
            self._against(memory.writer.get(at), here, "written", "read", index)
            readers = memory.readers.setdefault(at, [])
            # Two readers in different iterations suffice, because any later writer conflicts with one of
            # them.
            readers[1 if readers and conflict(readers[0], here) else 0 :] = [here]
        return self.window[index]

    def __setitem__(self, index: int, value: Any) -> None:
        memory, at = self.memory, self.offset + index * self.size
        self.window[index] = value
        memory.defined[at : at + self.size] = b"\x01" * self.size
        assert memory.races is not None
        here, thread = memory.races.here, memory.races.thread
        if memory.copied:
            self._arrived(at, index, "written")
        if thread.copying and memory.shared:
            memory.copied[at] = thread, thread.ended
        if here:
            self._against(memory.writer.get(at), here, "written", "written", index)
            for reader in memory.readers.get(at, ()):
                self._against(reader, here, "read", "written", index)
            memory.writer[at] = here

    def _arrived(self, at: int, index: int, does: str) -> None:
        thread, number = self.memory.copied.get(at, (None, 0))
        if thread is not None and thread.arrived <= number:
            whose = f"iteration {thread.iteration} of the loop {thread.loop}"
            raise RuntimeFailure(
                f"race: {self.place(index)} is {does} while a copy to it may be under way",
                why=f"{whose} began the copy, and no barrier that waits for it stands between",
            )

    def _against(self, other: Where | None, here: Where, did: str, does: str, index: int) -> None:
        how = None if other is None else conflict(other, here)
        if how is not None:
            raise RuntimeFailure(
                f"race: {self.place(index)} is {did} and {does} by iterations {how}",
                why="nothing orders the two: they are parallel, and no barrier stands between",
            )


def bulk_copy(to: tuple[Any, ...], source: tuple[Any, ...], rank: int, *numbers: int) -> int:
    """Run a tensor copy. Elements outside of the tensor are zeros."""
    first, box, dims, strides = (numbers[i * rank : (i + 1) * rank] for i in range(4))
    into, given = (memory.typed(offset, type_, "a box") for memory, offset, type_ in (to, source))
    for number, at in enumerate(np.ndindex(*box)):
        place = [a + b for a, b in zip(first, at, strict=True)]
        inside = all(0 <= p < dim for p, dim in zip(place, dims, strict=True))
        into[number] = given[sum(p * s for p, s in zip(place, strides, strict=True))] if inside else 0
    return 0


def of_array(array: np.ndarray[Any, Any], races: Races | None) -> Memory:
    """The memory of a C-contiguous array."""
    flat: Any = array.reshape(-1).view(np.uint8)
    data = memoryview(flat)
    return Memory(data) if races is None else CheckedMemory(data, races, defined=True)


def allocate(elements: int, type_: DType, races: Races | None, shared: bool = False) -> Memory:
    """Fresh memory filled with poison."""
    data: Any
    if type_.is_float:
        data = np.full(elements, np.nan).astype(type_.numpy).view(np.uint8)
    else:
        data = np.full(elements * type_.numpy.itemsize, 1 if type_.is_bool else POISON, np.uint8)
    view = memoryview(data)
    return Memory(view) if races is None else CheckedMemory(view, races, defined=False, shared=shared)
