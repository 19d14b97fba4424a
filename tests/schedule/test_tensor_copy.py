"""Loop nests that become tensor copies, and their lowering."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import ScheduleError
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.tir import PASSES
from dlc_core.schedule import LoopRV, Schedule
from dlc_core.script import parse, script
from dlc_core.tir.functor import stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import For
from dlc_core.tir.tensor_copy import bulk_copies, tensor_copy_of
from dlc_core.tir.verify import verify_func

KNOWN = {cls.name: cls for cls in PASSES}
LAUNCH = "unify_thread_binding | lower_blocks | thread_sync | bulk_copies"
TILES = """
@T.prim_func
def main(a: T.Buffer((5, 72), "float32"), b: T.Buffer((2, 3, 4, 32), "float32")):
    for g in T.thread_binding(2, thread="block.x"):
        for c in range(3):
            s = T.alloc_buffer((4, 32), "float32", scope="shared")
            for i in range(4):
                for j in range(32):
                    s[i, j] = T.if_then_else(
                        g * 4 + i < 5 and c * 32 + j < 72, a[g * 4 + i, c * 32 + j], T.float32(0))
            for t in T.thread_binding(32, thread="thread.x"):
                for k in range(4):
                    b[g, c, k, t] = s[k, t]
"""


def scheduled(text: str) -> Schedule:
    sch = Schedule(parse(text))
    (loop,) = (s for s in stmts(sch.func.body) if isinstance(s, For) and s.var.name == "i")
    sch.bulk_copy(LoopRV(loop.var))
    return sch


@pytest.mark.parametrize("passes", ["unify_thread_binding | thread_sync", LAUNCH])
def test_tensor_copies_equal_their_loops(passes: str) -> None:
    func = scheduled(TILES).func
    launched = Pipeline.parse(passes, KNOWN).run(IRModule({"main": func}), PassContext())["main"]
    verify_func(launched, level=2)
    assert script(parse(script(launched))) == script(launched)
    calls = bulk_copies(launched.body)
    assert len(calls) == ("bulk" in passes)
    for call in calls:
        one = tensor_copy_of(call)
        assert (one.box, [int(d.value) for d in one.dims]) == ((4, 32), [5, 72])
    a, b = np.random.default_rng(0).random((5, 72), np.float32), np.empty((2, 3, 4, 32), np.float32)
    run(launched, a, b, check=True)
    wide = np.pad(a, ((0, 3), (0, 24)))
    np.testing.assert_array_equal(b, wide.reshape(2, 4, 3, 32).transpose(0, 2, 1, 3))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("a[g * 4 + i, c * 32 + j], T", "a[g * 4 + i, c * 32 + 31 - j], T", "does not move by one"),
        ("g * 4 + i < 5 and", "g * 4 + i < 4 and", "elements inside of the tensor are taken as zero"),
        ("T.float32(0)", "T.float32(1)", "does not fill shared memory from global memory"),
        ("s[i, j] = ", "s[3 - i, j] = ", "is not filled without gaps"),
        ("72", "73", "not known to be multiples of 16 bytes"),
        ("a[g * 4 + i, c * 32 + j], T", "a[g * 4 + i, i + j], T", "moves with several loops"),
    ],
)
def test_other_nests_are_refused(old: str, new: str, why: str) -> None:
    assert old in TILES
    with pytest.raises(ScheduleError, match=why):
        scheduled(TILES.replace(old, new))
