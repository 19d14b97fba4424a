"""Random primitives on random programs: calls that a schedule accepts keep all bits of results.

Values are small integers held in floats, so that sums are exact in every order.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlc_core import te
from dlc_core.ir.expr import Var, const, eq, logical_and, maximum, select
from dlc_core.testing.random_schedules import RandomCalls, check_schedule_trace, random_schedule
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import PrimFunc
from tests.schedule.products import TINY, TINY_EXTERN


def elementwise(m, n):
    """A chain with a broadcast, a transpose and two users of one tensor."""
    a, b = te.placeholder((m, n), name="A"), te.placeholder((n,), name="B")
    with te.collect() as made:
        x = te.compute((m, n), lambda i, j: a[i, j] + b[j], "x")
        y = te.compute((n, m), lambda j, i: x[i, j] * 2.0, "y")
        z = te.compute((m, n), lambda i, j: maximum(y[j, i], x[i, j]) - b[j], "z")
    return te.create_prim_func([a, b], [z], producers=made)


def matmul(m, n, k):
    a, b, c = (
        te.placeholder((m, k), name="A"),
        te.placeholder((k, n), name="B"),
        te.placeholder((n,), name="C"),
    )
    r = te.reduce_axis(k, "r")
    with te.collect() as made:
        x = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "matmul")
        y = te.compute((m, n), lambda i, j: x[i, j] + c[j], "bias")
        z = te.compute((m, n), lambda i, j: maximum(y[i, j], 0.0), "relu")
    return te.create_prim_func([a, b, c], [z], producers=made)


def conv(h, w, channels, out, stride):
    x, f = te.placeholder((h, w, channels), name="X"), te.placeholder((3, 3, channels, out), name="F")
    oh, ow = (h - 1) // stride + 1, (w - 1) // stride + 1
    kh, kw, c = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw"), te.reduce_axis(channels, "c")
    with te.collect() as made:
        pad = te.compute(
            (h + 2, w + 2, channels),
            lambda i, j, q: if_then_else(
                logical_and(i >= 1, i < h + 1, j >= 1, j < w + 1), x[i - 1, j - 1, q], 0.0
            ),
            "pad",
        )
        y = te.compute(
            (oh, ow, out),
            lambda i, j, o: te.sum(
                pad[i * stride + kh.var, j * stride + kw.var, c.var] * f[kh.var, kw.var, c.var, o],
                axis=(kh, kw, c),
            ),
            "conv",
        )
        z = te.compute((oh, ow, out), lambda i, j, o: maximum(y[i, j, o], 0.0), "relu")
    return te.create_prim_func([x, f], [z], producers=made)


def rows(m, n):
    """Two reductions of each row, which every element of the row uses, as in a softmax."""
    a = te.placeholder((m, n), name="A")
    r, s = te.reduce_axis(n, "r"), te.reduce_axis(n, "s")
    with te.collect() as made:
        top = te.compute((m,), lambda i: te.max(a[i, r], axis=r), "top")
        d = te.compute((m, n), lambda i, j: a[i, j] - top[i], "diff")
        total = te.compute((m,), lambda i: te.sum(d[i, s], axis=s), "total")
        z = te.compute((m, n), lambda i, j: d[i, j] * 2.0 + total[i], "result")
    return te.create_prim_func([a], [z], producers=made)


def windows(m):
    """A stencil of a stencil, with a choice at the ends."""
    a = te.placeholder((m,), name="A")
    with te.collect() as made:
        x = te.compute((m,), lambda i: a[i] + a[maximum(i - 1, 0)], "x")
        y = te.compute((m - 2,), lambda i: x[i] + x[i + 1] * 2.0 + x[i + 2], "y")
        z = te.compute((m - 2,), lambda i: select(i > 0, y[maximum(i - 1, 0)], 3.0) + x[i], "z")
    return te.create_prim_func([a], [z], producers=made)


def rows_by_number(m, n):
    """A gather of rows of a computed tensor, and the index of the greatest element of each row."""
    a, rows_wanted = te.placeholder((m, n), name="A"), te.placeholder((4,), "int64", name="rows")
    r = te.reduce_axis(n, "r")

    def better(x, y):
        first = (x[0] > y[0]) | (eq(x[0], y[0]) & (x[1] < y[1]))
        return select(first, x[0], y[0]), select(first, x[1], y[1])

    greatest = te.Combiner("greatest", better, lambda _: (const(-1e9, "float32"), const(1 << 30)))
    with te.collect() as made:
        t = te.compute((m, n), lambda i, j: a[i, j] * 2.0, "t")
        g = te.compute((4, n), lambda i, j: t[rows_wanted[i], j] + 1.0, "picked")
        top = te.compute((4,), lambda i: te.reduce(greatest, (g[i, r.var], r.var), r), "top")
        z = te.compute((4,), lambda i: top[0][i] + top[1][i].astype("float32"), "z")
    return te.create_prim_func([a, rows_wanted], [z], producers=made)


def scans(m, n, wide):
    """Steps that depend on one another: on a column of the last two steps, or on all columns of the last."""
    a, state = te.placeholder((m, n), name="A"), te.placeholder((m, n), name="state")
    r = te.reduce_axis(n, "r")
    first = te.compute((2, n), lambda t, i: a[t, i] * 2.0, "first")
    if wide:
        top = te.compute((m, n), lambda t, i: te.max(state[t - 1, r] + a[t, r], axis=r), "top")
        step = te.compute((m, n), lambda t, i: select(i > 1, top[t, i], state[t - 2, i]) + a[t, i], "step")
    else:
        step = te.compute((m, n), lambda t, i: state[t - 1, i] + state[t - 2, i] * a[t, i], "step")
    steps = te.scan(first, step, state)
    return te.create_prim_func([a, te.compute((m, n), lambda t, i: steps[t, i] + 1.0, "z")])


def programs(draw) -> tuple[PrimFunc, dict[Var, int]]:
    """A program and the values of its symbolic dims."""
    sizes = {}

    def dim(name, low, high):
        value = draw(st.integers(low, high))
        if draw(st.integers(0, 3)) == 0:
            var = Var(name)
            sizes[var] = value
            return var
        return value

    kind = draw(st.sampled_from(["elementwise", "matmul", "conv", "rows", "windows", "gather", "scans"]))
    if kind == "elementwise":
        return elementwise(dim("m", 1, 9), dim("n", 1, 9)), sizes
    if kind == "matmul":
        return matmul(dim("m", 1, 9), dim("n", 1, 12), dim("k", 1, 7)), sizes
    if kind == "rows":
        return rows(dim("m", 1, 6), dim("n", 1, 9)), sizes
    if kind == "windows":
        return windows(dim("m", 4, 14)), sizes
    if kind == "scans":
        return scans(dim("m", 2, 6), dim("n", 1, 6), draw(st.booleans())), sizes
    if kind == "gather":
        return rows_by_number(dim("m", 2, 6), dim("n", 1, 6)), sizes
    integers = st.integers(2, 7)
    return conv(
        draw(integers), draw(integers), draw(st.integers(1, 3)), draw(integers), draw(st.integers(1, 2))
    ), {}


class Case:
    """A program, the calls of primitives, and the sizes and seed of a run."""

    def __init__(self, func: PrimFunc, calls: RandomCalls, sizes: dict[Var, int], seed: int) -> None:
        self.func, self.calls, self.sizes, self.seed = func, calls, sizes, seed

    def __repr__(self) -> str:
        sizes = {var.name: value for var, value in self.sizes.items()}
        return f"{self.calls.sch.trace}\n{self.calls.sch.show()}\nsizes {sizes} seed {self.seed}"


@st.composite
def scheduled(draw):
    func, sizes = programs(draw)
    calls = random_schedule(func, draw(st.randoms(use_true_random=False)), intrins=(TINY, TINY_EXTERN))
    return Case(func, calls, sizes, draw(st.integers(0, 1000)))


def check_same(case: Case) -> None:
    check_schedule_trace(case.func, case.sizes, case.calls.sch, case.seed, texts=case.seed % 8 == 0)


@settings(suppress_health_check=list(HealthCheck))
@given(scheduled())
def test_schedules_keep_results(case):
    check_same(case)


@pytest.mark.slow
@settings(max_examples=1500, suppress_health_check=list(HealthCheck))
@given(scheduled())
def test_many_schedules_keep_results(case):
    check_same(case)
