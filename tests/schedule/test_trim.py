"""Loops that end where a condition excludes further elements; conditions that loop ranges decide."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, const, select
from dlc_core.schedule import Schedule
from dlc_core.schedule.rules.analysis import loads_of
from dlc_core.tir.interpreter import run
from dlc_core.tir.intrinsics import if_then_else

N = Var("n")


def prefix_sums(n=8, tile=1, low=False):
    """B[i] is the sum of A[k] up to the end of the tile of i; with `low`, from half of that on."""
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis(n, "k")

    def body(i):
        cond = k.var <= i // tile * tile + (tile - 1)
        return te.sum(a[k], axis=k, where=cond & (k.var * 2 >= i) if low else cond)

    b = te.compute((n,), body, name="B")
    sch = Schedule(te.create_prim_func([a], [b]))
    return sch, sch.get_block("B")


def expected(x, tile):
    return np.array([x[: i // tile * tile + tile].sum() for i in range(len(x))], np.float32)


def result(sch, x, *sizes):
    out = np.zeros_like(x)
    run(sch.func, x, out, *sizes)
    return out


def test_conditions_that_the_loop_ensures_are_removed():
    sch, block = prefix_sums()
    k = sch.get_loops(block)[1]
    sch.trim(k)
    assert str(sch.extent(k)) == "i + 1"
    assert "select" not in sch.func.script()
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(result(sch, x), expected(x, 1))


def test_tiles_end_together():
    sch, block = prefix_sums(12, tile=4)
    i, k = sch.get_loops(block)
    outer, inner = sch.split(i, [None, 4])
    sch.trim(k)
    assert str(sch.extent(k)) == "i_0 * 4 + 4"
    sch.reorder(outer, k, inner)
    x = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(result(sch, x), expected(x, 4))


def test_conditions_on_inner_loops_are_kept():
    sch, block = prefix_sums(12, tile=1)
    i, k = sch.get_loops(block)
    outer, inner = sch.split(i, [None, 4])
    sch.reorder(outer, k, inner)
    sch.trim(k)
    assert str(sch.extent(k)) == "i_0 * 4 + 4"
    assert "select" in sch.func.script()
    x = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(result(sch, x), expected(x, 1))


def test_symbolic_sizes():
    sch, block = prefix_sums(N, tile=4)
    sch.trim(sch.get_loops(block)[1])
    for n in (1, 6, 8):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(result(sch, x, n), expected(x, 4))


def test_lower_bounds_are_kept():
    sch, block = prefix_sums(low=True)
    sch.trim(sch.get_loops(block)[1])
    x = np.arange(8, dtype=np.float32)
    wanted = [sum(k for k in range(i + 1) if 2 * k >= i) for i in range(8)]
    np.testing.assert_array_equal(result(sch, x), np.array(wanted, np.float32))


def test_a_loop_without_a_condition_is_unchanged():
    a = te.placeholder((8, 4), name="A")
    k = te.reduce_axis(4, "k")
    sch = Schedule(te.create_prim_func([a], [te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")]))
    before = sch.func
    sch.trim(sch.get_loops(sch.get_block("B"))[1])
    assert sch.func is before


def test_a_loop_around_several_blocks_is_refused():
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    sch = Schedule(te.create_prim_func([a], [te.compute((8,), lambda i: b[i] * 2.0, name="C")]))
    loop = sch.get_loops(sch.get_block("C"))[0]
    sch.compute_at(sch.get_block("B"), loop)
    with pytest.raises(ScheduleError, match="besides one block"):
        sch.trim(loop)


def shifted():
    """B[i] is A[i - 2] for i >= 2, minus C[i] for i >= 5."""
    a, c = te.placeholder((N,), name="A"), te.placeholder((N + 2,), name="C")

    def body(i):
        later = select(i >= 5, c[i], const(0.0, "float32"))
        return if_then_else(i >= 2, a[i - 2], const(0.0, "float32")) - later

    b = te.compute((N + 2,), body, name="B")
    return Schedule(te.create_prim_func([a, c], [b]))


def test_partitions_read_only_their_ranges():
    sch = shifted()
    (i,) = sch.get_loops(sch.get_block("B"))
    first, rest = sch.partition(i, [2])
    for part in (first, rest):
        sch.decide(part.loop)
    names = [[e.buffer.name for e in loads_of(sch.get(part[sch.get_block("B")]))] for part in (first, rest)]
    assert names == [[], ["A", "C"]]
    assert "select" in sch.func.script()
    a, c = np.arange(7, dtype=np.float32), np.arange(9, dtype=np.float32) ** 2
    out = np.zeros(9, np.float32)
    run(sch.func, a, c, out, 7)
    wanted = np.concatenate([np.zeros(2), a]) - np.where(np.arange(9) >= 5, c, 0)
    np.testing.assert_array_equal(out, wanted)


def test_conditions_on_loaded_values_are_kept():
    a = te.placeholder((4,), name="A")
    sch = Schedule(
        te.create_prim_func(
            [a], [te.compute((4,), lambda i: if_then_else(a[i] > 0, a[i], const(0.0, "float32")), "B")]
        )
    )
    before = sch.func
    sch.decide(sch.get_loops(sch.get_block("B"))[0])
    assert sch.func.script() == before.script()
