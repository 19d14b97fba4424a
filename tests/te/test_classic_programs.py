"""Schedules of te as they are usually written, with the usual names, built for the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te, topi
from dlc_core.diag import ScheduleError, UsageError
from dlc_core.target import Target

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def product(n=64):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return a, b, c


def test_vector_add():
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=8)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    lowered = str(te.lower(s, [a, b, c], simple_mode=True))
    assert "T.parallel" in lowered
    assert lowered == str(dlc.lower(s, [a, b, c], before="flatten_buffers"))
    exe = dlc.build(s, [a, b, c], "llvm")
    for size in (1, 8, 19):
        x, y = floats(size), floats(size)
        np.testing.assert_array_equal(exe(x, y), x + y)


def test_blocked_matmul_with_a_write_cache():
    a, b, c = product()
    s = te.create_schedule(c.op)
    cached = s.cache_write(c, "global")
    mo, no, mi, ni = s[c].tile(c.op.axis[0], c.op.axis[1], 16, 16)
    s[cached].compute_at(s[c], no)
    mc, nc = s[cached].op.axis
    (kaxis,) = s[cached].op.reduce_axis
    ko, ki = s[cached].split(kaxis, factor=4)
    s[cached].reorder(ko, mc, ki, nc)
    s[cached].vectorize(nc)
    s[cached].unroll(ki)
    s[c].parallel(mo)
    s[c].vectorize(ni)
    s[c].pragma(mi, "note", 1)
    x, y = floats(64, 64), floats(64, 64)
    np.testing.assert_allclose(dlc.build(s, [a, b, c], "llvm")(x, y), x @ y, rtol=1e-4, atol=1e-4)


def test_packed_operands_are_stages():
    n, width = 64, 8
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    packed = te.compute((n // width, n, width), lambda x, y, z: b[y, x * width + z], name="packed")
    k = te.reduce_axis((0, n), "k")
    c = te.compute(
        (n, n), lambda i, j: te.sum(a[i, k] * packed[j // width, k, te.floormod(j, width)], axis=k), name="C"
    )
    s = te.create_schedule(c.op)
    x, _, z = s[packed].op.axis
    s[packed].vectorize(z)
    s[packed].parallel(x)
    _, columns = s[c].split(c.op.axis[1], factor=width)
    s[c].reorder(c.op.reduce_axis[0], columns)
    s[c].vectorize(columns)
    left, right = floats(n, n), floats(n, n)
    np.testing.assert_allclose(dlc.build(s, [a, b, c])(left, right), left @ right, rtol=1e-4, atol=1e-4)


def test_convolution_of_the_library():
    data, kernel = te.placeholder((1, 8, 14, 14), name="data"), te.placeholder((16, 8, 3, 3), name="kernel")
    conv = topi.nn.conv2d(data, kernel, 1, 1)
    relu = topi.nn.relu(conv)
    (padded, weights) = conv.op.input_tensors
    assert weights.buffer is kernel.buffer
    s = te.create_schedule(relu.op)
    s[padded].compute_inline()
    local = s.cache_write(conv, "local")
    n, oc, y, x = s[relu].op.axis
    rows, row = s[relu].split(y, factor=2)
    s[relu].parallel(s[relu].fuse(n, oc))
    s[conv].compute_at(s[relu], rows)
    s[local].compute_at(s[conv], s[conv].op.axis[2])
    s[local].reorder(*s[local].op.reduce_axis, *s[local].op.axis)
    s[local].vectorize(s[local].op.axis[3])
    s[relu].unroll(row)
    s[relu].vectorize(x)
    image, weight = floats(1, 8, 14, 14), floats(16, 8, 3, 3)
    bordered = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifted = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3), (2, 3))
    expected = np.maximum(np.einsum("ncyxhw,ochw->noyx", shifted, weight), 0)
    found = dlc.build(s, [data, kernel, relu], "llvm")(image, weight)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_parallel_partial_sums():
    n, m = te.var("n"), 256
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, ki = s[b].split(b.op.reduce_axis[0], factor=16)
    partial = s.rfactor(b, ki)
    s[partial].reorder(*s[partial].op.reduce_axis, s[partial].op.axis[0])
    s[partial].compute_at(s[b], s[b].op.axis[0])
    s[partial].vectorize(s[partial].op.axis[0])
    s[b].parallel(s[b].op.axis[0])
    x = floats(5, m)
    np.testing.assert_allclose(dlc.build(s, [a, b], "llvm")(x), x.sum(1), rtol=1e-4, atol=1e-4)


def test_a_stage_waits_for_its_readers():
    """A copy may be attached before the copy that reads it."""
    a, b, c = product(16)
    s = te.create_schedule(c)
    shared = s.cache_read(a, "shared", [c])
    local = s.cache_read(shared, "local", [c])
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=4)
    s[c].reorder(ko, ki, *c.op.axis)
    s[shared].compute_at(s[c], ko)
    s[shared].unroll(s[shared].op.axis[1])
    assert s[shared].waits
    with pytest.raises(ScheduleError, match="A_shared_local' reads it outside of the loop k_0"):
        s.program([a, b, c])
    s[local].compute_at(s[c], ki)
    assert not s[shared].waits
    x, y = floats(16, 16), floats(16, 16)
    np.testing.assert_allclose(dlc.build(s, [a, b, c])(x, y), x @ y, rtol=1e-4, atol=1e-4)


def test_a_copy_for_several_readers():
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((8, 8), lambda i, j: b[j, i] + c[i, j], name="D")
    s = te.create_schedule(d.op)
    copy = s.cache_read(b, "global", [c, d])
    s[copy].vectorize(s[copy].op.axis[1])
    assert [block.name for block in s.schedule.get_blocks()] == ["B", "B_global", "C", "D"]
    x = floats(8, 8)
    np.testing.assert_allclose(dlc.build(s, [a, d])(x), (2 * x).T + 2 * x + 1, rtol=1e-6)
    with pytest.raises(ScheduleError, match="'C' does not read it"):
        s.cache_read(a, "global", [b, c])
    with pytest.raises(UsageError, match="for no reader"):
        s.cache_read(a, "global", [])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("thredIdx.x", "did you mean 'threadIdx.x'"),
        ("threadIdx.w", "did you mean 'threadIdx"),
        ("blok.x", "did you mean 'block.x'"),
        ("lane", "create_schedule"),
        ("", "block.x"),
    ],
)
def test_unknown_thread_axes_are_refused_when_they_are_bound(name, hint):
    _, _, c = product(16)
    s = te.create_schedule(c.op)
    before = s.schedule.func
    with pytest.raises(UsageError, match="there is no thread axis") as error:
        s[c].bind(c.op.axis[0], name)
    assert hint in str(error.value)
    assert s.schedule.func is before


def test_usual_names_of_thread_axes_are_those_of_the_target():
    _, _, c = product(16)
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    outer, _ = s[c].split(i, 4)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    virtual, rest = s[c].split(j, nparts=2)
    s[c].bind(virtual, te.thread_axis((0, 2), "vthread", name="vx"))
    s[c].bind(rest, te.thread_axis((0, 8), "threadIdx.x"))
    text = s.show()
    assert "thread block.x" in text
    assert "thread vthread" in text
    assert "thread thread.x" in text


def test_a_target_gives_the_names_of_its_axes():
    _, _, c = product(16)
    s = te.create_schedule(c.op, target=Target("opencl"))
    assert s.thread_axes[:2] == ("block.x", "block.y")
    s = te.create_schedule(c.op, target=Target("llvm"))
    with pytest.raises(UsageError, match=r"no thread axis 'thread\.x'"):
        s[c].bind(c.op.axis[0], "thread.x")
