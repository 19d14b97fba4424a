"""Programs from tensors: intermediate tensors, the order of parameters, refusals."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.ir.structural import structural_equal
from dlc_core.te.tensor import producer_of
from dlc_core.tir.functor import allocations, block_list

X = np.arange(12, dtype="float32").reshape(3, 4) - 5


def softmax(a):
    """A softmax whose intermediate tensors are not referenced."""
    rows, columns = a.shape
    k, j = te.reduce_axis(columns, "k"), te.reduce_axis(columns, "j")
    top = te.compute((rows,), lambda i: te.max(a[i, k], axis=k), "top")
    e = te.compute((rows, columns), lambda i, q: te.exp(a[i, q] - top[i]), "e")
    total = te.compute((rows,), lambda i: te.sum(e[i, j], axis=j), "total")
    return te.compute((rows, columns), lambda i, q: e[i, q] / total[i], "softmax")


def test_intermediate_tensors_are_found(evaluate):
    n = te.var("n")
    a = te.placeholder((n, 4), name="A")
    out = softmax(a)
    gc.collect()
    func = te.create_prim_func([a, out])
    assert [b.name for b in block_list(func.body)] == ["top", "e", "total", "softmax"]
    assert [p.name for p in func.params] == ["A", "softmax", "n"]
    e = np.exp(X - X.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(evaluate(func, X, outputs=[(X.shape, "f4")]), want, rtol=1e-6)
    assert evaluate(func, X[:0], outputs=[((0, 4), "f4")]).shape == (0, 4)


def test_all_forms_give_the_same_program():
    a = te.placeholder((4,), name="A")
    with te.collect() as made:
        b = te.compute((4,), lambda i: a[i] * 2.0, "B")
        c = te.compute((4,), lambda i: b[i] + 1.0, "C")
    forms = [
        te.create_prim_func([a], [c], "f", producers=made),
        te.create_prim_func([a], [c], "f"),
        te.create_prim_func([a], c, "f"),
        te.create_prim_func([a, c], name="f"),
    ]
    assert all(structural_equal(forms[0], other) for other in forms[1:])


def test_an_operation_is_freed_with_its_last_buffer():
    a = te.placeholder((4,), name="A")
    op = weakref.ref(te.compute((4,), lambda i: a[i] + 1.0).op)
    gc.collect()
    assert op() is None
    # Inside of another body only the expression references it.
    c = te.compute((4,), lambda i: te.compute((4,), lambda j: a[j] + 1.0, "inner")[i] * 2.0)
    gc.collect()
    assert [b.name for b in block_list(te.create_prim_func([a, c]).body)] == ["inner", "compute"]
    assert producer_of(a.buffer) is None


def some_operations():
    a, state = te.placeholder((4,), name="A"), te.placeholder((4,), name="state")
    copied = te.extern((4,), [a], lambda ins, outs: te.call_extern("copy", ins[0], outs[0]))
    first = te.compute((1,), lambda t: copied[t], "first")
    step = te.compute((4,), lambda t: state[t - 1] + copied[t], "step")
    total = te.scan(first, step, state)
    return [weakref.ref(t.op) for t in (copied, first, step, total)]


def test_statements_and_scans_are_freed_too():
    operations = some_operations()
    gc.collect()
    assert [op() for op in operations] == [None] * 4


def test_arguments_keep_their_order_and_computed_ones_are_outputs(evaluate):
    a, b = te.placeholder((3, 4), name="A"), te.placeholder((4,), name="B")
    twice = te.compute((3, 4), lambda i, j: a[i, j] * 2.0, "twice")
    both = te.compute((3, 4), lambda i, j: twice[i, j] + b[j], "both")
    func = te.create_prim_func([twice, b, a, both])
    assert [p.name for p in func.params] == ["twice", "B", "A", "both"]
    assert allocations(func.body) == []
    func = te.create_prim_func([a, b, twice, both])
    found = evaluate(func, X, X[0], outputs=[(X.shape, "f4")] * 2)
    np.testing.assert_array_equal(found[0], X * 2)
    np.testing.assert_array_equal(found[1], X * 2 + X[0])


def test_a_computed_tensor_may_be_an_input(evaluate):
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] * 2.0, "B")
    c = te.compute((4,), lambda i: b[i] + 1.0, "C")
    func = te.create_prim_func([b], [c])
    assert [block.name for block in block_list(func.body)] == ["C"]
    np.testing.assert_array_equal(evaluate(func, X[0], outputs=[((4,), "f4")]), X[0] + 1)


def test_variables_among_the_arguments_are_parameters(evaluate):
    m, n, shift = te.var("m"), te.size_var("n"), te.var("shift", "float32")
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + shift, "B")
    func = te.create_prim_func([shift, a, b])
    assert [p.name for p in func.params] == ["A", "B", "shift", "n", "m"]
    found = evaluate(func, X, outputs=[(X.shape, "f4")], scalars=(0.5,))
    np.testing.assert_array_equal(found, X + np.float32(0.5))


def test_a_compute_of_several_values(evaluate):
    a = te.placeholder((3, 4), name="A")
    whole, rest = te.compute((3, 4), lambda i, j: (te.floor(a[i, j] / 2.0), te.fmod(a[i, j], 2.0)), "parts")
    assert (whole.name, rest.name) == ("parts_0", "parts_1")
    both = evaluate(te.create_prim_func([a, whole, rest]), X, outputs=[(X.shape, "f4")] * 2)
    np.testing.assert_array_equal(both[0], np.floor(X / 2))
    np.testing.assert_array_equal(both[1], np.fmod(X, 2))
    del whole
    gc.collect()
    func = te.create_prim_func([a, rest])
    assert [b.name for b in allocations(func.body)] == ["parts_0"]
    np.testing.assert_array_equal(evaluate(func, X, outputs=[(X.shape, "f4")]), np.fmod(X, 2))


def test_axes_stand_for_their_variables(evaluate):
    a, f = te.placeholder((6, 6), name="A"), te.placeholder((3, 3), name="F")
    y, x = te.reduce_axis(3, "y"), te.reduce_axis((0, 3), "x")
    conv = te.compute((4, 4), lambda i, j: te.sum(a[i + y, x + j] * f[2 - y, x], axis=[y, x]), "conv")
    image, kernel = np.arange(36, dtype="f4").reshape(6, 6), np.arange(9, dtype="f4").reshape(3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    want = (windows * kernel[::-1]).sum((2, 3))
    found = evaluate(te.create_prim_func([a, f, conv]), image, kernel, outputs=[((4, 4), "f4")])
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("function", "reference", "values"),
    [
        (
            lambda x: te.if_then_else(x > 0.0, te.sqrt(x), -x),
            lambda x: np.where(x > 0, np.sqrt(abs(x)), -x),
            X,
        ),
        (lambda x: te.select(te.all(x > -2.0, x < 2.0), x, 0.0), lambda x: np.where(abs(x) < 2, x, 0), X),
        (lambda x: te.select(te.any(x < -2.0, x > 2.0), x, 0.0), lambda x: np.where(abs(x) > 2, x, 0), X),
        (lambda x: te.max(te.min(x, 3.0), -1.0), lambda x: np.clip(x, -1, 3), X),
        (lambda x: te.power(te.abs(x), 2.0) * te.sign(x), lambda x: x * abs(x), X),
        (lambda x: te.cast(te.cast(x, "int32") // 3, "float32"), lambda x: np.floor(x / 3), X),
        (lambda x: te.truncmod(x, 3), lambda x: np.fmod(x, 3), X.astype("int32")),
        (lambda x: te.floormod(x, 3), lambda x: x % 3, X.astype("int64")),
        (lambda x: te.truncdiv(x, 3), lambda x: np.trunc(x / 3).astype("int64"), X.astype("int64")),
        (lambda x: te.erf(x) + te.tanh(x) * te.sigmoid(x), None, X),
    ],
)
def test_functions_of_elements(evaluate, function, reference, values):
    a = te.placeholder(values.shape, values.dtype, "A")
    out = te.compute(values.shape, lambda i, j: function(a[i, j]), "out")
    found = evaluate(te.create_prim_func([a, out]), values, outputs=[(values.shape, values.dtype)])
    if reference is not None:
        np.testing.assert_allclose(found, reference(values), rtol=1e-6)
    assert np.isfinite(found).all()


def test_lowest_and_highest_values_of_dtypes():
    assert te.min_value("int8").value == -128
    assert te.max_value("uint8").value == 255
    assert te.min_value("float16").value == -np.inf
    assert te.max_value("float32").value == np.inf


def mixed():
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, "B")
    return a, b


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, b: te.create_prim_func([b]), "'B' reads A: float32[4], which is neither"),
        (lambda a, b: te.create_prim_func([a]), "none of the arguments is computed"),
        (lambda a, b: te.create_prim_func([a], []), "none of the arguments is computed"),
        (lambda a, b: te.create_prim_func([a, b, b]), "output B is an input or occurs twice"),
        (lambda a, b: te.create_prim_func([a, a, b]), "the argument A occurs twice"),
        (lambda a, b: te.create_prim_func([a, b], [b]), "output B is an input"),
        (lambda a, b: te.create_prim_func([], [a]), "output A is a placeholder"),
        (lambda a, b: te.compute((4,), lambda i, j: a[i]), "a function of 1 indices, not 2"),
        (lambda a, b: te.compute((4,), lambda i: ()), "returns no value"),
        (lambda a, b: te.compute((4,), lambda i: a[i], dtype_="int32"), "gives float32, not int32"),
        (lambda a, b: te.thread_axis(4), "without a name"),
    ],
)
def test_refuses_invalid_programs(make, message):
    with pytest.raises(UsageError) as error:
        make(*mixed())
    assert message in str(error.value)
