"""The contract of `split`: ranges are covered once, in order, for all factors and tails."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlc_core import te
from dlc_core.arith import eval_expr
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, const_value
from dlc_core.schedule import BlockRV, Schedule
from dlc_core.tir.functor import stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import For, If
from dlc_core.tir.verify import verify_func

X = BlockRV("x")


def scaled(extent):
    a = te.placeholder((extent,), name="A")
    return te.create_prim_func([a, te.compute((extent,), lambda i: a[i] * 2.0, "x")])


def check(sch: Schedule, extent: int, *scalars: int) -> None:
    verify_func(sch.func, level=2)
    given, found = np.arange(extent, dtype=np.float32), np.full(extent, 99, np.float32)
    run(sch.func, given, found, *scalars, check=True)
    assert np.array_equal(found, given * 2)


FACTORS = [[None, 4], [None, 2, 3], [3, None], [2, None, 2], [None, 1], [None, 40]]
TAILS = ("predicate", "shrink", "partition", "balanced", "exact")


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("factors", FACTORS, ids=str)
@pytest.mark.parametrize("extent", [1, 12, 13])
def test_every_tail_covers_the_range(extent, factors, tail):
    sch = Schedule(scaled(extent))
    known = math.prod(f for f in factors if f is not None)
    simple = len(factors) == 2 and factors[0] is None
    if extent % known and (tail == "exact" or (tail == "balanced" and not simple)):
        with pytest.raises(ScheduleError):
            sch.split(sch.get_loops(X)[0], factors, tail)
        return
    loops = sch.split(sch.get_loops(X)[0], factors, tail)
    assert len(loops) == len(factors)
    check(sch, extent)
    if extent % known == 0:
        assert loops.tail is None
        assert const_value(sch.get(X).predicate) == 1
        assert [const_value(sch.extent(x)) for x in loops] == [f or extent // known for f in factors]


@pytest.mark.parametrize("tail", ["predicate", "shrink", "partition"])
@pytest.mark.parametrize("extent", [1, 3, 7, 12, 13])
def test_extents_and_factors_may_be_symbolic(extent, tail):
    n = Var("n")
    third = n // 3 + 1
    for factors in ([None, 4], [None, third], [third, None], [None, third, 2], [2, None, third]):
        sch = Schedule(scaled(n))
        sch.split(sch.get_loops(X)[0], factors, tail)
        check(sch, extent, extent)


def test_predicates_guard_only_partial_tiles():
    sch = Schedule(scaled(12))
    sch.split(sch.get_loops(X)[0], [None, 4])
    assert const_value(sch.get(X).predicate) == 1
    sch = Schedule(scaled(13))
    sch.split(sch.get_loops(X)[0], [None, 4])
    assert const_value(sch.get(X).predicate) is None


def test_shrunk_tiles_have_no_conditions_and_become_constant():
    sch = Schedule(scaled(13))
    outer, inner = sch.split(sch.get_loops(X)[0], [None, 4], tail="shrink")
    assert const_value(sch.get(X).predicate) == 1
    assert not any(isinstance(s, If) for s in stmts(sch.func.body))
    sizes = [eval_expr(sch.extent(inner), {outer.var: t}) for t in range(const_value(sch.extent(outer)))]
    assert sizes == [4, 4, 4, 1]
    full, rest = sch.partition(outer, [3])
    assert [const_value(sch.extent(c[inner])) for c in (full, rest)] == [4, 1]
    check(sch, 13)


@pytest.mark.parametrize(
    ("extent", "factors", "sizes"),
    [
        (12, [None, 4], [3, 4]),
        (13, [None, 2, 4], [2, 2, None]),
        (13, [None, 1, 4], [4, 1, None]),
        (11, [3, 4], [3, None]),
        (11, [3, 2, 2], [3, 2, None]),
    ],
)
def test_extents_that_never_shrink_are_constant(extent, factors, sizes):
    sch = Schedule(scaled(extent))
    loops = sch.split(sch.get_loops(X)[0], factors, tail="shrink")
    assert [const_value(sch.extent(loop)) for loop in loops] == sizes
    check(sch, extent)


@pytest.mark.parametrize(
    ("extent", "size", "sizes"), [(13, 4, [4, 3, 3, 3]), (12, 5, [4, 4, 4]), (14, 4, [4, 4, 3, 3])]
)
def test_balanced_tiles_differ_by_one_at_most(extent, size, sizes):
    sch = Schedule(scaled(extent))
    outer, inner = sch.split(sch.get_loops(X)[0], [None, size], tail="balanced")
    found = [eval_expr(sch.extent(inner), {outer.var: t}) for t in range(const_value(sch.extent(outer)))]
    assert found == sizes
    larger = sum(s == sizes[0] for s in sizes)
    if larger < len(sizes):
        first, rest = sch.partition(outer, [larger])
        assert [const_value(sch.extent(c[inner])) for c in (first, rest)] == [sizes[0], sizes[-1]]
    check(sch, extent)


def test_partitioned_tails_are_copies_over_the_rest():
    sch = Schedule(scaled(13))
    loops = sch.split(sch.get_loops(X)[0], [None, 2, 2], tail="partition")
    assert [const_value(sch.extent(x)) for x in loops] == [3, 2, 2]
    assert loops.tail is not None
    tail = sch.get_for(loops.tail.loop)
    assert isinstance(tail, For)
    assert (const_value(tail.begin), const_value(tail.extent)) == (12, 1)
    assert loops.tail[X] == BlockRV("x_1")
    check(sch, 13)


def test_exact_splits_refuse_tails():
    n = Var("n")
    sch = Schedule(scaled(n))
    with pytest.raises(ScheduleError, match="not known to be a multiple of 4"):
        sch.split(sch.get_loops(X)[0], [None, 4], tail="exact")
    whole = Schedule(scaled(n * 4))
    whole.split(whole.get_loops(X)[0], [None, 4], tail="exact")
    assert str(whole.extent(whole.get_loops(X)[0])) == "n"
