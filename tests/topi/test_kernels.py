"""Programs of several library functions are built as several kernels, as fusion divides a model."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te, topi
from dlc_core.diag import DlcError
from dlc_core.passes.lower.single import single_module
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def kernels(*arguments):
    return list(single_module(list(arguments)).of_kind(PrimFunc))


def check(arguments, count, sizes=None, target="llvm"):
    """Build a program, compare its results with those of the interpreter, and count its kernels."""
    assert len(kernels(*arguments)) == count, kernels(*arguments)
    func = te.create_prim_func(arguments)
    sizes = sizes or {}
    shape = {t: [sizes.get(str(d)) or int(str(d)) for d in t.shape] for t in arguments}
    inputs = [floats(*shape[t]) for t in arguments if t.op is None]
    results = [np.zeros(shape[t], t.dtype.numpy) for t in arguments if t.op is not None]
    given = {False: iter(inputs), True: iter(results)}
    run(func, *(next(given[t.op is not None]) for t in arguments), *(sizes[v.name] for v in func.scalars))
    found = dlc.build(arguments, target)(*inputs)
    for one, expected in zip(found if isinstance(found, tuple) else (found,), results, strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)


def tensors(*shapes):
    return [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(shapes)]


def test_pointwise_functions_follow_the_product_that_only_they_read():
    x, w, b = tensors((4, 6), (8, 6), (8,))
    hidden = topi.nn.relu(topi.nn.bias_add(topi.matmul(x, w, transpose_b=True), b))
    check([x, w, b, topi.nn.softmax(hidden)], 2)
    assert kernels(x, w, b, topi.nn.softmax(hidden)) == ["matmul_add_relu", "softmax"]


def test_a_value_with_several_readers_is_stored():
    x, w = tensors((5, 5), (5, 5))
    product = topi.matmul(x, w)
    check([x, w, topi.add(topi.exp(product), topi.sum(product, axis=1, keepdims=True))], 3)


def test_results_of_functions_that_are_read_again():
    x, w = tensors((5, 5), (5, 5))
    product = topi.matmul(x, w)
    total = topi.sum(product)
    check([x, w, product, total, topi.nn.relu(product)], 3)


def test_functions_with_several_results():
    (x,) = tensors((6, 4))
    first, second = topi.split(x, (2, 4))
    check([x, topi.sum(topi.exp(first)), topi.max(second, axis=0)], 4)


def test_sums_of_two_products():
    a, b, c = tensors((4, 4), (4, 4), (4, 4))
    check([a, b, c, topi.tanh(topi.add(topi.matmul(a, b), topi.matmul(a, c)))], 2)


def test_convolutions_and_pools():
    x, v, w = tensors((1, 3, 8, 8), (4, 3, 3, 3), (5, 4, 1, 1))
    first = topi.nn.relu(topi.nn.conv2d(x, v, padding=1))
    second = topi.nn.conv2d(topi.nn.pool2d(first, 2, 2), w)
    check([x, v, w, topi.mul(second, 2.0)], 3)


def test_sizes_may_be_symbolic():
    n, m = te.var("n"), te.var("m")
    x, w = te.placeholder((n, m), name="x"), te.placeholder((7, m), name="w")
    check([x, w, topi.nn.softmax(topi.nn.dense(x, w))], 2, {"n": 3, "m": 5})


def test_calls_check_conditions_of_all_kernels():
    n = te.var("n")
    x, y, w = (
        te.placeholder((n, 2), name="x"),
        te.placeholder((4, 2), name="y"),
        te.placeholder((2, 2), name="w"),
    )
    exe = dlc.build([x, y, w, topi.sum(topi.matmul(topi.add(x, y), w), axis=1)])
    assert exe(floats(1, 2), floats(4, 2), floats(2, 2)).shape == (4,)
    with pytest.raises(DlcError, match="1 or 4 is needed"):
        exe(floats(3, 2), floats(4, 2), floats(2, 2))


def test_programs_of_their_own_reductions_stay_one_kernel():
    (x,) = tensors((5, 8))
    k = te.reduce_axis(8, "k")
    top = te.compute((5,), lambda i: te.max(x[i, k], axis=k), "top")
    lowered = te.compute((5, 8), lambda i, j: x[i, j] - top[i], "lowered")
    check([x, topi.sum(topi.exp(lowered), axis=1)], 1)
    check([x, topi.sum(topi.exp(x), axis=1)], 1)
    check([x, topi.nn.softmax(x)], 1)


def test_schedules_have_all_stages():
    x, w = tensors((4, 6), (8, 6))
    out = topi.nn.softmax(topi.nn.dense(x, w))
    s = te.create_schedule(out)
    assert len(single_module(s, [x, w, out]).of_kind(PrimFunc)) == 1
