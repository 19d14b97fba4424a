"""Kernels with thread axes, end to end: text, lists of launches, simulation on the processor."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.backend import read_launches
from dlc_core.backend.compiler import compiler_problem
from dlc_core.backend.kernels import emit_kernels
from dlc_core.backend.launches import LAUNCHES
from dlc_core.diag import ArtifactError, CodegenError, DlcError, RuntimeFailure
from dlc_core.driver import find_target
from dlc_core.ir.expr import Var
from dlc_core.passes import PassContext
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Schedule
from dlc_core.script import parse
from dlc_core.target.source import Kernels
from dlc_core.testing.batch import compile_all
from dlc_core.testing.networks import mlp
from dlc_core.tir.interpreter import run

pytestmark = [
    pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem())),
    pytest.mark.usefixtures("card"),
]
BOTH = pytest.mark.parametrize("target", ["card", "card -check=true"])


def matmul(size=32):
    """Two stages of shared memory, virtual threads, barriers."""
    A, B = (te.placeholder((size, size), name=name) for name in "AB")
    r = te.reduce_axis(size, "k")
    C = te.compute((size, size), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), "C")
    sch = Schedule(te.create_prim_func([A, B], [C], "matmul"))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    by, v, ty, ii = sch.split(i, [None, 2, 2, 2])
    bx, tx, jj = sch.split(j, [None, 4, 2])
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(by, bx, v, ty, tx, ko, ki, ii, jj)
    for loop, axis in ((v, "vthread"), (ty, "thread.y"), (tx, "thread.x"), (by, "block.y"), (bx, "block.x")):
        sch.bind(loop, axis)
    out = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(out, tx)
    copies = [sch.cache_read(block, name, "shared") for name in "AB"]
    for one in copies:
        sch.compute_at(one, ko)
    sch.compact_buffers()
    for one in copies:
        _, y, x = sch.split(sch.fuse(*sch.get_loops(one)[-2:]), [None, 2, 4])
        sch.bind(y, "thread.y")
        sch.bind(x, "thread.x")
        sch.double_buffer(one)
    return sch


def whole_numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@BOTH
def test_gemm_through_shared_memory(target):
    exe = dlc.build(matmul(), target)
    x, y = whole_numbers(32, 32), whole_numbers(32, 32, seed=1)
    np.testing.assert_array_equal(exe(x, y), x @ y)
    kernels, _ = read_launches(exe.artifact.metadata[LAUNCHES])
    assert [(k.has_barriers, k.shared_bytes) for k in kernels] == [(True, 512)]


@BOTH
def test_cross_thread_reduction(target):
    rows, r = te.placeholder((4, 40), name="X"), te.reduce_axis(40, "r")
    sch = Schedule(te.create_prim_func([rows], [te.compute((4,), lambda i: te.sum(rows[i, r], axis=r), "t")]))
    i, k = sch.get_loops(sch.get_block("t"))
    outer, inner = sch.split(k, [None, 8])
    sch.reorder(inner, outer)
    sch.bind(i, "block.x")
    sch.bind(inner, "thread.x")
    x = whole_numbers(4, 40)
    np.testing.assert_array_equal(dlc.build(sch, target)(x), x.sum(1))


SHUFFLES = """
@T.prim_func
def main(A: T.Buffer((4, 32), {0!r}), B: T.Buffer((4, 32), {0!r}), C: T.Buffer((4, 32), {0!r}),
         D: T.Buffer((4, 32), {0!r})):
    for g in T.thread_binding(4, thread="block.x"):
        for t in T.thread_binding(32, thread="thread.x"):
            B[g, t] = T.subgroup_shuffle_down(A[g, t], 3, 8)
            C[g, t] = T.subgroup_shuffle_xor(A[g, t], 5, 16)
            D[g, t] = T.subgroup_shuffle(A[g, t], 2, 32)
