"""Recurrences: results and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.tir.functor import block_list

RNG = np.random.default_rng(0)


def cumsum(steps, n, dtype="float32"):
    x, state = te.placeholder((steps, n), dtype, "X"), te.placeholder((steps, n), dtype, "state")
    first = te.compute((1, n), lambda t, i: x[0, i], "first")
    step = te.compute((steps, n), lambda t, i: state[t - 1, i] + x[t, i], "step")
    return te.create_prim_func([x, te.scan(first, step, state, inputs=[x], name="total")])


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_running_sums(evaluate, dtype, symbolic):
    x = RNG.integers(-4, 5, (5, 3)).astype(dtype)
    func = cumsum(te.var("T"), te.var("n"), dtype) if symbolic else cumsum(5, 3, dtype)
    found = evaluate(func, x, outputs=[(x.shape, dtype)])
    np.testing.assert_array_equal(found, np.cumsum(x, 0, dtype=dtype))
    assert [b.name for b in block_list(func.body)] == ["first", "total_init", "step"]


def test_scans_without_steps(evaluate):
    func = cumsum(te.var("T"), te.var("n"))
    x = np.ones((4, 0), "f4")
    assert evaluate(func, x, outputs=[((4, 0), "f4")]).shape == (4, 0)
    one = RNG.standard_normal((1, 3)).astype("f4")
    np.testing.assert_array_equal(evaluate(func, one, outputs=[((1, 3), "f4")]), one)
    steps = te.var("T")
    given, state = te.placeholder((1, 2), name="given"), te.placeholder((steps, 2), name="state")
    step = te.compute((steps, 2), lambda t, i: state[t - 1, i] * 2.0, "step")
    doubled = te.create_prim_func([given, te.scan(given, step, state)])
    first = np.ones((1, 2), "f4")
    for count in (0, 1, 4):
        found = evaluate(doubled, first, outputs=[((count, 2), "f4")])
        assert found[:, 0].tolist() == [2**t for t in range(count)]


def rnn(steps, n):
    """h[t] = tanh(W h[t-1] + x[t]), with an inner stage."""
    x, w = te.placeholder((steps, n), name="x"), te.placeholder((n, n), name="W")
    start, h = te.placeholder((1, n), name="start"), te.placeholder((steps, n), name="h")
    k = te.reduce_axis(n, "k")
    fed = te.compute((steps, n), lambda t, i: x[t, i] * 2.0, "fed")
    product = te.compute((steps, n), lambda t, i: te.sum(w[i, k] * h[t - 1, k], axis=k), "product")
    step = te.compute((steps, n), lambda t, i: te.tanh(product[t, i] + fed[t, i]), "step")
    hidden = te.scan(start, step, h, inputs=[x, w], name="hidden")
    last = te.compute((n,), lambda i: hidden[steps - 1, i], "last")
    return te.create_prim_func([x, w, start], [hidden, last])


def rnn_reference(x, w, start):
    states = [start[0]]
    for row in x[1:]:
        states.append(np.tanh(w @ states[-1] + 2 * row))
    return np.stack(states)


def test_a_recurrent_cell(evaluate):
    x, w, start = (RNG.standard_normal(s).astype("f4") for s in ((6, 4), (4, 4), (1, 4)))
    want = rnn_reference(x, w, start)
    for func in (rnn(6, 4), rnn(te.var("T"), te.var("n"))):
        hidden, last = evaluate(func, x, w, start, outputs=[((6, 4), "f4"), ((4,), "f4")])
        np.testing.assert_allclose(hidden, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(last, hidden[-1])
    # Values that do not depend on the states are computed once, before the steps.
    assert [b.name for b in block_list(func.body)] == ["fed", "hidden_init", "product", "step", "last"]


def fibonacci(steps, together):
    one, two = (te.placeholder((steps,), "int64", name) for name in ("one", "two"))
    zero = te.compute((1,), lambda t: te.const(0), "zero")
    unit = te.compute((1,), lambda t: te.const(1), "unit")
    if together:
        then = te.compute((steps,), lambda t: (two[t - 1], one[t - 1] + two[t - 1]), "step")
    else:
        then = (
            te.compute((steps,), lambda t: two[t - 1], "next"),
            te.compute((steps,), lambda t: one[t - 1] + two[t - 1], "sum"),
        )
    return te.create_prim_func([], te.scan([zero, unit], then, [one, two], name="fib"))


@pytest.mark.parametrize("together", [False, True])
def test_two_states(evaluate, together):
    first, second = evaluate(fibonacci(10, together), outputs=[((10,), "int64")] * 2)
    assert first.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]
    assert second[:-1].tolist() == first[1:].tolist()


def test_several_first_steps_and_an_argmax(evaluate):
    """Each step is the maximum of the last two, plus its index."""
    given, state = te.placeholder((2,), name="given"), te.placeholder((7,), name="state")
    k = te.reduce_axis(2, "k")
    best, place = te.compute((7,), lambda t: te.argmax(state[t - 1 - k], axis=k), "best")
    step = te.compute((7,), lambda t: best[t] - te.cast(place[t], "float32"), "step")
    func = te.create_prim_func([given, te.scan(given, step, state)])
    found = evaluate(func, np.array([3, 5], "f4"), outputs=[((7,), "f4")])
    want = [3.0, 5.0]
    for _ in range(5):
        last = want[:-3:-1]
        want.append(max(last) - last.index(max(last)))
    assert found.tolist() == want


def parts(n=4, steps=5, first=1):
    x, state = te.placeholder((steps, n), name="X"), te.placeholder((steps, n), name="state")
    init = te.compute((first, n), lambda t, i: x[t, i], "init")
    return x, state, init


def scanned(body, *, init=None, **options):
    x, state, first = parts(**options)
    step = te.compute((5, 4), lambda t, i: body(state, x, t, i), "step")
    return te.scan(first if init is None else init, step, state)


def uneven():
    _, state, first = parts()
    inner = te.compute((5, 4), lambda t, i: state[t - 1, i] * 2.0, "inner")
    return te.scan(first, te.compute((5, 4), lambda t, i: inner[t - 1, i], "step"), state)


def no_compute():
    x, state, first = parts()
    return te.scan(first, x, state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: scanned(lambda s, x, t, i: s[t, i]), "t is not known to be a step before t"),
        (lambda: scanned(lambda s, x, t, i: s[t - i, i]), "t - i is not known to be a step before t"),
        (lambda: scanned(lambda s, x, t, i: te.cast(s[t - 1, i], "int32")), "does not fit the state"),
        (lambda: scanned(lambda s, x, t, i: s[t - 1, i], first=6), "6 first values for 5 steps"),
        (lambda: scanned(lambda s, x, t, i: s[t - 1, i], first=0), "its first step needs one at least"),
        (
            lambda: scanned(lambda s, x, t, i: s[t - 1, i], init=te.placeholder((1, 3))),
            "3 is not known to",
        ),
        (uneven, "inner depends on the states, so it is known only at the step t"),
        (no_compute, "is no compute over the steps"),
        (lambda: te.scan([], [], []), "has 0 states"),
    ],
)
def test_refuses_invalid_scans(make, message):
    with pytest.raises(UsageError) as error:
        make()
    assert message in str(error.value)
