"""Regions that blocks pass to functions outside of the program: proved, or refused."""

from __future__ import annotations

import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.passes import PassContext
from dlc_core.passes.tir import lower_blocks
from dlc_core.passes.tir.prove_bounds import BOUNDS, ProveBounds
from dlc_core.passes.tir.prove_regions import REGIONS, ProveRegions
from dlc_core.schedule import Schedule
from dlc_core.script import parse
from tests.schedule.products import EXTERN

PROGRAM = """
@T.prim_func
def f(A: T.Buffer(({size},), "float32"), n: T.int64):
    for i in range({count}):
        with T.block("tile"):
            v = T.axis.spatial({count}, i)
            T.where({where})
            T.reads(A[{begin} : {begin} + 16])
            T.writes(A[{begin} : {begin} + 16])
            T.evaluate(T.call_extern("fill16", T.address_of(A[{begin}]), dtype="int32"))
"""
RIGHT = {
    "whole tiles": {"size": "64", "count": "4"},
    "overlapping tiles": {"size": "64", "count": "7", "begin": "v * 8"},
    "whole tiles of n": {"size": "n", "count": "n // 16"},
    "a condition": {"size": "n", "count": "(n + 15) // 16", "where": "i * 16 + 16 <= n"},
    "a padded buffer": {"size": "(n + 15) // 16 * 16", "count": "(n + 15) // 16"},
    "the last tile moved": {"size": "n + 16", "count": "n // 16 + 1", "begin": "T.min(v * 16, n)"},
}
WRONG = {
    "one tile too many": {"size": "64", "count": "5"},
    "one element too many": {"size": "64", "count": "4", "begin": "v * 16 + 1"},
    "one element before": {"size": "64", "count": "4", "begin": "v * 16 - 1"},
    "a tail": {"size": "n", "count": "(n + 15) // 16"},
    "a weaker condition": {"size": "n", "count": "(n + 15) // 16", "where": "i * 16 + 15 <= n"},
    "another buffer's padding": {"size": "(n + 7) // 8 * 8", "count": "(n + 15) // 16"},
}


def program(size, count, where="True", begin="v * 16"):
    return parse(PROGRAM.format(size=size, count=count, where=where, begin=begin))


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_regions_inside_are_proved(case):
    func = ProveRegions().run_function(program(**case), PassContext())
    assert func.attrs[REGIONS] == 1
    counted = ProveBounds().run_function(lower_blocks(func), PassContext())
    assert counted.attrs[BOUNDS][0] >= 1


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_refuses_regions_that_may_be_out_of_bounds(case):
    with pytest.raises(ScheduleError, match="block tile passes A") as caught:
        ProveRegions().run_function(program(**case), PassContext())
    assert "extern.fill16" in str(caught.value)
    assert ("which is inside if" in str(caught.value)) is (case["size"] != "64")


DECLARED = """
@T.prim_func
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(4):
        with T.block("tile"):
            v = T.axis.spatial(4, i)
            T.reads()
            T.writes({region})
            T.evaluate(T.call_extern("fill16", T.address_of(A[{index}]), dtype="int32"))
"""


@pytest.mark.parametrize(
    ("region", "index", "why"),
    [
        ("A[v * 16 : v * 16 + 16]", "v * 16", ""),
        ("A[v * 16 : v * 16 + 16]", "v * 16 + 15", ""),
        ("A[0:16], A[v * 16 : v * 16 + 16]", "v * 16", ""),
        ("B[v * 16 : v * 16 + 16]", "v * 16 + 1", "declares no region of A"),
        ("A[0:16]", "63 - v", "declares A[0:"),
        ("A[v * 16 : v * 16 + 16]", "v * 16 + 16 - v // 3 * 16", "declares A[v * 16:"),
    ],
)
def test_refuses_addresses_outside_of_declared_regions(region, index, why):
    func = parse(DECLARED.format(region=region, index=index))
    if not why:
        assert ProveRegions().run_function(func, PassContext()).attrs[REGIONS] >= 1
        return
    with pytest.raises(ScheduleError, match="passes the address of A") as caught:
        ProveRegions().run_function(func, PassContext())
    assert why in str(caught.value)


@pytest.mark.parametrize(("rows", "columns"), [(64, 96), (16, 16)])
def test_tensorized_blocks_are_proved(rows, columns):
    x, w = te.placeholder((rows, 48), name="x"), te.placeholder((48, columns), name="w")
    k = te.reduce_axis((0, 48), "k")
    y = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")
    s = Schedule(te.create_prim_func([x, w, y]))
    block = s.get_block("y")
    i, j, k = s.get_loops(block)
    (i, row), (j, column), (k, step) = (s.split(loop, [None, 16]) for loop in (i, j, k))
    s.reorder(i, j, k, row, column, step)
    s.decompose_reduction(block, k)
    s.tensorize(row, EXTERN)
    assert ProveRegions().run_function(s.func, PassContext()).attrs[REGIONS] == 4


def test_keeps_programs_that_pass_no_addresses():
    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1.0, name="y")])
    assert ProveRegions().run_function(func, PassContext()) is func
