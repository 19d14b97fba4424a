"""Memory of the interpreter: bytes with typed views, and checked memory, which records the iteration that
wrote each element.

A pointer is the tuple (Memory, byte offset, NumPy dtype of the element).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.ir.convert import convert
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
        """For elements that copies wrote: the thread, and the number of the group of copies."""
        self.defined = bytearray(b"\x01" if defined else b"\x00") * len(data)
        self.writer: dict[int, Iterations] = {}
        self.readers: dict[int, list[Iterations]] = {}

    def define(self, offset: int) -> None:
        """Mark all bytes from an offset on as written. Used for functions whose writes are not observed."""
        self.defined[offset:] = b"\x01" * (len(self.defined) - offset)


Iterations = tuple[tuple[int, str, int, int], ...]
"""The parallel iterations around an access: (number of the loop's execution, the loop, the iteration,
barriers passed)."""


class Frame:
    """One iteration of a parallel loop that is being executed."""

    __slots__ = ("arrived", "copying", "epoch", "issued", "iteration", "loop", "number")

    def __init__(self, number: int, loop: str, iteration: int) -> None:
        self.number = number
        self.loop = loop
        self.iteration = iteration
        self.epoch = 0
        """The barriers that the iteration has passed."""
        self.copying = False
        """Whether its writes to shared memory are asynchronous now."""
        self.issued = self.arrived = 0
        """The groups of copies that it has issued, and those that it has waited for."""


class Races:
    """The parallel loops being executed, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Frame] = []
        self.current: Iterations = ()
        self.thread = Frame(0, "", 0)
        """The running thread of a thread group."""
        self._count = 0

    def next_number(self) -> int:
        """A fresh number for one execution of a loop."""
        self._count += 1
        return self._count

    def enter(self, loop: str) -> None:
        self.stack.append(Frame(self.next_number(), loop, 0))

    def step(self, iteration: int) -> None:
        self.stack[-1].iteration = iteration
        self._update()

    def leave(self) -> None:
        self.stack.pop()
        self._update()

    def enter_stack(self, stack: list[Frame]) -> None:
        """Continue as another thread."""
        self.stack = stack
        self.thread = stack[-1] if stack else Frame(0, "", 0)
        self._update()

    def copies_begin(self) -> int:
        self.thread.copying = True
        return 0

    def copies_end(self) -> int:
        self.thread.copying = False
        self.thread.issued += 1
        return 0

    def wait(self, groups: int) -> None:
        """Record that all copies of the thread have arrived, except those of its last `groups` groups."""
        self.thread.arrived = max(self.thread.arrived, self.thread.issued - groups)

    def _update(self) -> None:
        self.current = tuple([(f.number, f.loop, f.iteration, f.epoch) for f in self.stack])


def conflict(a: Iterations, b: Iterations) -> str | None:
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
        """The dims of a row-major buffer, for messages."""

    def element(self, index: int) -> str:
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
                f"{self.element(index)} is read before it is written",
                why="a parallel iteration may write it at the same time: a race"
                if memory.races.current
                else "",
            )
        current = memory.races.current
        if memory.copied:
            self._check_copies(at, index, "read")
        if current:
            self._check_conflict(memory.writer.get(at), current, "written", "read", index)
            readers = memory.readers.setdefault(at, [])
            # Two readers in different iterations suffice, because any later writer conflicts with one of
            # them.
            readers[1 if readers and conflict(readers[0], current) else 0 :] = [current]
        return self.window[index]

    def __setitem__(self, index: int, value: Any) -> None:
        memory, at = self.memory, self.offset + index * self.size
        self.window[index] = value
        memory.defined[at : at + self.size] = b"\x01" * self.size
        assert memory.races is not None
        current, thread = memory.races.current, memory.races.thread
        if memory.copied:
            self._check_copies(at, index, "written")
        if thread.copying and memory.shared:
            memory.copied[at] = thread, thread.issued
        if current:
            self._check_conflict(memory.writer.get(at), current, "written", "written", index)
            for reader in memory.readers.get(at, ()):
                self._check_conflict(reader, current, "read", "written", index)
            memory.writer[at] = current

    def _check_copies(self, at: int, index: int, later: str) -> None:
        thread, number = self.memory.copied.get(at, (None, 0))
        if thread is not None and thread.arrived <= number:
            whose = f"iteration {thread.iteration} of the loop {thread.loop}"
            raise RuntimeFailure(
                f"race: {self.element(index)} is {later} while a copy to it may be under way",
                why=f"{whose} began the copy, and no barrier that waits for it stands between",
            )

    def _check_conflict(
        self, other: Iterations | None, current: Iterations, earlier: str, later: str, index: int
    ) -> None:
        how = None if other is None else conflict(other, current)
        if how is not None:
            raise RuntimeFailure(
                f"race: {self.element(index)} is {earlier} and {later} by iterations {how}",
                why="nothing orders the two: they are parallel, and no barrier stands between",
            )


def bulk_copy(to: tuple[Any, ...], source: tuple[Any, ...], rank: int, *numbers: int) -> int:
    """Run a tensor copy. Elements outside of the tensor are zero."""
    first, box, dims, strides = (numbers[i * rank : (i + 1) * rank] for i in range(4))
    into, given = (memory.typed(offset, type_, "a box") for memory, offset, type_ in (to, source))
    for number, at in enumerate(np.ndindex(*box)):
        indices = [a + b for a, b in zip(first, at, strict=True)]
        inside = all(0 <= i < dim for i, dim in zip(indices, dims, strict=True))
        into[number] = given[sum(i * s for i, s in zip(indices, strides, strict=True))] if inside else 0
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
        data = convert(np.full(elements, np.nan), type_).view(np.uint8)
    else:
        data = np.full(elements * type_.numpy.itemsize, 1 if type_.is_bool else POISON, np.uint8)
    view = memoryview(data)
    return Memory(view) if races is None else CheckedMemory(view, races, defined=False, shared=shared)
