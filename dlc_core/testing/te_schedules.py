"""Classic schedules of te for targets with thread axes, in the names of TVM's tutorials."""

from __future__ import annotations

import numpy as np

from dlc_core import te
from dlc_core.driver import build
from dlc_core.schedule import create_schedule


def check_te_vector_add(target: str) -> None:
    """A sum of vectors of any length: groups of 64 threads."""
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = create_schedule(c)
    blocks, threads = s[c].split(c.op.axis[0], factor=64)
    s[c].bind(blocks, te.thread_axis("blockIdx.x"))
    s[c].bind(threads, te.thread_axis("threadIdx.x"))
    exe = build(s, [a, b, c], target)
    for size in (1, 64, 150):
        x, y = np.random.default_rng(size).random((2, size), np.float32)
        np.testing.assert_array_equal(exe(x, y), x + y)


def check_te_product(target: str) -> None:
    """A GEMM with tiles in shared memory and registers, virtual threads and cooperative copies."""
    n, tile, threads, virtual = 64, 16, 4, 2
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    shared = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    local = [s.cache_read(t, "local", [c]) for t in shared]
    sums = s.cache_write(c, "local")
    thread_x = te.thread_axis((0, threads), "threadIdx.x")
    thread_y = te.thread_axis((0, threads), "threadIdx.y")
    virtual_x = te.thread_axis((0, virtual), "vthread", name="vx")
    virtual_y = te.thread_axis((0, virtual), "vthread", name="vy")

    rows, columns = s[c].op.axis
    by, bx, yi, xi = s[c].tile(rows, columns, tile, tile)
    s[c].bind(by, te.thread_axis("blockIdx.y"))
    s[c].bind(bx, te.thread_axis("blockIdx.x"))
    vy, yi = s[c].split(yi, nparts=virtual)
    vx, xi = s[c].split(xi, nparts=virtual)
    ty, yi = s[c].split(yi, nparts=threads)
    tx, xi = s[c].split(xi, nparts=threads)
    s[c].reorder(vy, vx, ty, tx, yi, xi)
    for axis, thread in ((vy, virtual_y), (vx, virtual_x), (ty, thread_y), (tx, thread_x)):
        s[c].bind(axis, thread)
    s[sums].compute_at(s[c], tx)
    ko, ki = s[sums].split(s[sums].op.reduce_axis[0], factor=8)
    s[sums].reorder(ko, ki, *s[sums].op.axis)
    s[sums].unroll(ki)
    for copy, of in zip(shared, local, strict=True):
        s[copy].compute_at(s[sums], ko)
        s[of].compute_at(s[sums], ki)
        ty, rest = s[copy].split(s[copy].fuse(*s[copy].op.axis), nparts=threads)
        tx, _ = s[copy].split(rest, nparts=threads)
        s[copy].bind(ty, thread_y)
        s[copy].bind(tx, thread_x)
    x, y = np.random.default_rng(0).random((2, n, n), np.float32)
    np.testing.assert_allclose(build(s, [a, b, c], target)(x, y), x @ y, rtol=1e-4)


def check_te_rfactor(target: str) -> None:
    """Sums of rows: each thread sums a part, and the threads of a group add their sums."""
    n, m, threads = 12, 128, 16
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = create_schedule(b)
    _, inner = s[b].split(s[b].op.reduce_axis[0], factor=threads)
    partial = s.rfactor(b, inner)
    rows, row = s[b].split(s[b].op.axis[0], factor=4)
    s[b].bind(rows, te.thread_axis("blockIdx.x"))
    s[b].bind(row, te.thread_axis("threadIdx.y"))
    thread_x = te.thread_axis("threadIdx.x")
    s[partial].compute_at(s[b], row)
    s[partial].bind(s[partial].op.axis[0], thread_x)
    s[b].bind(s[b].op.reduce_axis[0], thread_x)
    x = np.random.default_rng(0).random((n, m), np.float32)
    np.testing.assert_allclose(build(s, [a, b], target)(x), x.sum(1), rtol=1e-5)


TE_CHECKS = (check_te_vector_add, check_te_product, check_te_rfactor)

__all__ = ["TE_CHECKS", "check_te_product", "check_te_rfactor", "check_te_vector_add"]