"""


@BOTH
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_subgroups_exchange_values(target, dtype):
    func = parse(SHUFFLES.format(dtype))
    x = whole_numbers(4, 32).astype(dtype)
    expected = [np.zeros_like(x) for _ in range(3)]
    run(func, x, *expected)
    for have, want in zip(dlc.build(func, target)(x), expected, strict=True):
        np.testing.assert_array_equal(have, want)


VECTORS = """
@T.prim_func
def main(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32"), C: T.Buffer((8, 32), "float32")):
    for g in T.thread_binding(8, thread="block.x"):
        for t in T.thread_binding(8, thread="thread.x"):
            for v in T.vectorized(4):
                C[g, t * 4 + v] = T.if_then_else(v + t > 3, A[g, t * 4 + v] * B[g, 31 - t * 4 - v],
                                                 A[g, t * 4 + v])
"""


@BOTH
def test_vector_loads_and_stores(target):
    exe = dlc.build(parse(VECTORS), target)
    x, y = whole_numbers(8, 32), whole_numbers(8, 32, seed=1)
    column = np.arange(32)
    expected = np.where(column % 4 + column // 4 > 3, x * y[:, ::-1], x)
    np.testing.assert_array_equal(exe(x, y), expected)
    assert "make_float_4" in exe.source("c")


@BOTH
def test_kernels_without_threads_run_on_one_thread(target):
    exe = dlc.compile(mlp(), target)
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    np.testing.assert_allclose(exe(x), dlc.compile(mlp(), "reference")(x), 1e-5, 1e-6)


def symbolic():
    n = Var("n")
    A = te.placeholder((n,), name="A")
    sch = Schedule(te.create_prim_func([A], [te.compute((n,), lambda i: A[i] * 2.0, "B")]))
    (i,) = sch.get_loops(sch.get_block("B"))
    g, t = sch.split(i, [None, 64])
    sch.bind(g, "block.x")
    sch.bind(t, "thread.x")
    return sch


@BOTH
def test_sizes_of_launches_follow_the_call(target):
    exe = dlc.build(symbolic(), target)
    for size in (1, 64, 1000, 0, 65, 1000):
        x = whole_numbers(size)
        np.testing.assert_array_equal(exe(x), 2 * x)
    _, lists = read_launches(exe.artifact.metadata[LAUNCHES])
    (launch,) = lists["main"].launches((1000,))
    assert (launch.grid, launch.group, launch.buffers[0].size) == ((16, 1, 1), (64, 1, 1), 4000)
    assert lists["main"].launches((1000,))[0] is launch
    assert lists["main"].launches((0,)) == ()


def faulty(body, shape="(2, 8)"):
    text = f"""
@T.prim_func
def main(A: T.Buffer({shape}, "float32"), B: T.Buffer({shape}, "float32")):
    for g in T.thread_binding(2, thread="block.x"):
        S = T.alloc_buffer((8,), "float32", scope="shared")
        for t in T.thread_binding(8, thread="thread.x"):
            {body}
"""
    with PassContext(disabled=("thread_sync", "prove_bounds")):
        return dlc.build(parse(text), "card -check=true")


RACE = (
    "race: byte 16 of shared_S is written by thread (4, 0, 0) of group (0, 0, 0) and read by thread (3, 0, 0)"
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("S[t] = A[g, t]; B[g, t] = S[7 - t]", RACE + ", with no barrier between"),
        ("S[t // 2] = A[g, t]; B[g, t] = S[t // 2]", "race: byte 0 of shared_S is written"),
        ("S[t] = A[g, t]; B[0, t] = S[t]", "of group (1, 0, 0) and written by thread (0, 0, 0), of another"),
        ("S[t] = A[g, t + 7]; B[g, t] = S[t]", "reads 4 bytes outside of all buffers: byte 64 of A, which"),
        ("S[t] = A[g, t]; B[g, t - 1] = S[t]", "writes 4 bytes outside of all buffers: byte -4 of B"),
        ("S[t + 8] = A[g, t]; B[g, t] = S[t + 8]", "takes element 8 of an array 'float [8]'"),
    ],
)  # fmt: skip
def test_checked_simulations_report_errors(body, said):
    lines = body.replace("; ", "\n            ")
    exe = faulty(lines)
    with pytest.raises(RuntimeFailure) as caught:
        exe(np.ones((2, 8), np.float32))
    text = str(caught.value)
    assert "kernel kernel_kernel failed" in text
    assert said in text


def test_a_barrier_that_some_threads_miss_is_an_error():
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for t in T.thread_binding(8, thread="thread.x"):
        if t < 4:
            T.evaluate(T.barrier())
        B[t] = A[t]
"""
    with PassContext(disabled=("thread_sync",)):
        exe = dlc.build(parse(text), "card")
    with pytest.raises(RuntimeFailure, match=r"thread \(0, 0, 0\) waits .* thread \(4, 0, 0\) .* has ended"):
        exe(np.ones(8, np.float32))
    np.testing.assert_array_equal(dlc.build(symbolic(), "card")(whole_numbers(8)), 2 * whole_numbers(8))


def test_too_large_groups_are_refused():
    text = SHUFFLES.format("float32").replace("32)", "512)").replace("(32,", "(512,")
    with pytest.raises(DlcError, match="256 at most are possible"):
        dlc.build(parse(text), "card")


def test_unsupported_host_programs_are_errors():
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
    for i in range(A[0]):
        for t in T.thread_binding(8, thread="thread.x"):
            B[t] = A[t]
"""
    with pytest.raises(DlcError, match="only known on the device"):
        dlc.build(parse(text), "card")


def test_artefacts_are_validated_when_read(tmp_path):
    exe = dlc.build(symbolic(), "card")
    exe.save(tmp_path / "twice.dlc")
    x = whole_numbers(100)
    np.testing.assert_array_equal(dlc.open(tmp_path / "twice.dlc")(x), 2 * x)
    good = json.loads(json.dumps(exe.artifact.metadata[LAUNCHES]))
    read_launches(good)

    def broken(change):
        data = copy.deepcopy(good)
        change(data)
        return data

    step = lambda data: data["entries"]["main"]["steps"][0]  # noqa: E731
    for change in (
        lambda d: d.pop("kernels"),
        lambda d: step(d).update(kernel=7),
        lambda d: step(d)["grid"].pop(),
        lambda d: step(d)["buffers"].pop(),
        lambda d: step(d)["buffers"][0].__setitem__(0, 99),
        lambda d: step(d)["buffers"][0].__setitem__(1, "0"),
        lambda d: step(d).update(scalars=[]),
        lambda d: d["kernels"][0].update(symbol="f(); system"),
        lambda d: d["kernels"][0].update(order="bbb"),
        lambda d: d["exprs"].append(["call", 0]),
        lambda d: d["entries"]["main"].update(scalars=[99]),
    ):
        with pytest.raises(ArtifactError, match="malformed"):
            read_launches(broken(change))
    with pytest.raises(ArtifactError, match="malformed"):
        read_launches(None)


def test_launches_are_checked_against_buffer_sizes():
    exe = dlc.build(symbolic(), "card")
    data = json.loads(json.dumps(exe.artifact.metadata[LAUNCHES]))
    data["entries"]["main"]["steps"][0]["buffers"][0][1] = 64
    _, lists = read_launches(data)
    entry = exe.device.load(exe.artifact).entry("main")
    object.__setattr__(entry, "list", lists["main"])
    blocks = [np.zeros(400, np.uint8)] * 4
    with pytest.raises(RuntimeFailure, match="kernel_kernel would access memory outside of its buffers"):
        exe.device.run(entry, blocks, (100,), 1)


def test_loops_of_hosts_are_unrolled_for_each_call():
    text = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i in range(4):
        for t in T.thread_binding(8, thread="thread.x"):
            B[i, t] = A[i, t] + 1.0
"""
    exe = dlc.build(parse(text), "card")
    x = whole_numbers(4, 8)
    np.testing.assert_array_equal(exe(x), x + 1)
    _, lists = read_launches(exe.artifact.metadata[LAUNCHES])
    assert len(lists["main"].launches(())) == 4


def test_a_device_may_stand_for_several(monkeypatch, tmp_path):
    device = registry().devices["card"]
    chosen = []

    def at(target):
        chosen.append(target["check"])
        return device

    monkeypatch.setattr(device, "at", at, raising=False)
    exe = dlc.build(symbolic(), "card -check=true")
    compiled = len(chosen)
    exe.save(tmp_path / "twice.dlc")
    assert dlc.open(tmp_path / "twice.dlc").device is device
    assert 0 < compiled < len(chosen)
    assert all(chosen)


def test_a_language_without_an_axis_is_an_error(card):
    module = dlc.lower(parse(SHUFFLES.format("float32")))
    table = replace(card.dialect(module, dlc.Target("card")), kernels=Kernels("void", {}))
    with pytest.raises(CodegenError, match=r"has no axis block\.x"):
        emit_kernels(module, table)


def test_profiles_have_the_time_of_each_kernel():
    exe = dlc.compile(mlp(), "card")
    report = exe.profile([np.ones((1, 64), np.float32)], runs=3)
    assert sorted(row.kernel for row in report) == sorted(site["kernel"] for site in exe.about["sites"])
    assert all(row.calls == 1 and row.milliseconds > 0 for row in report)


def test_out_of_memory_names_the_largest_buffers():
    device = dlc.compile(mlp(), "card").device
    most = device.memory_bytes
    taken = device.alloc(1 << 20)
    try:
        with pytest.raises(RuntimeFailure, match="the largest buffers in use: 1 MiB"):
            device.alloc(most)
    finally:
        device.free(taken)


@BOTH
def test_atomic_add_of_the_language(target):
    text = """
@T.prim_func
def main(A: T.Buffer((4, 32), "int32"), B: T.Buffer((5,), "int32")):
    for t in T.thread_binding(5, thread="thread.x"):
        B[t] = 0
    for g in T.thread_binding(4, thread="block.x"):
        for t in T.thread_binding(32, thread="thread.x"):
            T.evaluate(T.call_extern("tally", T.address_of(B[A[g, t]]), 1, dtype="int32"))
"""
    x = np.random.default_rng(0).integers(0, 5, (4, 32)).astype(np.int32)
    found = dlc.build(parse(text), target)(x)
    np.testing.assert_array_equal(found, np.bincount(x.ravel(), minlength=5))


def test_models_are_compiled_in_batches(monkeypatch):
    """The launches of a batch have different names, like their kernels."""
    codegen, emitted = registry().codegens["card"], []
    emit = type(codegen).emit
    monkeypatch.setattr(type(codegen), "emit", lambda *args: emitted.append(args) or emit(*args))
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    made = compile_all([mlp(), mlp(), mlp()], find_target("card"))
    assert len(emitted) == 1
    expected = dlc.compile(mlp(), "reference")(x)
    for exe in made:
        np.testing.assert_allclose(exe(x), expected, 1e-5, 1e-6)
