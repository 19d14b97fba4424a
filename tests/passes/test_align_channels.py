"""align_channels: channels are padded to whole groups of dot products."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, Node, constant, param, post_order
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext
from dlc_core.passes.graph import AlignChannels
from dlc_core.target.description import Description, Dot
from dlc_core.target.target import Target, TargetKind


def context(*dots: Dot) -> PassContext:
    kind = TargetKind("toy", "", "", "", describe=lambda options: Description(dots=dots))
    return PassContext(target=Target(kind))


FOURS = Dot("uint8", "int8", "int32", 4, 16)
RNG = np.random.default_rng(0)


def conv(channels: int, x_dtype: str = "uint8", w_dtype: str = "int8", groups: int = 1) -> Function:
    x = param("x", tensor_type((1, 7, 7, channels), x_dtype))
    w = constant(RNG.integers(-9, 9, (3, 3, channels // groups, 8)).astype(w_dtype))
    made = std.conv(
        x, w, out_dtype="int32", layout="NXC", kernel_layout="XIO", groups=groups, padding=(1, 1, 1, 1)
    )
    return Function("main", (x,), made)


def convolution(function: Function) -> Node:
    return next(n for n in post_order(function.body) if n.op.name == "conv")


@pytest.mark.parametrize("channels", [1, 3, 5, 15])
def test_channels_in_whole_groups(channels: int) -> None:
    before = conv(channels)
    after = AlignChannels().run_function(before, context(FOURS))
    x, w = convolution(after).args
    assert x.shape[-1] == w.shape[-2] == -(-channels // 4) * 4
    data = RNG.integers(0, 255, (1, 7, 7, channels), np.uint8)
    assert np.array_equal(evaluate(after, [data]), evaluate(before, [data]))


def test_keeps_contractions_without_dot_products() -> None:
    for before, where in (
        (conv(3), context()),
        (conv(3), PassContext()),
        (conv(3, "int8"), context(FOURS)),
        (conv(8), context(FOURS)),
        (conv(18), context(FOURS)),
        (conv(6, groups=2), context(FOURS)),
    ):
        assert AlignChannels().run_function(before, where) is before


@pytest.mark.parametrize("shape", [(4, 30), (2, 5, 30)])
def test_products_that_outweigh_the_copy(shape: tuple[int, ...]) -> None:
    x = param("x", tensor_type(shape, "uint8"))
    w = constant(RNG.integers(-9, 9, (30, 16)).astype("int8"))
    before = Function("main", (x,), std.matmul(x, w, out_dtype="int32"))
    after = AlignChannels().run_function(before, context(FOURS))
    assert [a.shape[-1] for a in after.body.args] == [32, 16]
    data = RNG.integers(0, 255, shape, np.uint8)
    assert np.array_equal(evaluate(after, [data]), evaluate(before, [data]))
    assert AlignChannels(results=17).run_function(before, context(FOURS)) is before


def test_dot_products_that_take_more_instructions_are_not_used() -> None:
    """A group of four costs five instructions here, and a single product two."""
    costly = Dot("uint8", "int8", "int32", 4, 1, instructions=2, operand_instructions=3)
    for channels in (1, 2):
        before = conv(channels)
        assert AlignChannels().run_function(before, context(costly)) is before
    after = AlignChannels().run_function(conv(3), context(costly))
    assert convolution(after).args[0].shape[-1] == 4
