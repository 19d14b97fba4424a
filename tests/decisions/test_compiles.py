"""Choices of compiles are attached to kernels, with plans. Forced choices are checked."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import Span, UsageError
from dlc_core.graph.node import constant, param, spanned
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of

pytest.importorskip("dlc_backend_llvm", reason="kernels are compiled by the backend for this machine")

RNG = np.random.default_rng(2)
TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-threads=1"
"""A processor for which tests compile. Nothing runs."""


def weights(*shape):
    return constant((RNG.standard_normal(shape) / 8).astype(np.float32))


def module():
    """Two products, of one row and of 32."""
    x, y = param("x", tensor_type((1, 64))), param("y", tensor_type((32, 64)))
    with spanned([Span("model", "one_row")]):
        short = std.matmul(x, weights(64, 48))
    with spanned([Span("model", "rows")]):
        tall = std.matmul(y, weights(64, 48))
    return module_of(std.concat(short, tall, axis=0), [x, y])


def explained(given=None, **options):
    options = {"cache": False, **options}
    return dlc.compile(module() if given is None else given, TARGET, **options).explain()


def kernel_of(told, node):
    return next(kernel for kernel in told.kernels if node in kernel.nodes and kernel.rule != "cpu.map")


def choice_of(kernel, decision):
    return next(choice for choice in kernel.choices if choice.decision == decision)


@cache
def plain():
    return explained()


def test_a_kernel_keeps_its_plan():
    kernel = kernel_of(plain(), "rows")
    assert kernel.plan.startswith(f"tile {choice_of(kernel, 'gemm.tile').value}, ")
    assert f"  plan: {kernel.plan}\n" in plain().why(kernel.name)
    assert '"plan": "tile ' in plain().to_json()


def test_the_cycles_of_a_tile_are_those_of_the_whole_kernel():
    kernel = kernel_of(plain(), "rows")
    least = kernel.flops / 2 / 16 / 2
    """Two multiply-adds of 16 lanes in a cycle."""
    assert least <= choice_of(kernel, "gemm.tile").chosen.cost <= 2 * least


@pytest.mark.parametrize("batch", [1, 4])
def test_costs_include_batches_and_rows_of_an_image(batch):
    x = param("x", tensor_type((batch, 28, 28, 64)))
    with spanned([Span("model", "conv")]):
        y = std.conv(x, weights(1, 1, 64, 32), layout="NXC", kernel_layout="XIO")
    kernel = kernel_of(explained(module_of(y, [x])), "conv")
    least = kernel.flops / 2 / 16 / 2
    assert least <= choice_of(kernel, "gemm.tile").chosen.cost <= 2 * least


@pytest.mark.parametrize(
    "decision", ["gemm.loop_order", "gemm.prefetch", "gemm.partial_sums", "loops.threads", "schedule.rule"]
)
def test_each_other_candidate_has_a_cost_or_a_reason(decision):
    known = [
        choice_of(kernel_of(plain(), node), decision)
        for node in ("one_row", "rows")
        if any(c.decision == decision for c in kernel_of(plain(), node).choices)
    ]
    assert known or decision == "loops.threads"
    for choice in known:
        assert choice.chosen is not None
        others = [one for one in choice.candidates if one is not choice.chosen]
        assert others
        assert all(one.refused or one.cost is not None for one in others)


def conv_net(others=1.0):
    """A convolution whose weights, except those of a corner, are multiplied by `others`."""
    windows = (RNG.standard_normal((3, 3, 64, 64)) / 24).astype(np.float32)
    windows *= np.where(np.arange(9) == 0, 1, others).reshape(3, 3, 1, 1).astype(np.float32)
    x = param("x", tensor_type((1, 56, 56, 64)))
    with spanned([Span("model", "conv")]):
        y = std.conv(x, constant(windows), padding=(1, 1, 1, 1), layout="NXC", kernel_layout="XIO")
    with spanned([Span("model", "end")]):
        return module_of(std.relu(y), [x])


def test_a_choice_of_a_graph_pass_is_attached_to_the_kernels_of_its_node():
    told = explained(conv_net())
    choice = choice_of(kernel_of(told, "conv"), "winograd.tile")
    assert choice.alternative == "tiles"
    assert {"direct", "tiles"} == {one.alternative for one in choice.candidates}
    assert next(one for one in choice.candidates if one.alternative == "direct").cost > choice.chosen.cost
    assert choice not in told.graph_choices()
    assert "winograd.tile" in told.why(kernel_of(told, "conv").name)
    assert choice_of(kernel_of(told, "conv"), "fuse.epilogue").candidates[1].refused


def test_tiles_refused_for_rounding_have_a_reason():
    choice = choice_of(kernel_of(explained(conv_net(0.0)), "conv"), "winograd.tile")
    reasons = {one.value: one.refused for one in choice.candidates if one.refused}
    assert "times that of a sum in order, the bound is 3" in reasons["4x4"]


def test_a_graph_pass_is_forced_for_a_model_node():
    told = explained(conv_net(), config={"decisions": "winograd.tile@conv=direct"})
    assert choice_of(kernel_of(told, "conv"), "winograd.tile").alternative == "direct"
    with pytest.raises(UsageError, match="there is no kernel 'convv'") as caught:
        explained(conv_net(), config={"decisions": "winograd.tile@convv=direct"})
    assert "did you mean 'conv'" in str(caught.value)


def test_strassen_is_planned_once():
    x = param("x", tensor_type((1024, 1024)))
    with spanned([Span("model", "product")]):
        y = std.matmul(x, weights(1024, 1024))
    told = explained(module_of(y, [x]), precision="fast", config={"decisions": "strassen.form=once"})
    (kernel,) = (one for one in told.kernels if one.rule == "cpu.strassen")
    form, tile = choice_of(kernel, "strassen.form"), choice_of(kernel, "strassen.tile")
    assert form.chosen.cost is not None
    assert kernel.plan.startswith(f"tile {tile.value} {tile.alternative}")
    assert tile.chosen.cost == min(one.cost for one in tile.candidates if one.cost is not None)


def test_kernels_without_the_forced_candidate_are_listed():
    told = explained(config={"decisions": "gemm.tile=4x1"})
    short, tall = kernel_of(told, "one_row"), kernel_of(told, "rows")
    assert choice_of(tall, "gemm.tile").value == "4x1"
    assert tall.not_forced == []
    (line,) = short.not_forced
    assert line.startswith("gemm.tile=1x")
    assert ": 4x1 was forced and is no candidate here" in line
    assert f"not forced: {line}" in str(told)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gemm.tile=77x7", "gemm.tile=77x7 is no candidate of any kernel"),
        ("gemm.tile@fused_none=4x1", "there is no kernel 'fused_none'"),
        ("strassen.tile=4x1", "strassen.tile=4x1 forces nothing"),
        ("schedule.rule=cpu.attention", "schedule.rule=cpu.attention is no candidate of any kernel"),
    ],
)
def test_refuses_a_forced_value_that_no_kernel_has(text, words):
    with pytest.raises(UsageError) as caught:
        explained(config={"decisions": text})
    assert words in str(caught.value)


def test_a_value_that_one_kernel_has_is_no_candidate_of_another():
    name = kernel_of(plain(), "one_row").name
    with pytest.raises(UsageError, match=f"gemm.tile=4x1 is no candidate in {name}"):
        explained(config={"decisions": f"gemm.tile@{name}=4x1"})
