"""unsign_bytes: the same sums of signed bytes from unsigned ones, borders and other readers included."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, constant, make_tuple, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext
from dlc_core.passes.graph import UnsignBytes
from dlc_core.target import Description, Dot, Target, TargetKind

RNG = np.random.default_rng(5)
MIXED = Dot("uint8", "int8", "int32", 4, 16)
COSTLY = Dot("int8", "int8", "int32", 4, 16, steps=2)


def rewritten(result, dots=(MIXED, COSTLY)):
    (x,) = (n for n in post_order(result) if n.op.name == "param")
    kind = TargetKind("t", "a test", "c", "d", describe=lambda options: Description(512, dots=tuple(dots)))
    before = Function("main", (x,), result)
    after = UnsignBytes().run(IRModule({"main": before}), PassContext(target=Target(kind)))["main"]
    array = RNG.integers(-128, 128, x.type.shape).astype(np.int8)
    array.flat[:2] = -128, 127
    for found, wanted in zip(_all(evaluate(after, [array])), _all(evaluate(before, [array])), strict=True):
        np.testing.assert_array_equal(found, wanted)
    return after


def _all(value):
    return value if isinstance(value, tuple) else (value,)


def weights(*shape):
    return constant(RNG.integers(-128, 128, shape).astype(np.int8))


def products(function):
    return [n for n in post_order(function.body) if n.op.name in ("conv", "matmul")]


def test_products_take_unsigned_bytes():
    x = param("x", tensor_type((3, 8), "int8"))
    (product,) = products(rewritten(std.matmul(x, weights(8, 5), out_dtype="int32")))
    assert [a.dtype.name for a in product.args] == ["uint8", "int8"]


@pytest.mark.parametrize("padding", [None, (1, 0, 2, 1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_pads_with_the_offset(padding, groups):
    x = param("x", tensor_type((1, 5, 6, 8), "int8"))
    attrs = {"layout": "NXC", "kernel_layout": "XIO", "padding": padding, "groups": groups}
    (conv,) = products(rewritten(std.conv(x, weights(3, 2, 8 // groups, 6), **attrs)))
    assert conv.args[0].dtype.name == "uint8"
    assert not conv.attrs["padding"]


def test_other_readers_remove_the_offset():
    x = param("x", tensor_type((4, 4), "int8"))
    h = std.reshape(std.neg(x), shape=(2, 8))
    y = std.add(std.matmul(h, weights(8, 8), out_dtype="int32"), std.cast(h, to="int32"))
    after = rewritten(std.matmul(std.cast(y, to="int8"), weights(8, 3), out_dtype="int32"))
    assert [p.args[0].dtype.name for p in products(after)] == ["uint8", "uint8"]
    assert next(n for n in post_order(after.body) if n.op.name == "reshape").dtype.name == "uint8"


def test_results_stay_signed():
    x = param("x", tensor_type((4, 4), "int8"))
    h = std.neg(x)
    after = rewritten(make_tuple([h, std.matmul(h, weights(4, 4), out_dtype="int32")]))
    assert after.body.args[0].op.name == "neg"


@pytest.mark.parametrize("dots", [(), (MIXED,), (MIXED, Dot("int8", "int8", "int32", 4, 16))])
def test_keeps_the_graph_if_the_machine_needs_no_unsigned_bytes(dots):
    x = param("x", tensor_type((3, 8), "int8"))
    y = std.matmul(x, weights(8, 5), out_dtype="int32")
    assert rewritten(y, dots).body is y
