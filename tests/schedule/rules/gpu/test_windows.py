"""Launches of depthwise convolutions and pooling, by vectors of channels and tiles of pixels."""

from __future__ import annotations

import pytest

from dlc_core.graph.node import Node, param
from dlc_core.heuristics import overridden
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.launches import Launched, check_launches
from dlc_core.testing.schedules import kernel_of
from tests.schedule.rules.gpu.machines import NARROW, USUAL

M, N = Var("m"), Var("n")


def tensor(*shape: object, name: str = "x", dtype: str = "float32") -> Node:
    return param(name, tensor_type(shape, dtype))


def depthwise(*shape: object, dtype: str = "float32", **attrs: object) -> Node:
    channels = shape[-1]
    x, w = tensor(*shape, dtype=dtype), tensor(3, 3, 1, channels, name="w", dtype=dtype)
    return std.conv(x, w, groups=channels, layout="NXC", kernel_layout="XIO", **attrs)


def is_windows(launched: Launched, lanes: int = 4) -> Launched:
    assert launched.rule == "gpu.windows"
    assert launched.scheduled.attrs["why_not"] == ()
    assert len(launched.kernels) == 1
    assert launched.vectors() == ({lanes} if lanes > 1 else set())
    return launched


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize(("strides", "padding"), [((1, 1), (1, 1, 1, 1)), ((2, 2), (1, 1, 0, 0))])
def test_depthwise_convolutions(strides, padding, pixels):
    made = depthwise(1, 5, 8, 8, strides=strides, padding=padding)
    made = std.relu(std.add(made, tensor(8, name="b")))
    with overridden({"gpu.grid.window_threads": 1} if pixels else {}):
        is_windows(check_launches(kernel_of(made), USUAL))


def test_pooling():
    x = tensor(1, 9, 8, 8)
    for pool in (std.max_pool, std.avg_pool):
        is_windows(check_launches(kernel_of(pool(x, kernel=(2, 2), strides=(2, 2), layout="NXC")), USUAL))
        bordered = pool(x, kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1), layout="NXC")
        is_windows(check_launches(kernel_of(bordered), USUAL))


def test_any_number_of_channels_and_any_machine():
    is_windows(check_launches(kernel_of(depthwise(1, 5, 4, 9)), USUAL), 1)
    is_windows(check_launches(kernel_of(depthwise(2, 5, 4, 8)), NARROW))
    is_windows(check_launches(kernel_of(depthwise(1, 5, 4, 16, dtype="float16")), USUAL), 8)


def test_images_of_symbolic_size():
    func = kernel_of(std.relu(depthwise(1, M, N, 8, padding=(1, 1, 1, 1))))
    for sizes in ({M: 4, N: 5}, {M: 0, N: 5}):
        is_windows(check_launches(func, USUAL, sizes))


def test_other_reductions_are_refused():
    summed = check_launches(kernel_of(std.reduce_sum(tensor(4, 40), axes=(0,))), USUAL)
    assert summed.rule == "gpu.rows"
