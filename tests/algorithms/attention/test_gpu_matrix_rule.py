"""Launches of attention by matrix units. The unit is small, so that interpretation is fast; its fragments are
laid out like those of large units.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc_core.algorithms.attention.choice import is_supported, lanes_of, online_for, online_plan
from dlc_core.diag import UsageError
from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Var, const_value
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.lanes import lanes_intrin
from dlc_core.schedule.matrices import Tiles, chain_of, matrix_intrin
from dlc_core.testing.intrins import check_intrin
from dlc_core.testing.launches import check_launches, launch_for
from dlc_core.testing.schedules import kernel_of
from dlc_core.tir.functor import allocations, stmts
from dlc_core.tir.matrix import products
from dlc_core.tir.stmt import For, PrimFunc
from dlc_core.tir.threads import is_axis, is_shared
from tests.algorithms.attention.test_gpu_rule import sizes_of
from tests.schedule.rules.gpu.machines import USUAL
from tests.schedule.rules.gpu.test_contraction import barriers
from tests.schedule.rules.gpu.test_matrix import LARGE, TINY, WHOLE, WIDE, unit

N, M = Var("n"), Var("m")
SMALL = replace(TINY, shared_bytes=1 << 13)


def kernel(
    n: object, m: object, d: int = 4, e: int = 4, machine=SMALL, *, heads=2, groups=2, mask=(), **attrs
) -> PrimFunc:  # fmt: skip
    """Attention over [1, heads, tokens, size], in the tile that the machine gets."""
    shapes = {"q": (heads, n, d), "k": (groups, m, d), "v": (groups, m, e)}
    args: list[Node] = [param(name, tensor_type((1, *shape), "float16")) for name, shape in shapes.items()]
    if mask:
        args.append(param("mask", tensor_type(*mask)))
    plan = online_for("float16", sizes_of(n, m, d, e), machine)
    assert plan is not None
    return kernel_of(std.attention(*args, plan=plan, **attrs), args)


def check(func: PrimFunc, sizes: dict[Var, int] | None = None) -> None:
    launched = check_launches(func, SMALL, sizes or {})
    assert launched.scheduled.attrs["why_not"] == ()
    assert launched.rule == "gpu.attention_matrix"
    made, *checked = launched.kernels
    assert sizes or not checked  # symbolic lengths also have a version with checks
    assert products(made.body)
    # Only queries, keys and values are in shared memory.
    assert sum(is_shared(buffer) for buffer in allocations(made.body)) == 3


@pytest.mark.parametrize(
    ("n", "m", "d", "e"), [(9, 21, 5, 7), pytest.param(16, 16, 16, 8, marks=pytest.mark.slow)]
)
def test_sizes_with_tails(n, m, d, e):
    check(kernel(n, m, d, e))


def test_symbolic_lengths():
    check(kernel(N, M), {N: 5, M: 35})


@pytest.mark.parametrize(("n", "m", "past"), [pytest.param(17, 40, 23, marks=pytest.mark.slow), (12, 5, 0)])
def test_causal(n, m, past):
    check(kernel(n, m, causal=True, past=past))


@pytest.mark.slow
def test_heads_that_share_keys():
    check(kernel(9, 17, heads=4, groups=2))


@pytest.mark.parametrize(
    "mask", [((9, 17), "float16"), pytest.param(((1, 2, 9, 17), "bool"), marks=pytest.mark.slow)]
)
def test_masks(mask):
    check(kernel(9, 17, mask=mask))


def test_masked_panels_are_skipped():
    """The loop over keys ends after the last key that a query of the tile attends to."""
    launched = launch_for(kernel(256, 256, 64, 64, LARGE, causal=True), LARGE)
    (made,) = launched.kernels
    loops = [s for s in stmts(made.body) if isinstance(s, For) and not is_axis(s)]
    assert [const_value(s.extent) for s in loops] == [None]
    assert launched.rule == "gpu.attention_matrix"
    assert launched.shared_bytes <= LARGE.shared_bytes
    assert barriers(made) == 2
    assert launched.vectors(shared=True) == {8}


def test_plans():
    def chosen(of, n, m, d, e, machine):
        return online_for(of, sizes_of(n, m, d, e), machine)

    assert chosen("float16", N, M, 64, 64, LARGE) == online_plan(WIDE, 4, 64, True)
    assert chosen("float16", 20, 20, 64, 64, LARGE) == online_plan(WIDE, 2, 32, True)
    assert chosen("float16", N, M, 128, 128, LARGE) == online_plan(WIDE, 4, 32, False)
    assert chosen("float16", 8, M, 64, 64, LARGE) is None
    assert chosen("float32", N, M, 64, 64, LARGE) is None
    assert chosen("float16", N, M, 64, 64, USUAL) is None
    assert chosen("float16", N, M, 64, 1024, LARGE) is None
    assert chosen("float16", N, M, 64, 64, replace(LARGE, shared_bytes=2048)) is None


def test_a_plan_of_another_unit_is_refused():
    plan = online_for("float16", sizes_of(9, 21, 4, 4), SMALL)
    assert plan is not None
    args: list[Node] = [param(name, tensor_type((1, 2, 9, 4), "float16")) for name in "qkv"]
    for other in (replace(plan, unit=WIDE.name), replace(plan, panel=plan.panel + 1)):
        launched = launch_for(kernel_of(std.attention(*args, plan=other), args), SMALL)
        assert launched.rule != "gpu.attention_matrix"
        (why,) = (w for w in launched.scheduled.attrs["why_not"] if w.startswith("gpu.attention_matrix:"))
        assert "does not fit this machine" in why


def test_units_whose_results_can_be_operands():
    assert lanes_of(WIDE) == (4, 2)
    assert chain_of(WIDE) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert is_supported(unit("float16", "float32"))
    assert not is_supported(WHOLE)
    assert not is_supported(unit("float16", "float32", transposable=False))
    assert chain_of(replace(WIDE, of_a=WIDE.of_a.distributed(16, 16, 32))) is None


@pytest.mark.parametrize("b_transposed", [False, True])
def test_operands_that_are_results(b_transposed):
    check_intrin(
        matrix_intrin(
            Tiles(unit("float16", "float32"), 2, 1, "thread.x", b_transposed=b_transposed, a_held=True)
        )
    )


@pytest.mark.parametrize("op", ["max", "add"])
def test_reductions_over_lanes(op):
    check_intrin(lanes_intrin(op, 8, 4, "thread.x"))
    with pytest.raises(UsageError, match="have no"):
        lanes_intrin(op, 8, 3, "thread.x")


@pytest.mark.slow
def test_fully_masked_queries():
    func = kernel(9, 5, causal=True, past=-3)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, n, 4)).astype(np.float16) for n in (9, 5, 5, 9)]
    launched = check_launches(func, SMALL, arrays=arrays)
    assert launched.rule == "gpu.attention_matrix"
