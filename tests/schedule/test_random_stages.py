"""Random steps on stages: accepted steps keep results, and refused steps change nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlc_core import te
from dlc_core.diag import DlcError, UsageError
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks, unroll_loops, vectorize_loops
from dlc_core.schedule import StagedSchedule, create_schedule
from dlc_core.tir.interpreter import run
from dlc_core.tir.verify import verify_func


def chain(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r, q = te.reduce_axis(k, "r"), te.reduce_axis(n, "q")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")
    d = te.compute((m, n), lambda i, j: te.max(c[i, j], 0.0) + 1.0, "D")
    _, place = te.compute((m,), lambda i: te.argmax(d[i, q], axis=q), "top")
    e = te.compute((m, n), lambda i, j: d[i, j] + te.cast(place[i], "float32"), "E")
    return [a, b, e], [c, d, place, e]


def reference(x, y):
    d = np.maximum(x @ y, 0) + 1
    return d + d.argmax(1)[:, None]


class RandomCalls:
    def __init__(self, draw, s: StagedSchedule, tensors) -> None:
        self.draw, self.s, self.tensors = draw, s, list(tensors)
        self.axes = {t.op: [*t.op.axis, *t.op.reduce_axis] for t in tensors}
        self.done: list[str] = []

    def tensor(self):
        return self.draw(st.sampled_from(self.tensors))

    def axis(self, tensor):
        """An axis that has a loop, or sometimes one that had one."""
        known = list(self.s[tensor]._loops) if self.draw(st.integers(0, 9)) else []
        return self.draw(st.sampled_from(known or self.axes[tensor.op]))

    def made(self, tensor, axes):
        self.axes[tensor.op] += axes

    def split(self):
        t = self.tensor()
        how = self.draw(st.sampled_from([{"factor": 2}, {"factor": 3}, {"nparts": 2}]))
        self.made(t, self.s[t].split(self.axis(t), **how))

    def tile(self):
        t = self.tensor()
        self.made(t, self.s[t].tile(self.axis(t), self.axis(t), 2, 4))

    def fuse(self):
        t = self.tensor()
        self.made(t, [self.s[t].fuse(self.axis(t), self.axis(t))])

    def reorder(self):
        t = self.tensor()
        self.s[t].reorder(self.axis(t), self.axis(t), self.axis(t))

    def kind(self):
        t = self.tensor()
        getattr(self.s[t], self.draw(st.sampled_from(["parallel", "vectorize", "unroll"])))(self.axis(t))

    def compute_at(self):
        near = list(zip(self.tensors, self.tensors[1:], strict=False))
        t, parent = self.draw(st.sampled_from([*near, (self.tensor(), self.tensor())]))
        with self.s.together():
            self.s[t].compute_at(self.s[parent], self.axis(parent))
            if self.s[t].waits:
                raise UsageError("a reader is outside of that loop")

    def compute_inline(self):
        self.s[self.tensor()].compute_inline()

    def cache_read(self):
        t, reader = self.tensor(), self.tensor()
        self.new(self.s.cache_read(t, "local", [reader]))

    def cache_write(self):
        self.new(self.s.cache_write(self.tensor(), "local"))

    def rfactor(self):
        t = self.tensor()
        self.new(self.s.rfactor(t, self.axis(t), self.draw(st.integers(0, 1))))
        self.made(t, self.s[t].op.reduce_axis)

    def new(self, tensor):
        self.tensors.append(tensor)
        self.axes[tensor.op] = [*tensor.op.axis, *tensor.op.reduce_axis]

    def state(self):
        """A copy of the state of all stages."""
        known = {"_loops": dict, "_steps": list}
        return [{k: known.get(k, lambda v: v)(v) for k, v in vars(x).items()} for x in self.s.stages]

    def call(self, name):
        before, stages = self.s.schedule.func, self.state()
        try:
            getattr(self, name)()
        except DlcError:
            assert self.s.schedule.func is before
            assert self.state() == stages
        else:
            self.done.append(name)


CALLS = ["split", "tile", "fuse", "reorder", "kind", "compute_at", "compute_inline", "cache_read"]
CALLS += ["cache_write", "rfactor", "compute_at", "split", "kind"]


@st.composite
def scheduled(draw):
    sizes = [draw(st.integers(1, 6)) for _ in range(3)]
    args, tensors = chain(*sizes)
    calls = RandomCalls(draw, create_schedule(args[-1]), tensors)
    for _ in range(draw(st.integers(1, 12))):
        calls.call(draw(st.sampled_from(CALLS)))
    return calls, args, sizes


@settings(suppress_health_check=list(HealthCheck))
@given(scheduled())
def test_steps_keep_results(case):
    calls, args, (m, n, k) = case
    rng = np.random.default_rng(m * n + k)
    x, y = (rng.integers(-2, 3, shape).astype("f4") for shape in ((m, k), (k, n)))
    func = calls.s.program(args)
    verify_func(func, level=2)
    lowered = unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(func))))
    for program in (func, lowered):
        given_arrays = [x, y, np.zeros((m, n), "f4")]
        if program is lowered:
            given_arrays = [a.reshape(-1) for a in given_arrays]
        run(program, *given_arrays, check=True)
        np.testing.assert_array_equal(given_arrays[-1].reshape(m, n), reference(x, y))
