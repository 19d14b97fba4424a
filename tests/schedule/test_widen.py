"""`widen` extends a loop over unread elements of an intermediate buffer."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, const_value
from dlc_core.schedule import Schedule
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule
from dlc_core.tir.functor import stmts, stmts_of
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import Alloc, Block, For
from tests.schedule.test_rules_contraction import conv, matmul


def table(wide=8, read=5):
    """C[i, j] = B[i, j] + 1 and B[i, j] = A[j] * 2 for j < `read`, where A has `wide` elements."""
    a = te.placeholder((wide,), name="A")
    b = te.compute((3, read), lambda i, j: a[j] * 2.0, name="B")
    c = te.compute((3, read), lambda i, j: b[i, j] + 1.0, name="C")
    sch = Schedule(te.create_prim_func([a], [c]))
    return sch, *sch.get_loops(sch.get_block("B"))


def test_further_elements_are_computed_and_not_read():
    sch, _, j = table()
    sch.widen(j, 8)
    assert const_value(sch.extent(j)) == 8
    (buffer,) = (s.buffer for s in stmts(sch.func.body) if isinstance(s, Alloc))
    assert [const_value(size) for size in buffer.shape] == [3, 8]
    x, out = np.arange(8, dtype=np.float32), np.zeros((3, 5), np.float32)
    run(sch.func, x, out, check=True)
    np.testing.assert_array_equal(out, np.tile(x[:5] * 2 + 1, (3, 1)))
    sch.widen(j, 8)


def test_refuses_loads_outside_of_a_buffer():
    sch, _, j = table(wide=7)
    before = sch.func.script()
    with pytest.raises(ScheduleError, match="read outside of A"):
        sch.widen(j, 8)
    assert sch.func.script() == before


def test_refuses_elements_that_are_read():
    sch, _, j = table()
    first, rest = sch.partition(j, [2])
    with pytest.raises(ScheduleError, match="elements of B from 2 on may be read"):
        sch.widen(first.loop, 4)
    sch.widen(rest.loop, 6)


def test_refuses_parameters_and_shorter_loops():
    sch, i, j = table()
    with pytest.raises(ScheduleError, match="at most 4 iterations"):
        sch.widen(j, 4)
    with pytest.raises(ScheduleError, match="one dim of an intermediate buffer"):
        sch.widen(sch.get_loops(sch.get_block("C"))[1], 8)
    sch.widen(i, 4)
    sch.vectorize(j)
    with pytest.raises(ScheduleError, match="not a serial loop"):
        sch.widen(j, 8)


@pytest.mark.parametrize("columns", [3, 7, 11, 12, 21, 25, 28, 31, 45, 91])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_tails_of_packed_weights_are_whole_vectors(bits, columns):
    machine = Description(vector_bits=bits, vector_registers=32 if bits == 512 else 16, cores=2)
    for func in (
        matmul((9, 6), (6, columns), constants=(1,)),
        matmul((Var("n"), 6), (6, columns), constants=(1,)),
        conv(3, (5, 4), columns, (3, 3), padding=(1, 1, 1, 1)),
    ):
        made = check_schedule(func, machine, dict.fromkeys(func.scalars, 11))
        assert (made.attrs["rule"], made.attrs["why_not"]) == ("cpu.contraction", ())
        sums = {
            const_value(loop.extent)
            for loop in stmts_of(made.body, For)
            for block in stmts_of(loop, Block)
            if loop.kind == "vectorized" and block.writes[0].buffer.scope == "local"
        }
        tail = columns % (bits // 32)
        assert sums
        assert sums <= {bits // 32, *([tail] if tail.bit_count() == 1 else [])}
