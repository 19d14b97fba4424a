"""`skip_zeros` skips taps of a convolution that are outside of the input, and keeps results."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.schedule import Schedule
from dlc_core.testing.schedules import check_schedule
from dlc_core.tir.functor import stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import If
from tests.schedule.test_rules_contraction import MACHINES, conv


def filtered(size=9, taps=3, gap=4, other=0.0, begin=True):
    """A filter over a signal with padding: B[i] is the sum of P[i + k * gap, c] * W[k, c] over k and c."""
    a, w = te.placeholder((size, 2), name="A"), te.placeholder((taps, 2), name="W")
    edge = (taps - 1) * gap // 2

    def body(i, c):
        return if_then_else((i >= edge) & (i - edge < size), a[i - edge, c], te.const(other, "float32"))

    p = te.compute((size + 2 * edge, 2), body, name="P")
    k, c = te.reduce_axis(taps, "k"), te.reduce_axis(2, "c")
    b = te.compute(
        (size,), lambda i: te.sum(p[i + k.var * gap, c.var] * w[k.var, c.var], axis=[k, c]), name="B"
    )
    sch = Schedule(te.create_prim_func([a, w], [b]))
    block = sch.get_block("B")
    i, k, c = sch.get_loops(block)
    if begin:
        sch.decompose_reduction(block, k)
    return sch, i, k, c


def result(sch, size=9, taps=3):
    rng = np.random.default_rng(2)
    a, w = (rng.standard_normal((n, 2)).astype(np.float32) for n in (size, taps))
    out = np.zeros(size, np.float32)
    run(sch.func, a, w, out, check=True)
    return out


def test_taps_outside_are_skipped():
    plain = result(filtered()[0])
    sch, _, k, _ = filtered()
    assert sch.zero_share(k) == pytest.approx(8 / 27)
    sch.skip_zeros(k)
    (test,) = (s for s in stmts(sch.func.body) if isinstance(s, If))
    assert str(test.cond) == "k * 4 + i - 4 >= 0 and 12 - k * 4 - i >= 0"
    np.testing.assert_array_equal(result(sch), plain)
    assert sch.zero_share(k) == pytest.approx(8 / 27)


def test_tiles_test_whether_one_of_their_taps_is_inside():
    plain = result(filtered()[0])
    sch, i, k, c = filtered(begin=False)
    outer, inner = sch.split(i, [None, 3], tail="exact")
    sch.reorder(outer, k, c, inner)
    sch.decompose_reduction(sch.get_block("B"), k)
    assert sch.zero_share(k) == pytest.approx(2 / 9)
    sch.skip_zeros(k)
    np.testing.assert_array_equal(result(sch), plain)


def test_other_values_are_not_skipped():
    for sch, _, k, _ in (filtered(other=1.0), filtered(gap=0)):
        before = sch.func.script()
        assert sch.zero_share(k) == 0
        sch.skip_zeros(k)
        assert sch.func.script() == before


def test_refuses_sums_that_it_would_not_initialise():
    sch, *_ = filtered()
    whole = Schedule(te.create_prim_func(*_parts()))
    loop = whole.get_loops(whole.get_block("B"))[1]
    with pytest.raises(ScheduleError, match="decompose_reduction"):
        whole.skip_zeros(loop)
    with pytest.raises(ScheduleError, match="does not add a product"):
        sch.skip_zeros(sch.get_loops(sch.get_block("P"))[0])


def _parts():
    a = te.placeholder((4, 4), name="A")
    k = te.reduce_axis(4, "k")
    return [a], [te.compute((4,), lambda i: te.sum(a[i, k.var] * a[i, k.var], axis=k), name="B")]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("gap", [3, 5])
def test_convolutions_with_large_dilations_skip_taps(gap, machine):
    func = conv(8, (9, 8), 20, (3, 3), dilation=(gap, gap), padding=(gap,) * 4)
    made = check_schedule(func, machine)
    assert made.attrs["why_not"] == ()
    assert any(str(choice).startswith("gemm.padding=skipped") for choice in made.attrs["decisions"])
