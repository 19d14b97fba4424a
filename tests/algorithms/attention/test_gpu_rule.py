"""Attention as one launch: sizes with tails and symbolic sizes, masks, shared keys, tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.algorithms.attention.choice import Sizes, distributed, two_pass_fits, two_pass_for
from dlc_core.algorithms.attention.plan import TwoPass
from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Var, const_value
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.target import Description
from dlc_core.testing.launches import check_launches, launch_for
from dlc_core.testing.schedules import kernel_of
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For, PrimFunc
from dlc_core.tir.threads import is_axis
from tests.schedule.rules.gpu.machines import QUICK, SMALL, USUAL

N, M = Var("n"), Var("m")


def kernel(
    n: object, m: object, d: int = 4, e: int = 4, machine: Description = QUICK, *, heads=2, groups=2, mask=(),
    dtype="float32", **attrs: object
) -> PrimFunc:  # fmt: skip
    """Attention over [1, heads, tokens, size], in the tile that the machine gets."""
    shapes = {"q": (heads, n, d), "k": (groups, m, d), "v": (groups, m, e)}
    args: list[Node] = [param(name, tensor_type((1, *shape), dtype)) for name, shape in shapes.items()]
    if mask:
        args.append(param("mask", tensor_type(*mask)))
    plan = two_pass_for(sizes_of(n, m, d, e), machine)
    assert plan is not None
    return kernel_of(std.attention(*args, plan=plan, **attrs), args)


def sizes_of(n: object, m: object, d: int, e: int) -> Sizes:
    known = (size if isinstance(size, int) else None for size in (n, m))
    return Sizes(*known, d, e)  # type: ignore[misc]


def check(func: PrimFunc, sizes: dict[Var, int] | None = None, machine: Description = QUICK) -> None:
    launched = check_launches(func, machine, sizes or {})
    assert launched.scheduled.attrs["why_not"] == ()
    assert launched.rule == "gpu.attention"
    assert len(launched.kernels) == 1
    assert 0 < launched.shared_bytes <= machine.shared_bytes


@pytest.mark.parametrize(("n", "m", "d", "e"), [(9, 21, 5, 7), (4, 16, 4, 3), (18, 7, 3, 4)])
def test_sizes_with_tails(n, m, d, e):
    check(kernel(n, m, d, e))


def test_symbolic_lengths():
    check(kernel(N, M), {N: 9, M: 21})
    check(kernel(N, N, causal=True), {N: 17})


@pytest.mark.parametrize(("n", "m", "past"), [(17, 17, 0), (5, 21, 16), (9, 4, 0)])
def test_causal(n, m, past):
    check(kernel(n, m, causal=True, past=past))


def test_masked_panels_are_skipped():
    """The loop over panels of values ends after the last key that a query of the tile attends to."""
    launched = launch_for(kernel(48, 48, causal=True), QUICK)
    loops = [s for s in stmts(launched.kernels[0].body) if isinstance(s, For) and not is_axis(s)]
    assert sum(const_value(s.extent) is None for s in loops) == 1


def test_heads_that_share_keys():
    check(kernel(9, 17, heads=4, groups=2))


@pytest.mark.parametrize("mask", [((1, 2, 9, 17), "float32"), ((9, 17), "bool")])
def test_masks(mask):
    check(kernel(9, 17, mask=mask))


def test_float16_is_computed_in_float32():
    check(kernel(5, 9, dtype="float16"))


@pytest.mark.parametrize(
    ("machine", "size"), [(USUAL, 64), (USUAL, 80), (USUAL, 128), (SMALL, 32), (SMALL, 80)]
)
def test_tiles_fit_the_machine(machine, size):
    launched = launch_for(kernel(N, M, size, size, machine, causal=True), machine)
    assert launched.rule == "gpu.attention"
    assert launched.shared_bytes <= machine.shared_bytes


def test_refuses_sizes_without_a_tile():
    assert two_pass_for(sizes_of(3, N, 64, 64), USUAL) is None
    assert two_pass_for(sizes_of(N, N, 128, 128), SMALL) is None
    assert two_pass_for(sizes_of(N, N, 4096, 64), USUAL) is None
    assert two_pass_for(sizes_of(N, N, 64, 64), replace(USUAL, group_threads=2)) is None
    assert two_pass_for(sizes_of(N, N, 64, 64), USUAL) == TwoPass(32, 32, 8, 16)
    sizes, tight = sizes_of(N, N, 64, 64), replace(USUAL, shared_bytes=1024)
    assert two_pass_fits(distributed(16, 32, USUAL), sizes, USUAL)
    assert not two_pass_fits(distributed(16, 32, tight), sizes, tight)


@pytest.mark.parametrize("plan", [TwoPass(8, 16, 3, 4), TwoPass(32, 32, 4, 2), TwoPass(8, 16, 8, 32)])
def test_a_plan_that_does_not_fit_is_refused(plan):
    args: list[Node] = [param(name, tensor_type((1, 2, 9, 4))) for name in "qkv"]
    launched = launch_for(kernel_of(std.attention(*args, plan=plan), args), QUICK)
    assert launched.rule != "gpu.attention"
    (refused,) = (why for why in launched.scheduled.attrs["why_not"] if why.startswith("gpu.attention:"))
    assert "does not fit this machine" in refused
