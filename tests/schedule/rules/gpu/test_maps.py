"""Launches of pointwise kernels: any rank, any sizes, vectors if rows allow them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.launches import Launched, check_launches
from dlc_core.testing.schedules import kernel_of
from tests.schedule.rules.gpu.machines import NARROW, SMALL, USUAL, machines

M, N = Var("m"), Var("n")


def tensor(*shape: object, name: str = "x", dtype: str = "float32") -> Node:
    return param(name, tensor_type(shape, dtype))


def is_map(launched: Launched) -> Launched:
    assert launched.rule == "gpu.map"
    assert launched.scheduled.attrs["why_not"] == ()
    assert len(launched.kernels) == 1
    return launched


@machines
@settings(max_examples=10)
@given(shape=st.lists(st.integers(1, 9), max_size=4), seed=st.integers(0, 9))
def test_any_shape(machine, shape, seed):
    x, y = tensor(*shape), tensor(*shape[-1:], name="y")
    is_map(check_launches(kernel_of(std.relu(std.add(std.mul(x, x), y))), machine, seed=seed))


@machines
@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 8), (40, 33)], ids=str)
def test_permutations_and_parts(shape, machine):
    x = tensor(*shape)
    transposed = std.transpose(x, axes=tuple(reversed(range(len(shape)))))
    is_map(check_launches(kernel_of(std.exp(transposed)), machine))
    is_map(
        check_launches(kernel_of(std.pad(x, pads=(1, *[0] * (len(shape) - 1), *[2] * len(shape)))), machine)
    )
    is_map(check_launches(kernel_of(std.concat(x, std.neg(x), axis=1)), machine))


@machines
def test_symbolic_sizes(machine):
    x = tensor(M, N)
    flat = kernel_of(std.relu(std.add(x, x)))
    product = kernel_of(std.mul(x, tensor(name="y")))
    for sizes in ({M: 1, N: 1}, {M: 7, N: 13}, {M: 0, N: 3}, {M: 4, N: 32}):
        is_map(check_launches(flat, machine, sizes))
        is_map(check_launches(product, machine, sizes))


def test_contiguous_elements_are_vectorised():
    for dtype, lanes in (("float32", 4), ("float16", 8), ("int8", 16)):
        x = tensor(64, 64, dtype=dtype)
        assert is_map(check_launches(kernel_of(std.add(x, x)), USUAL)).vectors() == {lanes}
    # A bias is contiguous in whole rows, and rows of 12 are whole vectors.
    x = tensor(64, 12)
    assert is_map(check_launches(kernel_of(std.add(x, tensor(12, name="y"))), USUAL)).vectors() == {4}
    # The widest dtype determines the number of lanes.
    assert is_map(check_launches(kernel_of(std.cast(x, to="float64")), USUAL)).vectors() == {2}


def test_strided_elements_are_scalars():
    x = tensor(64, 9)
    assert check_launches(kernel_of(std.add(x, tensor(9, name="y"))), USUAL).vectors() == set()
    assert check_launches(kernel_of(std.transpose(tensor(64, 64), axes=(1, 0))), USUAL).vectors() == set()


def test_the_end_of_a_flat_range_is_guarded():
    assert check_launches(kernel_of(std.relu(tensor(39, 5))), USUAL).vectors() == {4}


def test_groups_take_several_tiles_if_there_are_many():
    kernel = kernel_of(std.relu(tensor(5, 101)))
    (one,) = is_map(check_launches(kernel, NARROW)).kernels
    assert one.attrs["launch"] == ("block.x", "thread.x")
    is_map(check_launches(kernel, SMALL))
