"""K blocking of products whose outer loops read both operands again: weight gradients of convolutions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.decisions import forced
from dlc_core.op import std
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, schedule_for
from dlc_core.tir.functor import block_list, stmts
from dlc_core.tir.stmt import For, PrimFunc
from tests.schedule.test_rules_contraction import is_contraction, tensor

SMALL = Description(vector_bits=256, vector_registers=16, cores=1, caches=(1 << 10, 4 << 10))


def gradient(
    samples: int = 3, side: int = 9, inputs: int = 5, outputs: int = 16, **attrs: object
) -> PrimFunc:
    """The gradient of 3x3 weights, channels last."""
    attrs = {"window": (3, 3), "padding": (1,) * 4, "layout": "NXC", "kernel_layout": "XIO", **attrs}
    steps = attrs.get("strides", (1, 1))
    sizes = [(side - 1) // step + 1 for step in steps]
    x, grad = tensor("x", samples, side, side, inputs), tensor("grad", samples, *sizes, outputs)
    return kernel_of(std.conv_weight_gradient(x, grad, **attrs))


def is_k_blocked(func: PrimFunc) -> bool:
    """Whether tiles sum the products of one sample at a time."""
    is_contraction(func)
    return any("_rf" in block.name for block in block_list(func.body))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("attrs", [{}, {"strides": (2, 2), "samples": 12}, {"inputs": 7}])
def test_all_taps_sum_a_sample_before_the_next(cores, attrs):
    func = check_schedule(gradient(**attrs), replace(SMALL, cores=cores), trace=True)
    assert is_k_blocked(func)


def test_a_last_narrow_panel():
    assert is_k_blocked(check_schedule(gradient(outputs=20), SMALL, trace=True))


def test_threads_get_panels_and_samples_are_inside():
    func = schedule_for(gradient(outputs=32), replace(SMALL, cores=2))
    assert is_k_blocked(func)
    loops = [each for each in stmts(func.body) if isinstance(each, For) and each.kind == "parallel"]
    assert any("conv_weight_gradient_rf" in each.name for loop in loops for each in block_list(loop))


@pytest.mark.parametrize(
    ("attrs", "facts"),
    [
        ({"samples": 1}, {}),
        ({}, {"caches": (1 << 10, 1 << 20)}),
        ({}, {"caches": (1 << 10,)}),
        ({"outputs": 8}, {"cores": 4}),
        ({"window": (1, 1), "padding": (0,) * 4}, {}),
        ({"side": 2, "samples": 40, "inputs": 64, "outputs": 64}, {"caches": (1 << 10, 64 << 10)}),
    ],
    ids=["one sample", "in L2", "no L2", "threads", "one tap", "large sums"],
)
def test_k_stays_whole(attrs, facts):
    func = schedule_for(gradient(**attrs), replace(SMALL, **facts))
    assert not is_k_blocked(func)


def test_decisions_force_it():
    with forced("gemm.k_block=whole"):
        assert not is_k_blocked(check_schedule(gradient(), SMALL))
