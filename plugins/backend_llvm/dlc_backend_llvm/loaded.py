"""Loaded object code."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping

from dlc_core.diag import CodegenError


class Loaded:
    """Object code in memory. Addresses are valid until `close()`, or until the handle is garbage-collected.

    `free` unmaps the memory. If it is None, the code stays until the process ends.
    """

    def __init__(self, addresses: Mapping[str, int], free: Callable[[], None] | None) -> None:
        self._addresses = dict(addresses)
        self._finalizer = None
        if free is not None:
            self._finalizer = weakref.finalize(self, free)
            self._finalizer.atexit = False

    @property
    def symbols(self) -> tuple[str, ...]:
        """The global symbols that the code defines."""
        return tuple(self._addresses)

    @property
    def closed(self) -> bool:
        """Whether the code has been unmapped."""
        return self._finalizer is not None and not self._finalizer.alive

    def address(self, symbol: str) -> int:
        """The address of a global symbol. Raises CodegenError if there is none or the handle is closed."""
        if self.closed:
            raise CodegenError(f"the code that defines {symbol!r} has been unloaded")
        try:
            return self._addresses[symbol]
        except KeyError:
            known = ", ".join(sorted(self._addresses)[:12])
            raise CodegenError(
                f"no symbol {symbol!r} in the loaded code", hint=f"it defines: {known}"
            ) from None

    def close(self) -> None:
        """Unmap the code, unless it was loaded with `keep`. None of it may be running. A second call has no
        effect.
        """
        if self._finalizer is not None:
            self._finalizer()

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Loaded"]
