"""Contractions by tile units."""

from __future__ import annotations

import pytest

from dlc_core.graph.node import param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.target import Description
from dlc_core.target.description import Dot
from dlc_core.testing.schedules import check_schedule, kernel_of
from dlc_core.tir.matrix import products, tile_unit

UNITS = (
    tile_unit("bfloat16", "bfloat16", "float32", (4, 4, 8)),
    tile_unit("uint8", "int8", "int32", (4, 4, 16)),
)
DOTS = (Dot("bfloat16", "bfloat16", "float32", 2, 4), Dot("uint8", "int8", "int32", 4, 4))
MACHINE = Description(vector_bits=128, vector_registers=32, cores=2, dots=DOTS, matrix_units=UNITS)
PAIRS = {"bfloat16": ("bfloat16", "bfloat16", "float32"), "bytes": ("uint8", "int8", "int32")}


def product(m, n, k, kinds, *, bias=False):
    a, b, acc = kinds
    x, w = param("x", tensor_type((m, k), a)), param("w", tensor_type((k, n), b))
    params, y = [x, w], std.matmul(x, w, out_dtype=acc)
    if bias:
        params.append(param("bias", tensor_type((n,), acc)))
        y = std.relu(std.add(y, params[-1]))
    return kernel_of(y, params, constants=(1,))


SIZES = {
    "whole": (8, 16, 32),
    "rests everywhere": (13, 11, 20),
    "few rows": (5, 9, 16),
    "few columns": (9, 3, 8),
    "one group": (8, 8, 4),
    "many tiles": (21, 40, 36),
}


@pytest.mark.parametrize("kinds", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_products(size, kinds):
    scheduled = check_schedule(product(*size, kinds, bias=size[0] % 2 == 1), MACHINE)
    assert scheduled.attrs["rule"] == "cpu.contraction"
    found = {str(each.args[3:]) for each in products(scheduled.body)}
    assert len(found) == (size[1] >= 4), "products of one size, where there are columns for one"


def test_fewer_rows_use_dot_products():
    scheduled = check_schedule(product(3, 16, 32, PAIRS["bfloat16"]), MACHINE)
    assert scheduled.attrs["why_not"] == ()
    assert not products(scheduled.body)


CONVS = {
    "a point": ((1, 5, 6, 8), (1, 1, 8, 12), {}),
    "a window": ((1, 6, 9, 8), (3, 3, 8, 12), {"padding": (1, 1, 1, 1)}),
    "steps": ((2, 9, 9, 4), (3, 3, 4, 8), {"strides": (2, 2)}),
}


@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS)
def test_convolutions(case):
    shape, window, attrs = case
    x, w = param("x", tensor_type(shape, "uint8")), param("w", tensor_type(window, "int8"))
    y = std.conv(x, w, layout="NXC", kernel_layout="XIO", out_dtype="int32", **attrs)
    scheduled = check_schedule(kernel_of(y, [x, w], constants=(1,)), MACHINE)
    assert scheduled.attrs["why_not"] == ()
    assert products(scheduled.body)
