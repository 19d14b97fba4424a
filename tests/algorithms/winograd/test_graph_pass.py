"""winograd: the convolutions that are computed by tiles."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.minimal_filtering.heuristics import FILTERING
from dlc_core.algorithms.winograd.errors import winograd_growth
from dlc_core.algorithms.winograd.graph_pass import Winograd
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, const_array, constant, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.graph import FoldConstants
from dlc_core.target import Description, Target, TargetKind

RNG = np.random.default_rng(5)


def target(**facts):
    record = Description(**{"vector_bits": 512, "vector_registers": 32, "cores": 2, **facts})
    return Target(TargetKind("machine", "a test", "none", "none", describe=lambda options: record))


def conv(size=28, inputs=32, outputs=32, kernel=3, layout="NXC", batch=1, **attrs):
    shape = (batch, size, size, inputs) if layout == "NXC" else (batch, inputs, size, size)
    w = (kernel, kernel, inputs, outputs) if layout == "NXC" else (outputs, inputs, kernel, kernel)
    kernel_layout = "XIO" if layout == "NXC" else "OIX"
    weights = constant(RNG.standard_normal(w) / np.sqrt(9 * inputs), "float32")
    attrs = {"padding": (kernel // 2,) * 4, "layout": layout, "kernel_layout": kernel_layout, **attrs}
    return std.conv(param("x", tensor_type(shape)), weights, **attrs)


def ops(function):
    return [n.op.name for n in post_order(function.body) if n.args]


def context(**facts):
    return PassContext(target=target(**facts))


def test_a_convolution_by_tiles(checked):
    found = checked([Winograd(), FoldConstants()], conv(), context=context())
    assert ops(found) == ["winograd_conv"]
    assert found.body.args[1].shape[2:] == (32, 32)


def test_a_symbolic_batch_has_the_tiles_of_one_image():
    attrs = []
    for batch in (1, Var("n", "int64")):
        y = conv(batch=batch)
        (made,) = run_passes(y)
        assert made.shape[0] == batch
        attrs.append(made.attrs)
    assert attrs[0] == attrs[1]


def test_a_symbolic_size_is_kept():
    n = Var("n", "int64")
    y = conv()
    x = param("x", tensor_type((1, n, 28, 32)))
    assert not run_passes(std.conv(x, y.args[1], **y.attrs))


def run_passes(y):
    """The convolutions by tiles that the pass makes of a convolution."""
    found = Winograd().run_function(Function("f", (y.args[0],), y), context())
    return [n for n in post_order(found.body) if n.op.name == "winograd_conv"]


def test_strides_of_two(checked):
    x = conv(size=56, inputs=64, outputs=64, strides=(2, 2))
    found = checked([Winograd(), FoldConstants()], x, context=context(vector_units=1, cores=1))
    assert ops(found) == ["winograd_conv"]
    assert found.body.attrs["stride"] == 2
    assert found.body.args[1].shape[0] == found.body.attrs["tile"] * 2 + 1
    assert found.body.shape == x.shape


@pytest.mark.parametrize(("dilation", "padding"), [((2, 2), (2, 2, 2, 2)), ((4, 1), (4, 0, 0, 1))])
def test_dilated_windows_are_convolutions_of_phases(checked, dilation, padding):
    x = conv(size=56, outputs=48, dilation=dilation, padding=padding)
    found = checked([Winograd(), FoldConstants()], x, context=context())
    assert ops(found) == [
        "reshape",
        "transpose",
        "reshape",
        "winograd_conv",
        "reshape",
        "transpose",
        "reshape",
    ]
    assert found.body.shape == x.shape
    phases = dilation[0] * dilation[1]
    assert found.body.args[0].args[0].args[0].shape[0] == phases


@pytest.mark.parametrize(
    ("cores", "size", "channels", "tile"),
    [
        (1, 56, 64, (4, 4)),
        (2, 56, 64, (4, 4)),
        (1, 7, 512, (2, 2)),
        (2, 7, 512, (2, 1)),
        (2, 14, 256, (4, 2)),
        (2, 28, 128, (4, 4)),
    ],
)
def test_prefetched_weights_decide_the_tile(cores, size, channels, tile):
    """Less than memory takes to give them: of late layers two cores read narrow tiles' weights."""
    y = conv(size=size, inputs=channels, outputs=channels)
    facts = {"cores": cores, "caches": (48 << 10, 1 << 20, 32 << 20)}
    found = Winograd().run_function(Function("f", (y.args[0],), y), context(**facts))
    made = [n.attrs for n in post_order(found.body) if n.op.name == "winograd_conv"]
    assert [(attrs["tile"], attrs["across"]) for attrs in made] == [tile]


def of_one_channel(**sizes):
    """A convolution of one input channel and one output channel, for which large transforms round most."""
    y = conv(**sizes)
    weights = np.zeros(y.args[1].shape, np.float32)
    weights[0, 0] = RNG.standard_normal(weights.shape[2:])
    return std.conv(y.args[0], constant(weights), **y.attrs)


def test_tiles_with_large_rounding_errors_are_refused(checked):
    tiles = []
    for y in (conv(size=56, inputs=64, outputs=64), of_one_channel(size=56, inputs=64, outputs=64)):
        found = Winograd().run_function(Function("f", (y.args[0],), y), context(cores=1))
        made = next(n.attrs for n in post_order(found.body) if n.op.name == "winograd_conv")
        weights = const_array(y.args[1])
        growths = [
            winograd_growth(weights, made["tile"], made["across"], 1),
            winograd_growth(weights, 4, 4, 1),
        ]
        tiles.append(((made["tile"], made["across"]), *(each <= FILTERING.max_growth for each in growths)))
    assert tiles[0] == ((4, 4), True, True)
    assert tiles[1][0] != (4, 4)
    assert tiles[1][1:] == (True, False)


