"""`topi.nn` and `topi.image`: the functions with TVM's names and parameters, against the ops' references."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import topi
from dlc_core.op.std import BY_NAME
from tests.topi.evaluation import floats, value


def reference(name, *arrays, **attrs):
    decl = BY_NAME[name]
    return decl.reference(*arrays, **decl.canonical_attrs(attrs))


def agrees(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_convolutions_of_every_rank():
    for rank, function in ((1, topi.nn.conv1d), (2, topi.nn.conv2d), (3, topi.nn.conv3d)):
        x, w = floats(1, 3, *(5,) * rank), floats(2, 3, *(3,) * rank)
        found = value(lambda a, b, f=function: f(a, b, 2, 1), x, w)
        agrees(found, reference("conv", x, w, strides=(2,) * rank, padding=(1,) * (2 * rank)))


def test_paddings_and_layouts():
    x, w, bias = floats(1, 5, 6, 3), floats(3, 2, 3, 4), floats(4)
    for padding, pads in (
        ("VALID", (0, 0, 0, 0)),
        ("SAME", (1, 1, 1, 0)),
        ((1, 2), (1, 2, 1, 2)),
        ((1, 2, 0, 1), (1, 2, 0, 1)),
    ):
        given = {"data_layout": "NHWC", "padding": padding}
        found = value(lambda a, b, c, g=given: topi.nn.conv2d(a, b, bias=c, **g), x, w, bias)
        agrees(found, reference("conv", x, w, bias, padding=pads, layout="NXC", kernel_layout="XIO"))
    agrees(
        value(lambda a, b: topi.nn.conv2d_nhwc(a, b, dilation=2), x, w),
        reference("conv", x, w, dilation=(2, 2), layout="NXC", kernel_layout="XIO"),
    )


def test_grouped_depthwise_and_transposed_convolutions():
    x = floats(1, 4, 6, 6)
    w = floats(6, 2, 3, 3)
    grouped = value(lambda a, b: topi.nn.group_conv2d_nchw(a, b, groups=2), x, w)
    agrees(grouped, reference("conv", x, w, groups=2))
    each = floats(4, 2, 3, 3)
    agrees(
        value(lambda a, b: topi.nn.depthwise_conv2d_nchw(a, b, padding=1), x, each),
        reference("conv", x, each.reshape(8, 1, 3, 3), groups=4, padding=(1, 1, 1, 1)),
    )
    up = floats(4, 3, 2, 2)
    agrees(
        value(lambda a, b: topi.nn.conv2d_transpose_nchw(a, b, 2, 1, output_padding=1), x, up),
        reference("conv_transpose", x, up, strides=(2, 2), padding=(1, 1, 1, 1), output_padding=(1, 1)),
    )


def test_dense_and_batches():
    x, w, bias = floats(3, 5), floats(4, 5), floats(4)
    agrees(value(lambda a, b, c: topi.nn.dense(a, b, c), x, w, bias), x @ w.T + bias)
    a, b = floats(2, 3, 5), floats(2, 4, 5)
    agrees(value(lambda a, b: topi.nn.batch_matmul(a, b), a, b), a @ b.transpose(0, 2, 1))


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling(kind):
    x = floats(1, 2, 7, 7)
    for layout, given in (("NCHW", x), ("NHWC", x.transpose(0, 2, 3, 1))):
        found = value(
            lambda a, o=layout: topi.nn.pool2d(a, 3, 2, 1, 1, kind, layout=o, count_include_pad=False), given
        )
        order = "NCX" if layout == "NCHW" else "NXC"
        window = {"kernel": (3, 3), "strides": (2, 2), "padding": (1,) * 4, "layout": order}
        agrees(found, reference(f"{kind}_pool", given, **window))
    every = x.max((2, 3), keepdims=True) if kind == "max" else x.mean((2, 3), keepdims=True)
    agrees(value(lambda a: topi.nn.global_pool(a, kind), x), every)
    line = floats(1, 2, 8)
    agrees(
        value(lambda a: topi.nn.pool1d(a, 2, 2, pool_type=kind), line),
        reference(f"{kind}_pool", line, kernel=(2,), strides=(2,)),
    )


def test_channels():
    x, scale, shift = floats(2, 3, 4, 5), floats(3), floats(3)
    column, other = scale[:, None, None], shift[:, None, None]
    last = x.transpose(0, 2, 3, 1)
    agrees(value(lambda a, b: topi.nn.bias_add(a, b), x, scale), x + column)
    agrees(value(lambda a, b: topi.nn.bias_add(a, b, axis=-1), last, scale), last + scale)
    agrees(value(lambda a, b, c: topi.nn.scale_shift_nchw(a, b, c), x, scale, shift), x * column + other)
    agrees(value(lambda a, b: topi.nn.prelu(a, b), x, scale), np.where(x < 0, x * column, x))
    agrees(value(lambda a, b, c: topi.nn.scale_shift_nhwc(a, b, c), last, scale, shift), last * scale + shift)


def test_borders_and_images():
    x = floats(2, 3)
    bordered = value(lambda a: topi.nn.pad(a, (1, 0), (0, 2), 5.0), x)
    agrees(bordered, np.pad(x, ((1, 0), (0, 2)), constant_values=5))
    agrees(value(lambda a: topi.nn.pad(a, (1, 1)), x), np.pad(x, 1))
    image = floats(1, 4, 5, 2)
    agrees(
        value(lambda a: topi.image.resize2d(a, (8, 6), "NHWC"), image),
        reference("resize", image, axes=(1, 2), sizes=(8, 6), mode="linear"),
    )
    line = floats(1, 2, 4)
    given = {"method": "nearest", "coordinates": "asymmetric", "rounding": "floor"}
    agrees(value(lambda a: topi.image.resize1d(a, 8, **given), line), line.repeat(2, -1))
