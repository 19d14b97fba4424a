"""Reductions: of the core and of users, of one value and of several."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.tir.combine import combination_of
from dlc_core.tir.functor import block_list

RNG = np.random.default_rng(0)


def reduced(shape, dtype, make, keep=1):
    """The program of `make(A, *reduce axes)` over all dims of A but the first."""
    a = te.placeholder(shape, dtype, "A")
    axes = [te.reduce_axis(d, f"k{i}") for i, d in enumerate(shape[1:])]
    made = te.compute(shape[:1], lambda i: make(a[(i, *axes)], axes), "out")
    tensors = made if isinstance(made, tuple) else (made,)
    return te.create_prim_func([a, *tensors]), [t.dtype.numpy for t in tensors]


def values(shape, dtype):
    kind = np.dtype(dtype).kind
    return RNG.integers(0 if kind == "u" else -4, 5, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint8"])
@pytest.mark.parametrize(
    ("reducer", "reference"), [(te.sum, np.sum), (te.prod, np.prod), (te.max, np.max), (te.min, np.min)]
)
def test_reductions_of_one_value(evaluate, reducer, reference, dtype):
    x = values((3, 2, 3), dtype)
    func, types = reduced(x.shape, dtype, lambda v, axes: reducer(v, axes))
    found = evaluate(func, x, outputs=[((3,), types[0])])
    np.testing.assert_array_equal(found, reference(x, (1, 2)).astype(dtype))
    assert combination_of(block_list(func.body)[0].body).plain


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8"])
@pytest.mark.parametrize(("reducer", "reference"), [(te.argmax, np.argmax), (te.argmin, np.argmin)])
def test_indices_of_extremes(evaluate, reducer, reference, dtype):
    x = values((5, 4, 3), dtype)
    func, types = reduced(x.shape, dtype, lambda v, axes: reducer(v, axes))
    best, place = evaluate(func, x, outputs=[((5,), types[0]), ((5,), "int64")])
    flat = x.reshape(5, -1)
    np.testing.assert_array_equal(place, reference(flat, 1))
    np.testing.assert_array_equal(best, np.take_along_axis(flat, place[:, None], 1)[:, 0])


def test_extremes_of_special_values(evaluate):
    x = np.array(
        [
            [-np.inf, -np.inf, -np.inf, -np.inf],
            [1, np.nan, 7, np.nan],
            [np.inf, 0, np.inf, -0.0],
            [0.0, -0.0, 0.0, -0.0],
        ],
        "float32",
    )
    for reducer, reference in ((te.argmax, np.argmax), (te.argmin, np.argmin)):
        func, _ = reduced(x.shape, "float32", lambda v, axes, reducer=reducer: reducer(v, axes))
        _, place = evaluate(func, x, outputs=[((4,), "f4"), ((4,), "int64")])
        np.testing.assert_array_equal(place, reference(x, 1))


def test_the_index_of_an_extreme_is_the_axis_or_the_given_expression(evaluate):
    a = te.placeholder((6,), name="A")
    k = te.reduce_axis((2, 6), "k")
    _, place = te.compute((), lambda: te.argmax(a[k], axis=k))
    _, back = te.compute((), lambda: te.argmax(a[k], axis=k, index=5 - k.var))
    x = np.array([9, 9, 1, 3, 3, 0], "f4")
    found = evaluate(te.create_prim_func([a, place, back]), x, outputs=[((), "int64")] * 2)
    assert [int(v) for v in found] == [3, 1]


def test_reductions_where_a_condition_holds(evaluate):
    a, n = te.placeholder((4, 5), name="A"), te.reduce_axis(5, "k")
    out = te.compute((4,), lambda i: te.sum(a[i, n], axis=n, where=n.var <= i), "out")
    top, place = te.compute((4,), lambda i: te.argmax(a[i, n], n, where=n.var > i + 1), "top")
    x = values((4, 5), "float32")
    found = evaluate(
        te.create_prim_func([a, out, top, place]), x, outputs=[((4,), "f4"), ((4,), "f4"), ((4,), "int64")]
    )
    np.testing.assert_array_equal(found[0], np.tril(x).sum(1))
    np.testing.assert_array_equal(found[2], [*(x[i, i + 2 :].argmax() + i + 2 for i in range(3)), 2**63 - 1])
    assert found[1][3] == -np.inf


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_reduction_over_an_empty_domain_is_neutral(evaluate, symbolic):
    n = te.var("n") if symbolic else 0
    func, _ = reduced((3, n), "float32", lambda v, axes: te.sum(v, axes))
    assert evaluate(func, np.ones((3, 0), "f4"), outputs=[((3,), "f4")]).tolist() == [0, 0, 0] or symbolic
    func, _ = reduced((0, 4), "float32", lambda v, axes: te.argmax(v, axes))
    assert evaluate(func, np.ones((0, 4), "f4"), outputs=[((0,), "f4"), ((0,), "i8")])[1].shape == (0,)


def online(x, y):
    top = te.maximum(x[0], y[0])
    return top, x[1] * te.exp(x[0] - top) + y[1] * te.exp(y[0] - top)


ONLINE = te.comm_reducer(online, lambda t, s: (-1e30, 0), "online_softmax")
COMPLEX = te.comm_reducer(
    lambda x, y: (x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]), lambda t, s: (1, 0), "product"
)


def test_user_defined_reducers_of_one_value(evaluate):
    hypot = te.comm_reducer(lambda x, y: te.sqrt(x * x + y * y), lambda t: te.const(0, t), "hypot")
    func, _ = reduced((3, 4), "float64", lambda v, axes: hypot(v, axes))
    x = RNG.standard_normal((3, 4))
    np.testing.assert_allclose(evaluate(func, x, outputs=[((3,), "f8")]), np.sqrt((x * x).sum(1)), rtol=1e-12)
    assert not combination_of(block_list(func.body)[0].body).plain
    either = te.comm_reducer(lambda x, y: x | y, lambda t: 0)
    func, _ = reduced((3, 4), "uint8", lambda v, axes: either(v, axes))
    bits = RNG.integers(0, 256, (3, 4)).astype("uint8")
    np.testing.assert_array_equal(evaluate(func, bits, outputs=[((3,), "u1")]), np.bitwise_or.reduce(bits, 1))
    assert combination_of(block_list(func.body)[0].body).plain


def test_an_online_softmax(evaluate):
    func, _ = reduced((3, 5), "float32", lambda v, axes: ONLINE((v, te.const(1.0, "float32")), axes))
    x = RNG.standard_normal((3, 5)).astype("f4")
    top, total = evaluate(func, x, outputs=[((3,), "f4")] * 2)
    np.testing.assert_array_equal(top, x.max(1))
    np.testing.assert_allclose(total, np.exp(x - x.max(1, keepdims=True)).sum(1), rtol=1e-5)


def test_a_product_of_complex_numbers(evaluate):
    re, im = te.placeholder((3, 4), "float64", "re"), te.placeholder((3, 4), "float64", "im")
    k = te.reduce_axis(4, "k")
    out = te.compute((3,), lambda i: COMPLEX((re[i, k], im[i, k]), axis=k), "out")
    z = RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4))
    func = te.create_prim_func([re, im, *out])
    parts = np.ascontiguousarray(z.real), np.ascontiguousarray(z.imag)
    real, imaginary = evaluate(func, *parts, outputs=[((3,), "f8")] * 2)
    np.testing.assert_allclose(real + 1j * imaginary, z.prod(1))


def test_several_reductions_in_one_compute(evaluate):
    func, types = reduced(
        (3, 4), "float32", lambda v, axes: (te.sum(v, axes), te.sum(v * v, axes), te.max(v, axes))
    )
    assert len(block_list(func.body)) == 1
    x = values((3, 4), "float32")
    found = evaluate(func, x, outputs=[((3,), t) for t in types])
    for have, want in zip(found, (x.sum(1), (x * x).sum(1), x.max(1)), strict=True):
        np.testing.assert_array_equal(have, want)


A = te.placeholder((4, 4), name="A")
K, J = te.reduce_axis(4, "k"), te.reduce_axis(4, "j")


def bad(combine, identity=lambda *t: (0,) * len(t), source=None):
    reducer = te.comm_reducer(combine, identity, "mine")
    return te.compute((4,), lambda i: reducer(A[i, K] if source is None else source(i), axis=K))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: te.comm_reducer(lambda x: x, lambda t: 0), "takes 1 arguments"),
        (lambda: bad(lambda x, y: (x, y)), "the combination of reducer 'mine' has 2 values"),
        (lambda: bad(lambda x, y: x + y, lambda t: (0, 1)), "the neutral value of reducer 'mine' has 2"),
        (lambda: bad(lambda x, y: te.cast(x + y, "int32")), "combination of reducer 'mine' is (int32)"),
        (
            lambda: bad(lambda x, y: x + y, lambda t: te.const(0, "int8")),
            "neutral value of reducer 'mine'",
        ),
        (lambda: bad(lambda x, y: x + y * A[0, 0]), "reducer 'mine' depends on A"),
        (lambda: bad(lambda x, y: x + y * te.var("n", "float32")), "reducer 'mine' depends on n"),
        (lambda: te.compute((4,), lambda i: te.sum(A[i, K], axis=i)), "runs over reduce axes"),
        (lambda: te.compute((4,), lambda i: te.sum(A[i, K], axis=())), "runs over reduce axes"),
        (lambda: te.sum(A[0, K], K, where=A[0, K]), "is float32, not bool"),
        (lambda: te.compute((4,), lambda i: te.sum(A[i, K], K) + 1.0), "a sum over axes cannot be part of"),
        (lambda: te.compute((4,), lambda i: 2.0 * te.max(A[i, K], K)), "a max over axes cannot be part of"),
        (lambda: te.compute((4,), lambda i: (te.sum(A[i, K], K), A[i, 0])), "reductions and plain values"),
        (lambda: te.compute((4,), lambda i: (te.sum(A[i, K], K), te.max(A[i, J], J))), "different axes"),
        (lambda: te.argmax(A[0, K], K, index=1.0), "is int64, not float32"),
    ],
)
def test_refuses_invalid_reductions(make, message):
    with pytest.raises(UsageError) as error:
        make()
    assert message in str(error.value)
