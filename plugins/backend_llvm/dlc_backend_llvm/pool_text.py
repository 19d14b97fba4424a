"""The thread pool as LLVM IR text; `pool.py` has its interface, `pool_source/pool.c` says how it works.

`pool_source/pool.<architecture>.ll` is what clang makes of the C file (`tools/make_pool_ir.py`), so that no
C compiler is needed here.  State is internal and functions are weak: objects that each hold this text link
into one library, and then use one pool.  A library that holds it must never be unmapped (`link_shared` marks
it `nodelete`), since its workers sleep in it.  On systems other than Linux, and where an address has 32 bits,
the text is a serial `dlc_parallel_for` with the same interface.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dlc_backend_llvm.triples import normal_arch
from dlc_core.diag import UnsupportedError

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
    """The pool as a module's text for `triple`; UnsupportedError for Linux on an architecture it does not
    know.
    """
    arch = normal_arch(triple)
    if "linux" not in triple or arch.startswith("arm"):
        return _SERIAL
    if arch not in architectures():
        raise UnsupportedError(
            f"the thread pool does not know Linux on {arch}",
            hint=f"it knows {', '.join(architectures())}; compile with num_threads=1 without it",
        )
    return _read(arch)


@cache
def architectures() -> tuple[str, ...]:
    """The architectures that the pool was compiled for."""
    return tuple(sorted(path.suffixes[0][1:] for path in _FOLDER.glob("pool.*.ll")))


@cache
def _read(arch: str) -> str:
    return (_FOLDER / f"pool.{arch}.ll").read_text()


__all__ = ["SYMBOLS", "architectures", "pool_ir"]
