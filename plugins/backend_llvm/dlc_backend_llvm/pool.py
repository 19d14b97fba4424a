"""The thread pool. The same LLVM IR is used in this process and in exported libraries.

    pool_ir(triple) -> str      the LLVM IR for a machine
    pool() -> Pool              the pool of this process; it is loaded once and never freed, and the engine
                                resolves its symbols for kernels

C interface:

    i32 dlc_parallel_for(ptr body, ptr closure, i64 n, i32 num_threads)
        Distributes the items 0 to n - 1 over up to `num_threads` threads (0: the pool's default), which
        include the caller, and returns 0 when all are done. It calls `body(closure, begin, end)`, of the type
        `void(ptr, i64, i64)`, for disjoint ranges. There are at most 8 ranges per thread, so n may be large.
        If n is the number of threads, each range has one item. Nested calls, and calls while another thread
        uses the pool, run `body(closure, 0, n)` on the calling thread. So there is no deadlock, and there are
        never more threads than requested.
    void dlc_pool_set_num_threads(i32 n)
        If n > 0, no call uses more than n threads, and n is the default. If n <= 0, the limit is removed.
    i32 dlc_pool_get_num_threads()
        The default: the limit if there is one, else the number of cores in the affinity mask.
    ptr dlc_stop_word(), dlc_stop_enter(); i32 dlc_stop_look(ptr word)
        The thread's stop word, which code reads; and whether to stop if it is not 0 (`pool_source/pool.c`).

`pool_text.py` explains how it is linked.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING

from dlc_backend_llvm.binding import LOCK, installed
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.loading import load_object
from dlc_backend_llvm.pool_text import STOP_SYMBOLS, SYMBOLS, has_stops, pool_ir
from dlc_backend_llvm.stopping import Stopping
from dlc_backend_llvm.symbols import add_symbol
from dlc_core.disk_cache import disk_cached
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_backend_llvm import engine
else:
    engine = lazy("dlc_backend_llvm.engine")


class Pool:
    """The pool of this process, for callers in Python. Kernels call `dlc_parallel_for` directly."""

    def __init__(self) -> None:
        self._loaded = load_object(_pool_object(), keep=True)
        stops = has_stops(host_cpu().triple)
        for name in (*SYMBOLS, *(STOP_SYMBOLS if stops else ())):
            add_symbol(name, self._loaded.address(name))
        address = self._loaded.address
        self._for = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        )(address(SYMBOLS[0]))
        self._set = ctypes.CFUNCTYPE(None, ctypes.c_int32)(address(SYMBOLS[1]))
        self._get = ctypes.CFUNCTYPE(ctypes.c_int32)(address(SYMBOLS[2]))
        self.stopping = Stopping(self._loaded) if stops else None

    def parallel_for(self, body: int, closure: int, n: int, num_threads: int = 0) -> None:
        """Run the function at address `body` over n items (see the module). The GIL is released during the
        call.
        """
        self._for(body, closure, n, num_threads)

    def set_num_threads(self, n: int) -> None:
        """Limit all further calls to n threads; n <= 0 removes the limit."""
        self._set(n)

    def num_threads(self) -> int:
        """The number of threads of a call with `num_threads` 0."""
        return int(self._get())


def _pool_object() -> bytes:
    """The object code of the pool for this machine, from the cache on disk or compiled now."""
    cpu = host_cpu()
    text, stamp = pool_ir(cpu.triple), installed()

    def make() -> bytes:
        return engine.compile_ir(text, cpu.triple, cpu.cpu, cpu.features)

    return disk_cached("pool", f"{stamp}\n{cpu.cpu} {cpu.features}\n{text}", make) if stamp else make()


def pool() -> Pool:
    """The pool of this process. It is loaded on first use and never freed."""
    with LOCK:
        return _only_pool()


@lru_cache(maxsize=1)
def _only_pool() -> Pool:
    return Pool()


__all__ = ["SYMBOLS", "Pool", "pool", "pool_ir"]
