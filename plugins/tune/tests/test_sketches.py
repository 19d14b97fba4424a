"""Sketches: random points of the structures that are derived from kernels keep all results."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from dlc_tune.choices import defaults, replay
from dlc_tune.space import Candidate, candidate
from dlc_tune.spaces.checks import check_point
from dlc_tune.spaces.sketches import SPACE
from dlc_tune.task import Task

import dlc_core as dlc
from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, logical_and
from dlc_core.ir.structural import first_difference
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Trace
from dlc_core.testing.te_programs import random_te_program
from dlc_core.tir.functor import stmts, substitute_stmt
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import For, PrimFunc

X86 = "llvm -mtriple=x86_64-linux-gnu -num-threads=4"
MACHINES = (
    f"{X86} -mcpu=haswell",
    "c -mcpu=cortex-a72",
    "c -mcpu=cortex-m4",
    f"{X86} -mcpu=znver4",
    "opencl",
)
"""Targets whose descriptions do not depend on this machine."""
Kernel = tuple[PrimFunc, dict[Var, int]]


def task_for(func: PrimFunc, machine: int = 0) -> Task:
    return Task(func, dlc.Target(MACHINES[machine]))


def with_constants(func: PrimFunc, *numbers: int) -> PrimFunc:
    return replace(func, attrs=MappingProxyType({**func.attrs, "constants": numbers}))


def gemm(rng: random.Random) -> Kernel:
    """Operands may be transposed and constant, sizes symbolic; the epilogue may transpose."""
    sizes: dict[Var, int] = {}

    def dim(name: str, high: int) -> int | Var:
        value = rng.randint(1, high)
        if rng.random() < 0.2:
            var = Var(name)
            sizes[var] = value
            return var
        return value

    m, n, k = dim("m", 17), dim("n", 34), dim("k", 12)
    left, right = rng.random() < 0.4, rng.random() < 0.4
    a = te.placeholder((k, m) if left else (m, k), name="A")
    b = te.placeholder((n, k) if right else (k, n), name="B")
    bias, r = te.placeholder((n,), name="bias"), te.reduce_axis(k, "r")

    def product(i, j):
        return te.sum((a[r, i] if left else a[i, r]) * (b[j, r] if right else b[r, j]), axis=r)

    x = te.compute((m, n), product, "x")
    kind = rng.randrange(3)
    if kind == 1:
        x = te.compute((m, n), lambda i, j: te.maximum(x[i, j] + bias[j], 0.0), "y")
    elif kind == 2:
        x = te.compute((n, m), lambda j, i: te.maximum(x[i, j] + bias[j], 0.0), "y")
    func = te.create_prim_func([a, b, bias], [x])
    return (with_constants(func, 1) if rng.random() < 0.5 else func), sizes


def conv(rng: random.Random) -> Kernel:
    """NCHW or NHWC, strided, padded, depthwise, with constant weights or not, with relu or not."""
    last, depthwise = rng.random() < 0.4, rng.random() < 0.3
    filters, h, w = rng.choice((4, 8, 12, 17)), rng.randint(3, 7), rng.randint(3, 9)
    channels = filters if depthwise else rng.choice((1, 2, 3))
    size, stride = rng.choice((1, 3)), rng.choice((1, 2))
    pad, own = size // 2, 1 if depthwise else channels
    rows, columns = ((extent + 2 * pad - size) // stride + 1 for extent in (h, w))

    def order(b, c, i, j):
        return (b, i, j, c) if last else (b, c, i, j)

    def inside(i, j):
        return logical_and(i >= pad, i < h + pad, j >= pad, j < w + pad)

    x = te.placeholder(order(1, channels, h, w), name="X")
    weights = te.placeholder((size, size, own, filters) if last else (filters, own, size, size), name="W")

    def padded(*index):
        b, *rest = index
        i, j, c = rest if last else (rest[1], rest[2], rest[0])
        return if_then_else(inside(i, j), x[order(b, c, i - pad, j - pad)], 0.0)

    source = te.compute(order(1, channels, h + 2 * pad, w + 2 * pad), padded, "pad") if pad else x
    c, y, z = te.reduce_axis(own, "c"), te.reduce_axis(size, "y"), te.reduce_axis(size, "z")

    def window(*index):
        b, *rest = index
        i, j, o = rest if last else (rest[1], rest[2], rest[0])
        channel = o if depthwise else c.var
        weight = weights[y, z, c, o] if last else weights[o, c, y, z]
        value = source[order(b, channel, i * stride + y.var, j * stride + z.var)]
        return te.sum(value * weight, axis=(c, y, z))

    out = te.compute(order(1, filters, rows, columns), window, "conv")
    if rng.random() < 0.6:
        out = te.compute(out.shape, lambda *i, made=out: te.maximum(made[i] * 2.0, 1.0), "relu")
    func = te.create_prim_func([x, weights], [out])
    return (with_constants(func, 1) if rng.random() < 0.7 else func), {}


def pool(rng: random.Random) -> Kernel:
    channels, extent, last = rng.choice((3, 8, 16)), rng.randint(4, 8), rng.random() < 0.5
    out = (extent - 2) // 2 + 1
    y, z = te.reduce_axis(2, "y"), te.reduce_axis(2, "z")
    if last:
        x = te.placeholder((extent, extent, channels), name="X")
        shape = (out, out, channels)
        made = te.compute(
            shape, lambda i, j, c: te.max(x[i * 2 + y.var, j * 2 + z.var, c], axis=(y, z)), "pool"
        )
    else:
        x = te.placeholder((channels, extent, extent), name="X")
        shape = (channels, out, out)
        made = te.compute(
            shape, lambda c, i, j: te.max(x[c, i * 2 + y.var, j * 2 + z.var], axis=(y, z)), "pool"
        )
    return te.create_prim_func([x], [made]), {}


def rows(rng: random.Random) -> Kernel:
    """Two reductions of each row that depend on one another, as in softmax and normalisations."""
    sizes: dict[Var, int] = {}
    m: int | Var = rng.randint(1, 5)
    n = rng.choice((6, 7, 16, 32, 48))
    if rng.random() < 0.3:
        sizes[var := Var("m")] = int(m)
        m = var
    x, r, q = te.placeholder((m, n), name="X"), te.reduce_axis(n, "r"), te.reduce_axis(n, "q")
    top = te.compute((m,), lambda i: te.max(x[i, r], axis=r), "top")
    less = te.compute((m, n), lambda i, j: te.abs(x[i, j] - top[i]), "less")
    total = te.compute((m,), lambda i: te.sum(less[i, q], axis=q), "total")
    out = te.compute((m, n), lambda i, j: less[i, j] * total[i], "out")
    return te.create_prim_func([x], [out]), sizes


def narrow(rng: random.Random) -> Kernel:
    """Products of bytes, in a GEMM or in a convolution in NCHW, whose steps are not contiguous."""
    left, right = rng.choice((("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")))
    k, n, m = rng.choice((4, 8, 16)), rng.choice((16, 32, 48)), rng.randint(1, 9)
    sizes: dict[Var, int] = {}
    c, y = te.reduce_axis(k, "c"), te.reduce_axis(3, "y")
    if rng.random() < 0.5:
        x, w = te.placeholder((k, m + 2), left, name="X"), te.placeholder((n, k, 3), right, name="W")

        def window(o, i):
            return te.sum(x[c, i + y.var].astype("int32") * w[o, c, y].astype("int32"), axis=(c, y))

        out = te.compute((n, m), window, "conv")
    else:
        rows: int | Var = m
        if rng.random() < 0.3:
            sizes[var := Var("m")] = m
            rows = var
        x, w = te.placeholder((rows, k), left, name="X"), te.placeholder((k, n), right, name="W")
        out = te.compute(
            (rows, n), lambda i, o: te.sum(x[i, c].astype("int32") * w[c, o].astype("int32"), axis=c), "x"
        )
    if rng.random() < 0.5:
        out = te.compute(out.shape, lambda *i, made=out: te.maximum(made[i], 0).astype("float32"), "relu")
    return with_constants(te.create_prim_func([x, w], [out]), 1), sizes


def columns(rng: random.Random) -> Kernel:
    m, n = rng.randint(1, 9), rng.choice((5, 16, 40))
    x, r = te.placeholder((m, n), name="X"), te.reduce_axis(m, "r")
    return te.create_prim_func([x], [te.compute((n,), lambda j: te.sum(x[r, j], axis=r), "s")]), {}


def batched(rng: random.Random) -> Kernel:
    b, m, n, k = 2, rng.randint(2, 6), rng.choice((8, 16, 20)), rng.choice((4, 8))
    left, right = te.placeholder((b, m, k), name="A"), te.placeholder((b, n, k), name="B")
    r = te.reduce_axis(k, "r")
    x = te.compute((b, m, n), lambda h, i, j: te.sum(left[h, i, r] * right[h, j, r], axis=r), "x")
    return te.create_prim_func([left, right], [te.compute(x.shape, lambda *i: x[i] * 0.5, "y")]), {}


def program(rng: random.Random) -> Kernel:
    made = random_te_program(rng)
    return made.func, dict(made.sizes)


KERNELS: Sequence[Callable[[random.Random], Kernel]] = (
    gemm,
    conv,
    rows,
    conv,
    pool,
    narrow,
    columns,
    batched,
    program,
)


def check(seed: int) -> list[bool]:
    """Check the point of defaults and a random point. Returns which of them are legal."""
    rng = random.Random(seed)
    func, sizes = KERNELS[seed % len(KERNELS)](rng)
    task = task_for(func, rng.randrange(len(MACHINES)))
    answers = (defaults, lambda question: rng.randrange(len(question.options)))
    return [isinstance(check_point(SPACE, task, each, sizes), Candidate) for each in answers]


def test_points_of_random_kernels_keep_results() -> None:
    legal = [check(seed) for seed in range(20)]
    assert all(first for first, _ in legal)
    assert sum(second for _, second in legal) >= 18


@pytest.mark.slow
def test_points_of_many_random_kernels_keep_results() -> None:
    legal = [check(seed) for seed in range(1000, 1500)]
    assert sum(first for first, _ in legal) >= 490
    assert sum(second for _, second in legal) >= 480


def product(m: int, n: int, k: int) -> PrimFunc:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    return te.create_prim_func(
        [a, b], [te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")]
    )


def test_options_keep_the_registers() -> None:
    """No option has more accumulators, vectors and broadcasts than registers."""
    task = task_for(product(48, 64, 16))
    registers = task.machine.registers
    assert registers == 16
    seen = set()
    for seed in range(60):
        rng = random.Random(seed)
        made = candidate(SPACE, task, lambda question, rng=rng: rng.randrange(len(question.options)))
        assert isinstance(made, Candidate)
        vectors = int(made.point["C.vectors"])
        height = int(made.point.get("C.rows.i", made.point.get("C.rows.j", 1)))
        assert vectors * height + vectors + 1 <= registers
        seen.add((vectors, height))
    assert len(seen) > 8


def test_decisions_of_a_kernel_fit_another_size() -> None:
    chosen = {"C.panels": "outermost", "C.vectors": "2", "C.rows.i": "3", "C.unroll": "4"}
    first = candidate(SPACE, task_for(product(48, 64, 16)), replay(chosen))
    assert isinstance(first, Candidate)
    assert chosen.items() <= first.point.items()
    other = check_point(SPACE, task_for(product(24, 32, 8)), replay(first.point))
    assert isinstance(other, Candidate)
    assert other.point == first.point


def test_the_default_of_a_gemm_is_a_register_tile() -> None:
    """The accumulators are unrolled vectors inside of the loop over K, which is in parallel loops."""
    made = candidate(SPACE, task_for(product(128, 256, 64), 3), defaults)
    assert isinstance(made, Candidate)
    kinds = [s.kind for s in stmts(made.func.body) if isinstance(s, For)]
    assert kinds[0] == "parallel"
    assert {"unrolled", "vectorized"} <= set(kinds)
    assert made.trace.as_python().count("cache_write") == 1
    assert "decompose_reduction" in made.trace.as_python()


@pytest.mark.parametrize("constants", [(), (1,)], ids=["inputs", "constants"])
def test_traces_fit_the_kernel_in_a_model(constants: tuple[int, ...]) -> None:
    """The buffers of a kernel have other names in a model."""
    func = with_constants(product(8, 16, 8), *constants)
    params = tuple(Buffer(f"p{i}", buffer.shape, buffer.dtype) for i, buffer in enumerate(func.params))
    renamed = dict(zip(func.params, params, strict=True))
    other = replace(func, params=params, body=substitute_stmt(func.body, {}, renamed))
    for layout in ("in place", "copied", "packed"):
        answers = replay({f"C.layout.{number}": layout for number in range(3)})
        made, wanted = (candidate(SPACE, task_for(each), answers) for each in (func, other))
        assert isinstance(made, Candidate)
        assert isinstance(wanted, Candidate)
        assert made.point == wanted.point
        again = task_for(other).schedule()
        Trace.from_json(made.trace.to_json()).replay(again)
        assert first_difference(again.func, wanted.func) is None


def test_constants_are_packed_into_panels_of_the_tile() -> None:
    """A convolution in NCHW has vectors along its filters: the weights are packed at compile time."""
    rng = random.Random(0)
    while True:
        func, _ = conv(rng)
        if func.attrs.get("constants") and func.params[1].static_shape() == (8, 3, 3, 3):
            break
    made = check_point(SPACE, task_for(func), replay({"conv.vector": "o"}))
    assert isinstance(made, Candidate)
    (layout,) = made.func.attrs["repack"].values()
    assert len(layout.outputs) == 5


def test_narrow_products_use_the_intrinsics_of_the_target() -> None:
    x, w = te.placeholder((8, 16), "uint8", name="X"), te.placeholder((16, 32), "int8", name="W")
    c = te.reduce_axis(16, "c")
    out = te.compute(
        (8, 32), lambda i, o: te.sum(x[i, c].astype("int32") * w[c, o].astype("int32"), axis=c), "x"
    )
    func = with_constants(te.create_prim_func([x, w], [out]), 1)
    made = check_point(SPACE, task_for(func, 3), defaults)
    assert isinstance(made, Candidate)
    assert made.point["x.rule"] == "dots"
    assert "tensorize" in made.trace.as_python()
    other = check_point(SPACE, task_for(func, 3), replay({"x.rule": "tile"}))
    assert isinstance(other, Candidate)
    assert "tensorize" not in other.trace.as_python()


def test_points_run_on_an_opencl_device() -> None:
    platforms = pytest.importorskip("dlc_backend_opencl.platforms", reason="the OpenCL backend is missing")
    if platforms.problem():
        pytest.skip(platforms.problem())
    exe = dlc.build(product(32, 48, 16), "opencl")
    arrays = [np.ones((32, 16), np.float32), np.full((16, 48), 0.5, np.float32)]
    task = Task(product(32, 48, 16), dlc.Target("opencl"))
    made = candidate(SPACE, task, defaults)
    assert isinstance(made, Candidate)
    with dlc.PassContext(tuner=lambda func, target: made.trace):
        tuned = dlc.build(product(32, 48, 16), "opencl")
    assert tuned.explain().kernels[0].rule == "tuned"
    np.testing.assert_array_equal(tuned(*arrays), exe(*arrays))


def test_sketches_are_a_declared_space() -> None:
    space = registry().search_spaces["sketches"]
    assert space.fits(Task(product(8, 8, 8), dlc.Target("llvm"))) == ""
