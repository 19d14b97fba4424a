"""Analysis of blocks: the operands of a contraction, and its dot products."""

from __future__ import annotations

import pytest

from dlc_core import te
from dlc_core.schedule.rules.analysis import anchor
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.dots import dot_for
from tests.schedule.test_rules_tiles import MACHINE, PAIRS, product


@pytest.mark.parametrize(
    ("kind", "steps", "suited"),
    [
        *(("bytes", steps, steps % 4 == 0) for steps in (1, 2, 3, 4, 6, 8, 12)),
        *(("bfloat16", steps, steps % 2 == 0) for steps in (1, 2, 3, 4, 5)),
    ],
)
def test_dot_products_take_whole_groups_of_steps(kind, steps, suited):
    func = product(5, 16, steps, PAIRS[kind])
    found = anchor(func)
    assert found is not None
    dot = dot_for(func, found, Machine(MACHINE, 1))
    assert (dot is not None) == suited
    if dot is not None:
        assert dot.group == (4 if kind == "bytes" else 2)


@pytest.mark.parametrize("shared", [False, True])
def test_operands_have_the_axes_of_all_their_inputs(shared):
    """Numbers, a zero point for each row or for each column, and a scale for each step."""
    x, w = te.placeholder((6, 8), "int8", name="X"), te.placeholder((8, 10), "int8", name="W")
    zero = te.placeholder((10,) if shared else (6,), "int8", name="Z")
    scale = te.placeholder((8,), "int8", name="S")
    k = te.reduce_axis(8, "k")

    def body(i, j):
        left = (x[i, k].astype("int32") - zero[j if shared else i].astype("int32")) * scale[k].astype("int32")
        return te.sum(left * w[k, j].astype("int32"), axis=k)

    y = te.compute((6, 10), body, "y")
    found = anchor(te.create_prim_func([x, zero, scale, w], [y]))
    if shared:
        assert found is None, "both operands have the columns"
    else:
        assert found is not None
        assert found.lhs.load.buffer.name == "X"
        assert len(found.lhs.other_factors) == 2
        assert len(found.m) == 1
