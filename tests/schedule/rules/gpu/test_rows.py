"""Launches of reductions: sums over any axes, softmax, normalisations, on machines of every kind."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.graph.node import Node, param
from dlc_core.heuristics import overridden
from dlc_core.ir.expr import Call, Var, post_order
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.gpu.heuristics import ROW
from dlc_core.schedule.rules.gpu.rows import RowsRule
from dlc_core.testing.launches import Launched, check_launches
from dlc_core.testing.schedules import kernel_of
from dlc_core.tir.functor import exprs_of, stmts
from tests.schedule.rules.gpu.machines import NARROW, SMALL, USUAL, machines

M, N = Var("m"), Var("n")


def tensor(*shape: object, name: str = "x", dtype: str = "float32") -> Node:
    return param(name, tensor_type(shape, dtype))


def is_rows(launched: Launched, launches: int = 1) -> Launched:
    assert launched.rule == "gpu.rows"
    assert launched.scheduled.attrs["why_not"] == ()
    assert len(launched.kernels) == launches
    return launched


def calls(launched: Launched) -> set[str]:
    return {
        e.name
        for kernel in launched.kernels
        for s in stmts(kernel.body)
        for e in post_order(*exprs_of(s))
        if isinstance(e, Call)
    }


def norm(*shape: int, residual: bool = False):
    x, scale, shift = tensor(*shape), tensor(shape[-1], name="s"), tensor(shape[-1], name="b")
    y = std.layer_norm(x, scale, shift, axis=-1)
    return kernel_of(std.gelu(std.add(y, x)) if residual else y, [x, scale, shift])


@machines
@pytest.mark.parametrize("shape", [(37,), (3, 1), (4, 21), (2, 3, 9)], ids=str)
def test_softmax_over_every_axis(shape, machine):
    for axis in range(len(shape)):
        is_rows(check_launches(kernel_of(std.softmax(tensor(*shape), axis=axis)), machine))


@machines
def test_sums_over_any_axes(machine):
    shape = (3, 5, 9)
    for r in (1, 2, 3):
        for axes in combinations(range(3), r):
            is_rows(check_launches(kernel_of(std.reduce_sum(tensor(*shape), axes=axes)), machine))
    x = tensor(4, 6, 12)
    is_rows(
        check_launches(
            kernel_of(std.sub(x, std.reduce_mean(std.mul(x, x), axes=(2,), keepdims=True))), machine
        )
    )


@settings(max_examples=8)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 12)),
    axis=st.integers(0, 2),
    op=st.sampled_from(["reduce_max", "reduce_logsumexp", "argmax", "softmax"]),
)
def test_any_shape(shape, axis, op):
    x = tensor(*shape)
    where = {"axes": (axis,)} if op.startswith("reduce") else {"axis": axis}
    is_rows(check_launches(kernel_of(getattr(std, op)(x, **where)), USUAL))


@machines
def test_normalisations(machine):
    is_rows(check_launches(norm(3, 40), machine))
    is_rows(check_launches(norm(2, 5, 16, residual=True), machine))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64"])
def test_every_dtype(dtype):
    is_rows(check_launches(kernel_of(std.reduce_sum(tensor(5, 48, dtype=dtype), axes=(1,))), USUAL))
    if "float" in dtype:
        is_rows(check_launches(kernel_of(std.softmax(tensor(5, 48, dtype=dtype))), USUAL))


def test_bools_are_reduced_by_exchanges():
    made = is_rows(check_launches(kernel_of(std.reduce_any(tensor(3, 200, dtype="bool"), axes=(1,))), USUAL))
    assert "subgroup_shuffle_down" in calls(made)


@machines
def test_symbolic_rows(machine):
    known, unknown = std.softmax(tensor(M, 12)), std.softmax(tensor(3, N))
    for sizes in ({M: 7}, {M: 0}):
        is_rows(check_launches(kernel_of(known), machine, sizes))
    for sizes in ({N: 45}, {N: 0}):
        is_rows(check_launches(kernel_of(unknown), machine, sizes))
        is_rows(check_launches(kernel_of(std.reduce_sum(tensor(N, 20), axes=(0,))), machine, sizes))
    x, scale, shift = tensor(M, N, 24), tensor(24, name="s"), tensor(24, name="b")
    norms = kernel_of(std.layer_norm(x, scale, shift, axis=-1), [x, scale, shift])
    for sizes in ({M: 3, N: 2}, {M: 0, N: 2}, {M: 2, N: 0}):
        is_rows(check_launches(norms, machine, sizes))


def test_rows_are_read_as_vectors_and_exchanged_by_subgroups():
    made = is_rows(check_launches(kernel_of(std.softmax(tensor(4, 256))), USUAL))
    assert made.vectors() == {4}
    assert "subgroup_shuffle_down" in calls(made)
    # Two subgroups: each stores one partial result of each of the two reductions.
    assert made.shared_bytes == 2 * 2 * 4
    assert "subgroup_shuffle_down" not in calls(check_launches(kernel_of(std.softmax(tensor(4, 64))), SMALL))


class First(RowsRule):
    """The rule with a priority over those for contractions."""

    priority = 1000


@pytest.mark.parametrize("shape", [(3, 9, 2, 2), (5, 5, 2, 2)], ids=str)
def test_windows_that_extend_beyond_the_border(shape):
    """There a window has fewer elements than steps, so thread indices do not determine its elements."""
    x, w = tensor(*shape), tensor(3, 3, shape[-1], 1, name="w")
    made = std.conv(x, w, padding=(1, 1, 1, 1), layout="NXC", kernel_layout="XIO")
    machine, rules = replace(USUAL, subgroup=16), [First()]
    launched = check_launches(kernel_of(std.tanh(made), [x, w]), machine, rules=rules)
    assert launched.rule == "gpu.rows"


def test_several_short_rows_have_one_group():
    (one,) = is_rows(check_launches(kernel_of(std.softmax(tensor(64, 64))), USUAL)).kernels
    assert one.attrs["launch"] == ("block.x", "thread.y", "thread.x")
    # An odd number of rows is covered, too.
    (one,) = is_rows(check_launches(kernel_of(std.softmax(tensor(9, 64))), USUAL)).kernels
    assert one.attrs["launch"] == ("block.x", "thread.x")


def test_a_thread_reduces_a_few_elements_alone():
    made = is_rows(check_launches(kernel_of(std.reduce_max(tensor(50, 4), axes=(1,))), USUAL))
    assert made.shared_bytes == 0
    assert not {"barrier", "subgroup_shuffle_down"} & calls(made)


def test_adjacent_columns():
    made = is_rows(check_launches(kernel_of(std.reduce_sum(tensor(100, 40), axes=(0,))), USUAL))
    (one,) = made.kernels
    assert one.attrs["launch"] == ("block.x", "thread.x", "thread.y")
    assert made.shared_bytes == ROW.columns * ROW.parts * 4
    # As many columns as threads: each thread reduces one.
    many = is_rows(check_launches(kernel_of(std.reduce_sum(tensor(4, 2200), axes=(0,))), USUAL))
    assert many.shared_bytes == 0


@overridden("gpu.rows.part_elements=128")
def test_few_long_rows_are_reduced_in_two_launches():
    for shape, axes in (((2, 700), (1,)), ((30, 40), (0, 1)), ((900,), (0,))):
        x = tensor(*shape)
        made = is_rows(
            check_launches(kernel_of(std.sqrt(std.reduce_sum(std.mul(x, x), axes=axes))), USUAL), 2
        )
        assert made.host.attrs["workspaces"] == 1
    is_rows(check_launches(kernel_of(std.reduce_max(tensor(900))), NARROW), 2)
    # Enough rows for all units: one launch.
    is_rows(check_launches(kernel_of(std.reduce_sum(tensor(8, 600), axes=(1,))), USUAL))


@overridden("gpu.rows.part_elements=128")
def test_long_rows_of_several_reductions_have_launches_for_each():
    x = tensor(2, 600)
    scaled = std.layer_norm(x, tensor(600, name="s"), tensor(600, name="b"), axis=-1)
    for node in (std.softmax(tensor(1, 700)), std.argmax(tensor(900), axis=0), scaled):
        is_rows(check_launches(kernel_of(node), USUAL), 5)
    # So few groups that rows are not split.
    is_rows(check_launches(kernel_of(scaled), NARROW), 3)


@overridden("gpu.rows.part_steps=8")
def test_few_long_columns_are_split_over_groups():
    pooled = std.reduce_mean(tensor(1, 10, 30, 10), axes=(1, 2), keepdims=True)
    made = is_rows(check_launches(kernel_of(std.sqrt(pooled)), USUAL), 2)
    first, _ = made.kernels
    assert first.attrs["launch"] == ("block.x", "thread.x")
    assert made.host.attrs["workspaces"] == 1
    is_rows(check_launches(kernel_of(std.reduce_max(tensor(200, 9), axes=(0,))), USUAL), 2)
