"""Tensor expressions compiled to machine code have the results of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import DlcError
from dlc_core.tir.stmt import loop, store

RNG = np.random.default_rng(0)


def build(*args, threads=2):
    return dlc.build(*args, target="llvm", num_threads=threads)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(7, 33), (1, 1), (64, 64), (3, 0)])
def test_argmax_and_argmin(shape, dtype):
    rows, columns = te.var("rows"), te.var("columns")
    a, k = te.placeholder((rows, columns), dtype, "A"), te.reduce_axis(columns, "k")
    best, argbest = te.compute((rows,), lambda i: te.argmax(a[i, k], axis=k), "best")
    x = RNG.integers(-9, 9, shape).astype(dtype)
    values, indices = build([a, best, argbest])(x)
    if shape[1]:
        np.testing.assert_array_equal(indices, x.argmax(1))
        np.testing.assert_array_equal(values, x.max(1))
    else:
        assert (indices == 2**63 - 1).all()


def test_argmax_of_nan():
    a, k = te.placeholder((4, 5), name="A"), te.reduce_axis(5, "k")
    _, argbest = te.compute((4,), lambda i: te.argmin(a[i, k], axis=k), "best")
    x = RNG.standard_normal((4, 5)).astype("f4")
    x[1, 3] = x[1, 4] = x[2, 0] = np.nan
    np.testing.assert_array_equal(build([a, argbest])(x), x.argmin(1))


def online(x, y):
    top = te.maximum(x[0], y[0])
    return top, x[1] * te.exp(x[0] - top) + y[1] * te.exp(y[0] - top)


ONLINE = te.comm_reducer(online, lambda t, s: (-1e30, 0), "online")


@pytest.mark.parametrize("partial", [False, True])
def test_an_online_softmax(partial):
    a, k = te.placeholder((8, 64), name="A"), te.reduce_axis(64, "k")
    top, total = te.compute((8,), lambda i: ONLINE((a[i, k], te.const(1.0, "float32")), axis=k), "pair")
    out = te.compute((8, 64), lambda i, j: te.exp(a[i, j] - top[i]) / total[i], "softmax")
    s = dlc.create_schedule(out)
    if partial:
        _, lane = s[top].split(k, 8)
        lanes = s.rfactor(top, lane)
        s[lanes].reorder(*lanes.op.reduce_axis, lanes.op.axis[0])
        s[lanes].vectorize(lanes.op.axis[0])
    s[out].parallel(out.op.axis[0])
    x = RNG.standard_normal((8, 64)).astype("f4")
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(build(s, [a, out])(x), e / e.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(build([a, out])(x), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_product_of_complex_numbers():
    re, im = te.placeholder((4, 9), "float64", "re"), te.placeholder((4, 9), "float64", "im")
    k = te.reduce_axis(9, "k")
    product = te.comm_reducer(
        lambda x, y: (x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]), lambda t, s: (1, 0)
    )
    out = te.compute((4,), lambda i: product((re[i, k], im[i, k]), axis=k), "out")
    z = RNG.standard_normal((4, 9)) + 1j * RNG.standard_normal((4, 9))
    real, imaginary = build([re, im, *out])(np.ascontiguousarray(z.real), np.ascontiguousarray(z.imag))
    np.testing.assert_allclose(real + 1j * imaginary, z.prod(1))


@pytest.mark.parametrize("scheduled", [False, True])
def test_running_sums(scheduled):
    steps, n = te.var("T"), te.var("n")
    x, state = te.placeholder((steps, n), name="X"), te.placeholder((steps, n), name="state")
    first = te.compute((1, n), lambda t, i: x[0, i], "first")
    step = te.compute((steps, n), lambda t, i: state[t - 1, i] + x[t, i], "step")
    total = te.scan(first, step, state, inputs=[x])
    s = dlc.create_schedule(total)
    if scheduled:
        t, i = s[step].op.axis
        outer, inner = s[step].split(i, 8)
        s[step].reorder(outer, t, inner)
        s[step].parallel(outer)
        s[step].vectorize(inner)
    exe = build(s, [x, total]) if scheduled else build([x, total])
    for shape in ((9, 33), (1, 5), (300, 64)):
        values = RNG.integers(-5, 5, shape).astype("f4")
        np.testing.assert_array_equal(exe(values), np.cumsum(values, 0))


def test_a_recurrent_cell():
    steps, n = 12, 16
    x, w = te.placeholder((steps, n), name="x"), te.placeholder((n, n), name="W")
    start, h = te.placeholder((1, n), name="start"), te.placeholder((steps, n), name="h")
    k = te.reduce_axis(n, "k")
    product = te.compute((steps, n), lambda t, i: te.sum(w[i, k] * h[t - 1, k], axis=k), "product")
    step = te.compute((steps, n), lambda t, i: te.tanh(product[t, i] + x[t, i]), "step")
    hidden = te.scan(start, step, h, inputs=[x, w])
    values, weights, first = (RNG.standard_normal(s).astype("f4") for s in ((12, 16), (16, 16), (1, 16)))
    expected = [first[0]]
    for row in values[1:]:
        expected.append(np.tanh(weights @ expected[-1] + row))
    found = build([x, w, start, hidden])(values, weights, first)
    np.testing.assert_allclose(found, np.stack(expected), rtol=2e-4, atol=2e-5)


def test_two_states():
    one, two = (te.placeholder((20,), "int64", name) for name in ("one", "two"))
    zero, unit = (te.compute((1,), lambda t, v=v: te.const(v), f"first{v}") for v in (0, 1))
    then = te.compute((20,), lambda t: (two[t - 1], one[t - 1] + two[t - 1]), "then")
    states = te.scan([zero, unit], then, [one, two])
    # Read a tensor, so that the program has an input.
    a = te.placeholder((1,), "int64", "A")
    out = te.compute((20,), lambda t: states[0][t] + a[0], "out")
    assert build([a, out])(np.zeros(1, "int64")).tolist()[:8] == [0, 1, 1, 2, 3, 5, 8, 13]


def test_statements():
    n = te.var("n")
    a = te.placeholder((n,), name="A")

    def sums(ins, outs):
        i = te.var("i")
        return [
            store(outs[0], (0,), ins[0][0]),
            loop(i, n - 1, store(outs[0], (i,), outs[0][i - 1] + ins[0][i]), begin=1),
        ]

    made = te.extern((n,), [a], sums, "sums")
    out = te.compute((n,), lambda i: made[i] * 2.0, "out")
    x = RNG.integers(-5, 5, 100).astype("f4")
    np.testing.assert_array_equal(build([a, out])(x), 2 * np.cumsum(x))


def test_missing_external_functions_are_refused():
    a = te.placeholder((4,), name="A")
    b = te.extern((4,), [a], lambda ins, outs: te.call_extern("nobody_has_this", ins[0], outs[0]), "B")
    with pytest.raises(DlcError, match="nobody_has_this"):
        build([a, b])
