"""The thread pool as LLVM IR. `pool.py` describes its interface, `pool_source/pool.c` how it works.

`pool_source/pool.<architecture>.ll` was compiled from the C file by clang (`tools/make_pool_ir.py`), so that
no C compiler is needed at run time. The state is internal and the functions are weak. Several objects that
contain the pool can therefore be linked into one library, which then has one pool. A library that contains it
must never be unmapped, because worker threads wait in its code; `link_shared` marks it `nodelete`. On systems
other than Linux, and on 32-bit machines, the text is a serial `dlc_parallel_for` with the same interface.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dlc_backend_llvm.triples import normal_arch
from dlc_core.diag import UnsupportedError

STOP_WORD, STOP_ENTER, STOP_LOOK = "dlc_stop_word", "dlc_stop_enter", "dlc_stop_look"
STOP_SYMBOLS = (STOP_WORD, STOP_ENTER, STOP_LOOK, "dlc_stop_register", "dlc_stop_clear", "dlc_call_stoppable")
"""Functions of pools that can stop calls; serial pools have none."""
SYMBOLS = ("dlc_parallel_for", "dlc_pool_set_num_threads", "dlc_pool_get_num_threads")
_FOLDER = Path(__file__).with_name("pool_source")
_SERIAL = """
define weak i32 @dlc_parallel_for(ptr %body, ptr %closure, i64 %n, i32 %threads) nounwind {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %end
run:
  call void %body(ptr %closure, i64 0, i64 %n)
  br label %end
end:
  ret i32 0
}
define weak void @dlc_pool_set_num_threads(i32 %n) nounwind { ret void }
define weak i32 @dlc_pool_get_num_threads() nounwind { ret i32 1 }
"""


def pool_ir(triple: str) -> str:
    """The LLVM IR of the pool for `triple`. Raises UnsupportedError for Linux on an unsupported
    architecture.
    """
    arch = normal_arch(triple)
    if _is_serial(triple):
        return _SERIAL
    if arch not in architectures():
        raise UnsupportedError(
            f"the thread pool does not support Linux on {arch}",
            hint=f"it supports {', '.join(architectures())}; num_threads=1 needs no pool",
        )
    return _read(arch)


def _is_serial(triple: str) -> bool:
    return "linux" not in triple or normal_arch(triple).startswith("arm")


def has_stops(triple: str) -> bool:
    """Whether the pool for a machine can stop calls: generated code may then use `STOP_SYMBOLS`."""
    return not _is_serial(triple) and normal_arch(triple) in architectures()


@cache
def architectures() -> tuple[str, ...]:
    """The architectures that the pool was compiled for."""
    return tuple(sorted(path.suffixes[0][1:] for path in _FOLDER.glob("pool.*.ll")))


@cache
def _read(arch: str) -> str:
    return (_FOLDER / f"pool.{arch}.ll").read_text()


__all__ = ["STOP_SYMBOLS", "SYMBOLS", "architectures", "has_stops", "pool_ir"]
