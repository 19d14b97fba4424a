"""A device whose calls can be made to fail, and whose memory is counted.

device = Faulty(registry().devices["npu"])
exe = executable_on(compiled, device)
with device.failing("launch", OSError("the bus is gone"), after=2):
    exe(x)                              # its third launch raises
device.live                             # the handles that are not freed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dlc_core.target import Artifact

EVERY = "*"
"""All methods."""


class Faulty:
    """A wrapper of a device. It hides the optional members `prepare` and `launcher`, so that all calls use
    `launch`.
    """

    def __init__(self, device: Any) -> None:
        self.inner = device
        self.live: set[int] = set()
        self.calls: Counter[str] = Counter()
        self._faults: dict[str, tuple[int, BaseException]] = {}

    @contextmanager
    def failing(self, method: str, error: BaseException, after: int = 0) -> Iterator[None]:
        """Within this context, calls of a method raise `error`, after `after` successful ones."""
        self._faults[method] = (self._count(method) + after, error)
        try:
            yield
        finally:
            del self._faults[method]

    def _count(self, method: str) -> int:
        return self.calls.total() if method == EVERY else self.calls[method]

    def _count_or_fail(self, method: str) -> None:
        for key in (method, EVERY):
            allowed, error = self._faults.get(key, (0, None))
            if error is not None and self._count(key) >= allowed:
                raise error
        self.calls[method] += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def alloc(self, size: int, align: int = 64) -> int:
        self._count_or_fail("alloc")
        handle: int = self.inner.alloc(size, align)
        self.live.add(handle)
        return handle

    def free(self, handle: int) -> None:
        self.inner.free(handle)
        self.live.discard(handle)

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        self._count_or_fail("write")
        self.inner.write(handle, data, offset)

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        self._count_or_fail("read")
        self.inner.read(handle, out, offset)

    def load(self, artifact: Artifact) -> _Loaded:
        self._count_or_fail("load")
        return _Loaded(self, self.inner.load(artifact))

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        self._count_or_fail("launch")
        self.inner.launch(entry.inner, buffers, scalars, threads)

    def sync(self) -> None:
        self._count_or_fail("sync")
        self.inner.sync()


class _Loaded:
    """Code on the wrapped device."""

    def __init__(self, device: Faulty, inner: Any) -> None:
        self._device = device
        self._inner = inner

    def entry(self, symbol: str) -> Any:
        found = self._inner.entry(symbol)
        return _Evaluated(self._device, found) if hasattr(found, "evaluate") else _Entry(found)

    def close(self) -> None:
        self._inner.close()


class _Entry:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


class _Evaluated(_Entry):
    """An entry point that takes and returns arrays. `evaluate` counts as `launch`."""

    def __init__(self, device: Faulty, inner: Any) -> None:
        super().__init__(inner)
        self._device = device

    def evaluate(self, *args: Any) -> Any:
        self._device._count_or_fail("launch")
        return self.inner.evaluate(*args)


__all__ = ["EVERY", "Faulty"]
