"""arrange_resizes: interpolation along one axis after the other, in kernels of their own."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext
from dlc_core.passes.graph import ArrangeResizes
from dlc_core.passes.graph.fuse import Fuse, kernels_of

RNG = np.random.default_rng(3)


def resized(shape, sizes, axes=(2, 3), dtype="float32", **attrs):
    x = param("x", tensor_type(shape, dtype))
    return x, std.resize(x, axes=axes, sizes=sizes, **attrs)


def arranged(x, body):
    before = Function("main", (x,), body)
    return before, ArrangeResizes().run(IRModule({"main": before}), PassContext())["main"]


def ops(function):
    return [(n.op.name, n.attrs["axes"]) for n in post_order(function.body) if hasattr(n.op, "kind")]


def check_equal(before, after):
    value = RNG.standard_normal(before.params[0].shape).astype(np.float32)
    wanted, found = (evaluate(f, [value]) for f in (before, after))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(("mode", "sizes"), [("linear", (7, 9)), ("linear", (4, 9)), ("cubic", (3, 5))])
def test_the_innermost_axis_comes_first(mode, sizes, coordinates):
    before, after = arranged(*resized((2, 3, 4, 5), sizes, mode=mode, coordinates=coordinates))
    moved = [(axis,) for axis, size, old in ((3, sizes[1], 5), (2, sizes[0], 4)) if size != old]
    assert [axes for _, axes in ops(after)] == (moved if len(moved) > 1 else [(2, 3)])
    check_equal(before, after)


UNCHANGED = {
    "nearest": {"mode": "nearest"},
    "reduced": {"mode": "linear", "sizes": (2, 2)},
    "one axis": {"mode": "linear", "axes": (2,), "sizes": (9,)},
    "half precision": {"mode": "linear", "dtype": "float16"},
}


@pytest.mark.parametrize("options", UNCHANGED.values(), ids=UNCHANGED)
def test_what_is_left_alone(options):
    """Reducing along two axes reads no more elements at once; halves would be rounded twice."""
    options = {"sizes": (8, 9), **options}
    before, after = arranged(*resized((1, 2, 4, 5), options.pop("sizes"), **options))
    assert ops(after) == ops(before)


def test_symbolic_sizes_are_left_alone():
    height = Var("height")
    x, body = resized((1, 2, height, 5), (2 * height, 10), mode="linear")
    before, after = arranged(x, body)
    assert ops(after) == ops(before)


def test_symbolic_sizes_are_separated_if_a_result_reads_too_many_elements():
    """Cubic along four axes reads 256 elements for each result."""
    sizes = [Var(name) for name in "abcd"]
    _, after = arranged(*resized(tuple(sizes), (1, 1, 3, 3), axes=(0, 1, 2, 3), mode="cubic"))
    assert [axes for _, axes in ops(after)] == [(3,), (2,), (1,), (0,)]


def test_each_axis_is_a_kernel_with_what_follows():
    x, body = resized((1, 2, 4, 5), (8, 10), mode="linear")
    _, after = arranged(x, std.relu(body))
    kernels = kernels_of(Fuse().run(IRModule({"main": after}), PassContext())["main"])
    assert [kernel.name for kernel in kernels] == ["fused_resize", "fused_resize_relu"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_transpose_moves_before_values_that_grow(mode):
    x, body = resized((1, 2, 4, 5), (8, 10), mode=mode)
    before, after = arranged(x, std.transpose(body, axes=(0, 2, 3, 1)))
    assert [name for name, _ in ops(after)] == ["transpose", *["resize"] * (1 if mode == "nearest" else 2)]
    check_equal(before, after)
    x, body = resized((1, 2, 4, 5), (2, 3), mode=mode)
    before, after = arranged(x, std.transpose(body, axes=(0, 2, 3, 1)))
    assert [name for name, _ in ops(after)] == ["resize", "transpose"]
