"""row_filter: the convolutions that are computed by tiles of rows."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.row_filter.graph_pass import RowFilter
from dlc_core.graph.node import Function, constant, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.graph import FoldConstants
from dlc_core.target import Description, Target, TargetKind

RNG = np.random.default_rng(6)
RECORD = Description(vector_bits=512, vector_registers=32, vector_units=1, cores=1)
MACHINE = Target(TargetKind("machine", "a test", "none", "none", describe=lambda options: RECORD))


def conv(size=56, inputs=3, outputs=32, window=(7, 7), batch=1, **attrs):
    weights = constant(RNG.standard_normal((*window, inputs, outputs)) / 10, "float32")
    attrs = {"padding": tuple(k // 2 for k in window) * 2, "strides": (2, 2), **attrs}
    x = param("x", tensor_type((batch, size, size, inputs * attrs.get("groups", 1))))
    return std.conv(x, weights, layout="NXC", kernel_layout="XIO", **attrs)


def ops(function):
    return [n.op.name for n in post_order(function.body) if n.args]


@pytest.mark.parametrize(
    "taken",
    [conv(), conv(window=(5, 5), strides=(1, 1), inputs=16), conv(window=(7, 1), strides=(1, 1), inputs=32)],
    ids=["stem", "5x5", "column"],
)
def test_a_convolution_by_rows(checked, taken):
    found = checked([RowFilter(), FoldConstants()], taken, context=PassContext(target=MACHINE))
    assert ops(found) == ["row_filter_conv"]
    assert found.body.shape == taken.shape


def test_a_symbolic_batch_has_the_tiles_of_one_image():
    attrs = []
    for batch in (1, Var("n", "int64")):
        y = conv(batch=batch)
        found = RowFilter().run_function(Function("f", (y.args[0],), y), PassContext(target=MACHINE))
        (made,) = (n for n in post_order(found.body) if n.op.name == "row_filter_conv")
        assert made.shape[0] == batch
        attrs.append(made.attrs)
    assert attrs[0] == attrs[1]


def test_keeps_the_bias_and_the_epilogue(checked):
    plain = conv()
    bias = constant(RNG.standard_normal(32), "float32")
    y = std.relu(std.conv(*plain.args, bias, **plain.attrs))
    found = checked([RowFilter(), FoldConstants()], y, context=PassContext(target=MACHINE))
    assert ops(found) == ["row_filter_conv", "relu"]


def test_tiles_are_no_larger_than_allowed(checked):
    found = checked([RowFilter(tiles=(2,))], conv(), context=PassContext(target=MACHINE))
    assert found.body.attrs["tile"] == 2


@pytest.mark.parametrize(
    "left",
    [
        conv(window=(3, 3)),
        conv(window=(1, 7), strides=(1, 1)),
        conv(strides=(2, 1)),
        conv(dilation=(2, 2)),
        conv(inputs=4, groups=2),
        conv(outputs=20),
        conv(inputs=256, outputs=256, window=(5, 5)),
    ],
    ids=["small windows", "one row", "two strides", "gaps", "groups", "outputs", "weights too large"],
)
def test_keeps_other_convolutions(checked, left):
    found = checked([RowFilter()], left, context=PassContext(target=MACHINE))
    assert "row_filter_conv" not in ops(found)
