"""The thread pool: our own code, as LLVM IR text, the same in this process and in exported libraries.

    pool_ir(triple) -> str                         the module text for a machine
    pool() -> Pool                                 the pool of this process: loaded once, never freed, and
                                                   known to the engine, so that kernels may just declare it

C interface:

    i32 dlc_parallel_for(ptr body, ptr closure, i64 n, i32 num_threads)
        Runs the items 0..n-1 as calls `body(closure, begin, end)`, `void(ptr, i64, i64)`, over disjoint
        ranges that cover them, on up to `num_threads` threads, the caller among them (0: the pool's default),
        and returns 0 when all are done.  At most 8 ranges per thread are handed out, so n may be
        fine-grained; n equal to the number of threads gives each range one item.  Nested calls, and calls
        while another thread has the pool, run `body(closure, 0, n)` at once on the calling thread: no
        deadlock, no more threads than asked for.
    void dlc_pool_set_num_threads(i32 n)
        n > 0: no call uses more threads, and 0 means n; n <= 0: undo.
    i32 dlc_pool_get_num_threads()
        What 0 means: the number set, else the cores of the affinity mask.

`pool_text.py` says how it works and how it is linked.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING

from dlc_backend_llvm.binding import LOCK, installed
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.loading import load_object
from dlc_backend_llvm.pool_text import SYMBOLS, pool_ir
from dlc_backend_llvm.symbols import add_symbol
from dlc_core.facts import remembered
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_backend_llvm import engine
else:
    engine = lazy("dlc_backend_llvm.engine")


class Pool:
    """The pool of this process, for callers in Python; kernels call `dlc_parallel_for` themselves."""

    def __init__(self) -> None:
        self._loaded = load_object(_pool_object(), keep=True)
        for name in SYMBOLS:
            add_symbol(name, self._loaded.address(name))
        address = self._loaded.address
        self._for = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        )(address(SYMBOLS[0]))
        self._set = ctypes.CFUNCTYPE(None, ctypes.c_int32)(address(SYMBOLS[1]))
        self._get = ctypes.CFUNCTYPE(ctypes.c_int32)(address(SYMBOLS[2]))

    def parallel_for(self, body: int, closure: int, n: int, num_threads: int = 0) -> None:
        """Run the function at address `body` over n items; see the module.  The GIL is released meanwhile."""
        self._for(body, closure, n, num_threads)

    def set_num_threads(self, n: int) -> None:
        """No call uses more than n threads from now on; n <= 0 lifts the limit."""
        self._set(n)

    def num_threads(self) -> int:
        """How many threads a call that asks for 0 uses."""
        return int(self._get())


def _pool_object() -> bytes:
    """The pool compiled for this machine, or as it was kept."""
    cpu = host_cpu()
    text, stamp = pool_ir(cpu.triple), installed()

    def make() -> bytes:
        return engine.compile_ir(text, cpu.triple, cpu.cpu, cpu.features)

    return remembered("pool", f"{stamp}\n{cpu.cpu} {cpu.features}\n{text}", make) if stamp else make()


def pool() -> Pool:
    """The pool of this process, loaded on first use and never freed."""
    with LOCK:
        return _only_pool()


@lru_cache(maxsize=1)
def _only_pool() -> Pool:
    return Pool()


__all__ = ["SYMBOLS", "Pool", "pool", "pool_ir"]
