"""Kernels are scheduled in spite of bounds of dims."""

import numpy as np
import pytest

from dlc_core.diag import ScheduleError, UsageError
from dlc_core.ir.bounds import Bounds
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.script import parse
from dlc_core.target import Description
from dlc_core.testing.schedules import target_of
from dlc_core.tir.functor import stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import For

KERNEL = """@T.prim_func
def main(A: T.Buffer((n, m), "float32"), B: T.Buffer((n, m), "float32"), n: T.dim(1, 8), m: T.int64):
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1.0
"""


class NoBounds:
    """A rule that refuses kernels with bounds of dims, or all kernels."""

    name, priority = "acme.no_bounds", 900

    def __init__(self, all_dims):
        self.all_dims = all_dims

    def matches(self, func, machine):
        return True

    def apply(self, schedule, machine):
        if self.all_dims or any(v.bounds for v in schedule.func.scalars):
            raise ScheduleError("bounds are not supported")
        schedule.parallel(schedule.get_loops(schedule.get_block("B"))[0])


@pytest.mark.parametrize("all_dims", [False, True])
def test_rules_that_refuse_bounds_are_retried_without_them(all_dims):
    context = PassContext(target=target_of(Description()), schedule_rules=(NoBounds(all_dims),))
    made = ScheduleKernels().run_function(parse(KERNEL), context)
    assert (made.attrs["rule"] == NoBounds.name) is not all_dims
    refused = [why.partition(":")[0] for why in made.attrs["why_not"]]
    assert refused == ([NoBounds.name] if all_dims else [])
    assert [v.bounds for v in made.scalars] == [Bounds(1, 8), None]
    if not all_dims:
        outer = next(s for s in stmts(made.body) if isinstance(s, For))
        assert outer.kind == "parallel"
        assert outer.extent is made.scalars[0]
    x, y = np.ones((3, 5), np.float32), np.zeros((3, 5), np.float32)
    run(made, x, y, 3, 5)
    np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(UsageError, match=r"n is 9, and main takes n in 1\.\.8"):
        run(made, np.ones((9, 5), np.float32), np.ones((9, 5), np.float32))


def test_loops_of_at_most_one_iteration_are_parallel():
    text = KERNEL.replace("T.dim(1, 8)", "T.dim(1, 3)").replace("T.grid(n, m)", "T.grid(n, m // 2)")
    text = text.replace("m: T.int64", "m: T.dim(2, 3)")
    context = PassContext(target=target_of(Description()))
    made = ScheduleKernels().run_function(parse(text), context)
    assert made.attrs["why_not"] == ()