def test_keeps_weights_that_are_not_finite(checked):
    y = conv()
    weights = np.array(const_array(y.args[1]))
    weights[0, 0, 0, 0] = np.inf
    left = std.conv(y.args[0], constant(weights), **y.attrs)
    assert ops(checked([Winograd()], left, context=context())) == ["conv"]


def test_narrow_tiles(checked):
    y = conv(size=14, inputs=256, outputs=256)
    facts = {"cores": 2, "caches": (48 << 10, 1 << 20, 32 << 20)}
    found = checked([Winograd(), FoldConstants()], y, context=context(**facts))
    assert found.body.args[1].shape == (6, 4, 256, 256)


def test_keeps_the_bias_and_the_epilogue(checked):
    bias = constant(RNG.standard_normal(32), "float32")
    plain = conv()
    y = std.relu(std.conv(*plain.args, bias, **plain.attrs))
    found = checked([Winograd(), FoldConstants()], y, context=context())
    assert ops(found) == ["winograd_conv", "relu"]


def volume(depth, size=28, kernel=(3, 3, 3), strides=(1, 1, 1), **attrs):
    x = param("x", tensor_type((1, depth, size, size, 32)))
    weights = constant(RNG.standard_normal((*kernel, 32, 32)) / 30, "float32")
    padding = tuple(k // 2 for k in kernel) * 2
    attrs = {"padding": padding, "layout": "NXC", "kernel_layout": "XIO", "strides": strides, **attrs}
    return std.conv(x, weights, constant(RNG.standard_normal(32), "float32"), **attrs)


@pytest.mark.parametrize("strides", [(1, 1, 1), (2, 1, 1)])
def test_planes_of_volumes_are_channels_of_images(checked, strides):
    x = volume(4, strides=strides)
    found = checked([Winograd(), FoldConstants()], x, context=context())
    assert ops(found) == ["pad", "slice", "slice", "slice", "concat", "reshape", "winograd_conv", "reshape"]
    assert found.body.args[0].args[0].shape == (x.shape[1], 28, 28, 96)
    gaps = volume(6, dilation=(2, 1, 1), padding=(2, 1, 1, 0, 1, 1))
    assert "winograd_conv" in ops(checked([Winograd(), FoldConstants()], gaps, context=context()))


def test_planes_outside_of_all_windows_are_omitted(checked):
    found = checked([Winograd(), FoldConstants()], volume(1), context=context())
    assert ops(found) == ["reshape", "winograd_conv", "reshape"]
    found = checked([Winograd()], volume(1, size=5, kernel=(3, 1, 1)), context=context())
    assert ops(found) == ["reshape", "conv", "reshape"]
    assert found.body.args[0].args[1].shape == (1, 1, 32, 32)
    found = checked([Winograd(), FoldConstants()], volume(2, padding=(2, 1, 1, 0, 1, 1)), context=context())
    assert ops(found).count("slice") == 2


@pytest.mark.parametrize(
    "left",
    [
        {"kernel": (1, 1, 1), "strides": (2, 2, 2)},
        {"size": 5, "kernel": (3, 1, 1)},
        {"size": 9, "kernel": (3, 5, 5), "strides": (1, 3, 3)},
    ],
)
def test_other_volumes_are_unchanged(checked, left):
    assert ops(checked([Winograd()], volume(4, **left), context=context())) == ["conv"]


@pytest.mark.parametrize(
    "left",
    [
        conv(strides=(2, 1)),
        conv(strides=(3, 3)),
        conv(strides=(2, 2), dilation=(2, 2), padding=(2, 2, 2, 2)),
        conv(dilation=(3, 3), padding=(3, 3, 3, 3)),
        conv(dilation=(2, 2), padding=(1, 1, 1, 1)),
        conv(kernel=5),
        conv(kernel=1),
        conv(layout="NCX"),
        conv(inputs=3),
        conv(outputs=20),
        conv(size=7, inputs=512, outputs=512, padding=(1, 1, 1, 1)),
    ],
    ids=[
        "two strides",
        "strides",
        "strides and gaps",
        "phases of several sizes",
        "padding between phases",
        "5x5",
        "1x1",
        "channels first",
        "inputs",
        "outputs",
        "weights too large",
    ],
)
def test_keeps_other_convolutions(checked, left):
    assert "winograd_conv" not in ops(checked([Winograd(tiles=(4,))], left, context=context()))


def test_without_a_machine_nothing_changes(checked):
    assert ops(checked([Winograd()], conv())) == ["conv"]
    assert ops(checked([Winograd()], conv(), context=context(vector_bits=0))) == ["conv"]
    assert ops(checked([Winograd()], conv(), context=context(thread_axes={"lane": 32}))) == ["conv"]
    assert ops(checked([Winograd(tiles=())], conv(), context=context())) == ["conv"]
    weights = param("w", tensor_type((3, 3, 32, 32)))
    y = std.conv(conv().args[0], weights, padding=(1, 1, 1, 1), layout="NXC", kernel_layout="XIO")
    assert ops(checked([Winograd()], y, context=context())) == ["conv"]


def test_refuses_unknown_tiles():
    with pytest.raises(UsageError, match="tiles are 2 or 4"):
        Winograd(tiles=(3,))
