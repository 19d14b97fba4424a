"""Object code in memory, from any loader."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping

from dlc_core.diag import CodegenError


class Loaded:
    """Object code in memory; addresses are valid until `close()` or until the handle is collected.

    `free` gives the memory back; None lets the code stay until the process ends.
    """

    def __init__(self, addresses: Mapping[str, int], free: Callable[[], None] | None) -> None:
        self._addresses = dict(addresses)
        self._finalizer = None
        if free is not None:
            self._finalizer = weakref.finalize(self, free)
            self._finalizer.atexit = False

    @property
    def symbols(self) -> tuple[str, ...]:
        """The global symbols this load defines."""
        return tuple(self._addresses)

    @property
    def closed(self) -> bool:
        """Whether the code has been unmapped."""
        return self._finalizer is not None and not self._finalizer.alive

    def address(self, symbol: str) -> int:
        """Address of a global symbol; CodegenError where there is none or the handle is closed."""
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
        """Unmap the code (kept code stays).  Nothing may be running in it.  Closing twice is fine."""
        if self._finalizer is not None:
            self._finalizer()

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Loaded"]
