"""mixed_precision: values that are rounded, values that are not, and the rest of the graph."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, constant, make_tuple, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext
from dlc_core.passes.graph import MixedPrecision
from dlc_core.target import Description, Dot, Target, TargetKind
from dlc_core.tir.matrix import Fragment, MatrixUnit

RNG = np.random.default_rng(0)
DOTS = Description(vector_bits=512, dots=(Dot("bfloat16", "bfloat16", "float32", 2, 16),))
_ONE = Fragment(2, 2, ((1, 2), (2, 2)), ())
UNITS = Description(
    subgroup=4, matrix_units=(MatrixUnit("bfloat16", "bfloat16", "float32", _ONE, _ONE, _ONE),)
)


def target(description: Description) -> Target:
    return Target(TargetKind("t", "a test", "c", "d", describe=lambda options: description))


def weights(*shape: int):
    return constant(RNG.standard_normal(shape).astype(np.float32))


def lowered(result, precision="bfloat16", description=DOTS):
    params = tuple(n for n in post_order(result) if n.op.name == "param")
    module = IRModule({"main": Function("main", params, result)})
    context = PassContext(target=target(description), config={"precision": precision})
    return MixedPrecision().run(module, context)["main"]


def ops(function):
    return [n.op.name for n in post_order(function.body) if n.op.name not in ("param", "const", "tuple")]


@pytest.fixture
def x():
    return param("x", tensor_type((4, 8)))


def test_float32_changes_nothing(x):
    y = std.matmul(x, weights(8, 6))
    assert lowered(y, "float32").body is y


@pytest.mark.parametrize("description", [DOTS, UNITS])
def test_contractions_have_narrow_operands_and_float32_results(x, description):
    made = lowered(std.relu(std.matmul(x, weights(8, 6))), description=description)
    assert ops(made) == ["cast", "matmul", "relu"]
    product = next(n for n in post_order(made.body) if n.op.name == "matmul")
    assert [a.dtype.name for a in product.args] == ["bfloat16", "bfloat16"]
    assert product.dtype.name == made.body.dtype.name == "float32"


def test_other_readers_of_a_narrow_value_convert_it_back(x):
    h = std.relu(std.matmul(x, weights(8, 8)))
    made = lowered(std.add(std.matmul(h, weights(8, 8)), h))
    assert ops(made) == ["cast", "matmul", "relu", "cast", "matmul", "cast", "add"]
    wide = made.body.args[1]
    assert wide.op.name == "cast"
    assert wide.args[0].dtype.name == "bfloat16"


def test_results_are_not_rounded(x):
    h = std.relu(std.matmul(x, weights(8, 8)))
    made = lowered(make_tuple([h, std.add(std.matmul(h, weights(8, 8)), h)]))
    first, second = made.body.args
    assert first.op.name == "relu"
    assert second.args[1] is first


def test_data_movement_works_on_narrow_values(x):
    h = std.concat(std.relu(std.matmul(x, weights(8, 8))), std.exp(x), axis=1)
    made = lowered(std.matmul(std.reshape(h, shape=(2, 32)), weights(32, 3)))
    moved = {n.op.name: n.dtype.name for n in post_order(made.body)}
    assert moved["concat"] == moved["reshape"] == "bfloat16"
    assert moved["exp"] == moved["relu"] == "float32"


def test_normalisations_stay_in_float32(x):
    made = lowered(std.softmax(std.matmul(x, weights(8, 8)), axis=-1))
    assert made.body.op.name == "softmax"
    assert made.body.args[0].dtype.name == "float32"


@pytest.mark.parametrize(
    ("precision", "description"), [("float16", DOTS), ("bfloat16", Description()), ("float16", UNITS)]
)
def test_only_weights_are_narrow_without_a_native_instruction(x, precision, description):
    made = lowered(std.matmul(x, weights(8, 6)), precision, description)
    assert ops(made) == ["matmul"]
    assert [a.dtype.name for a in made.body.args] == ["float32", precision]


def test_keeps_products_of_two_values_and_other_dtypes(x):
    other = param("y", tensor_type((8, 4)))
    wide = param("z", tensor_type((4, 8), "float64"))
    y = std.matmul(x, other)
    assert lowered(y).body is y
    z = std.matmul(wide, constant(np.ones((8, 2))))
    assert lowered(z).body is z


@pytest.mark.parametrize(("precision", "bound"), [("bfloat16", 2e-2), ("float16", 2e-3)])
def test_the_error_is_within_the_stated_tolerance(precision, bound):
    image = param("x", tensor_type((1, 6, 6, 4)))
    attrs = {"layout": "NXC", "kernel_layout": "XIO", "padding": (1, 1, 1, 1)}
    h = std.relu(std.conv(image, weights(3, 3, 4, 8), **attrs))
    y = std.add(std.conv(h, weights(3, 3, 8, 8), **attrs), h)
    made = lowered(y, precision)
    array = RNG.standard_normal((1, 6, 6, 4)).astype(np.float32)
    wanted = evaluate(Function("main", (image,), y), [array])
    error = np.abs(evaluate(made, [array]) - wanted).max() / np.abs(wanted).max()
    assert 0 < error < bound
