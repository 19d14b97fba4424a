"""Schedules with thread axes through all passes: as scheduled, as launches, and as kernels with host code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import PassError, RuntimeFailure, ScheduleError
from dlc_core.ir.expr import Call, Var, const_value, maximum
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import structural_equal
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.tir import PASSES
from dlc_core.passes.tir.software_pipeline import InjectSoftwarePipeline
from dlc_core.passes.tir.split_host_device import SplitHostDevice
from dlc_core.schedule import LoopRV, Schedule
from dlc_core.script import parse, script
from dlc_core.target import Description
from dlc_core.testing.schedules import make_arrays, target_of
from dlc_core.tir.copies import copies_barrier
from dlc_core.tir.functor import stmts, transform_stmt
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import Eval, PrimFunc, Stmt
from dlc_core.tir.verify import verify_func, verify_module

KNOWN = {cls.name: cls for cls in PASSES}
LAUNCHES = (
    "lower_cross_thread_reduction | inject_software_pipeline | unify_thread_binding | lower_blocks"
    " | inject_virtual_thread | thread_sync"
)
LOOPS = "flatten_buffers | vectorize_loops | unroll_loops | hoist_workspace | split_host_device"
MACHINE = Description(
    thread_axes={"block.x": 1 << 31, "block.y": 65535, "thread.x": 1024, "thread.y": 1024},
    memory_scopes=("global", "shared", "local"),
    group_threads=1024,
    shared_bytes=1 << 14,
)
CONTEXT = PassContext(target=target_of(MACHINE))


def lower(module: IRModule, text: str) -> IRModule:
    """Run all passes. After each the module verifies and round-trips as text."""
    for step in Pipeline.parse(text, KNOWN).passes:
        module = step.run(module, CONTEXT)
        verify_module(module, level=2)
    again = parse(script(module))
    assert structural_equal(again, module)
    return module


def check(func: PrimFunc, sizes: Sequence[int] = ()) -> PrimFunc:
    """Check that a scheduled program computes the same directly, as a launch, and as host and kernels."""
    verify_func(func, level=2)
    arrays = make_arrays(func, dict(zip(func.scalars, sizes, strict=True)), 5)

    def result(program: PrimFunc, module: IRModule | None = None, *, races: bool) -> np.ndarray:
        given = [a.copy() for a in arrays]
        given[-1].fill(99)
        flat = [a.reshape(-1) if b.ndim == 1 else a for a, b in zip(given, program.buffers, strict=True)]
        run(program, *flat, *sizes, module=module, check=races)
        return given[-1]

    expected = result(func, races=False)
    launched = lower(IRModule({"main": func}), LAUNCHES)
    np.testing.assert_array_equal(result(launched["main"], races=True), expected)
    split = lower(launched, LOOPS)
    assert len(split.functions) > 1
    assert all(not f.attrs.get("launch") for name, f in split.functions.items() if name == "main")
    np.testing.assert_array_equal(result(split["main"], split, races=True), expected)
    return launched["main"]


def barriers(func: PrimFunc) -> int:
    return sum(isinstance(s, Eval) for s in stmts(func.body))


def matmul(m: int, n: int, k: int) -> PrimFunc:
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")
    return te.create_prim_func([a, b], [c], "matmul")


def staged(
    sizes: tuple[int, int, int],
    tile: tuple[int, int, int],
    own: int,
    *,
    virtual: int = 1,
    group: int = 0,
    decomposed: bool = True,
) -> tuple[Schedule, LoopRV]:
    """A GEMM whose tiles are copied to shared memory. Each thread accumulates `own` by `own` elements.

    Also returns the loop over the tiles of the reduction.
    """
    sch = Schedule(matmul(*sizes))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    high, wide = tile[0] // own // virtual, tile[1] // own
    by, v, ty, ii = sch.split(i, [None, virtual, high, own])
    bx, tx, jj = sch.split(j, [None, wide, own])
    ko, ki = sch.split(k, [None, tile[2]])
    sch.reorder(by, bx, ko, v, ty, tx, ki, ii, jj)
    out = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(out, bx)
    zero = sch.decompose_reduction(block, ko) if decomposed else None
    copies = [sch.cache_read(block, name, "shared") for name in "AB"]
    for copy in copies:
        sch.compute_at(copy, ko)
    sch.compact_buffers()
    for copy in copies:
        _, y, x = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, high, wide])
        sch.bind(y, "thread.y")
        sch.bind(x, "thread.x")
    a, b = sch.get_loops(out)[-2:]
    (v2, ty2, i2), (tx2, j2) = sch.split(a, [virtual, high, own]), sch.split(b, [wide, own])
    sch.reorder(v2, ty2, tx2, i2, j2)
    nests = [(v, ty, tx), (v2, ty2, tx2)]
    if zero is not None:
        nests.append(tuple(sch.get_loops(zero)[-5:-2]))
    for one, y, x in nests:
        sch.bind(y, "thread.y")
        sch.bind(x, "thread.x")
        if virtual > 1:
            sch.bind(one, "vthread")
    if group:
        sch.swizzle(by, bx, group, thread="block.x")
    else:
        sch.bind(by, "block.y")
        sch.bind(bx, "block.x")
    return sch, ko


SMALL, TILE = (12, 16, 16), (4, 8, 4)


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_product_through_shared_memory(decomposed: bool) -> None:
    sch, _ = staged(SMALL, TILE, 2, decomposed=decomposed)
    launched = check(sch.func)
    # One before the tiles are overwritten, one before they are read.
    assert barriers(launched) == 2
    again = Schedule(matmul(*SMALL))
    sch.trace.replay(again)
    assert again.show() == sch.show()


@pytest.mark.parametrize(
    ("stages", "order"),
    [((0, 0, 1), None), ((0, 0, 2), None), ((0, 0, 1), (1, 2, 0)), ((0, 1, 2), None), ((0, 0, 5), None)],
)
def test_a_pipelined_product(stages: tuple[int, ...], order: tuple[int, ...] | None) -> None:
    sch, ko = staged(SMALL, TILE, 2)
    sch.software_pipeline(ko, stages, order)
    launched = check(sch.func)
    text = script(launched)
    # There are four steps, so at most four copies are used.
    assert f"A_shared = T.alloc_buffer(({min(stages[2] + 1, 4)}, 4, 4)" in text
    assert f"B_shared = T.alloc_buffer(({min(stages[2] - stages[1] + 1, 4)}, 4, 8)" in text


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("steps", [1, 2, 4, 6])
@pytest.mark.parametrize("stages", [(0, 0, 2), (0, 0, 3), (0, 1, 3), (1, 0, 4)])
def test_deeper_pipelines_have_several_copies_in_flight(
    stages: tuple[int, ...], steps: int, spare: int
) -> None:
    """Results do not depend on when copies complete. Barriers that wait for too few groups are detected."""
    sch, ko = staged((4, 8, 4 * steps), TILE, 2)
    sch.software_pipeline(ko, stages, None, spare)
    launched = check(sch.func)
    calls = {s: s.value for s in stmts(launched.body) if isinstance(s, Eval) and isinstance(s.value, Call)}
    waits = {s: tuple(map(const_value, e.args)) for s, e in calls.items() if e.name == "copies_barrier"}
    ahead = stages[2] - max(stages[:2])
    assert set(waits.values()) == {(left, spare) for left in range(ahead)}

    def one_more(s: Stmt) -> Stmt | None:
        return Eval(copies_barrier(int(waits[s][0]) + 1, spare)) if s in waits else None

    later = transform_stmt(launched.body, stmt_fn=one_more)
    given = make_arrays(launched, {}, 5)
    with pytest.raises(RuntimeFailure, match="while a copy to it may be under way"):
        run(replace(launched, body=later), *given, check=True)


def test_spare_copies_need_copies_in_flight() -> None:
    sch, ko = staged(SMALL, TILE, 2)
    with pytest.raises(ScheduleError, match="no copies run ahead by two stages"):
        sch.software_pipeline(ko, (0, 0, 1), None, 1)


def test_a_double_buffered_product_waits_once_in_each_step() -> None:
    sch, ko = staged(SMALL, TILE, 2)
    for name in ("A_shared", "B_shared"):
        assert sch.double_buffer(sch.get_block(name)) == ko
    assert sch.get_for(ko).annotations["software_pipeline_stage"] == (0, 0, 1)
    launched = check(sch.func)
    assert barriers(launched) == 2
    assert "for k_0 in T.serial(1, extent=3):\n" in script(launched)


def test_virtual_threads_and_swizzled_groups() -> None:
    sch, _ = staged((12, 8, 8), (4, 4, 2), 1, virtual=2, group=2)
    for name in ("A_shared", "B_shared"):
        sch.double_buffer(sch.get_block(name))
    launched = check(sch.func)
    text = script(launched)
    assert "vthread" not in text
    assert "T.unroll(2)" in text


def threads_outside(
    sizes: tuple[int, int, int],
    tile: tuple[int, int, int],
    own: int,
    *,
    virtual: int = 1,
    stages: tuple[int, int, int] | None = None,
    together: bool = True,
    late: bool = False,
) -> Schedule:
    """The same with all axes around the reduction. Shared buffers have the elements for all threads. With
    `together`, all threads fill them. With `late`, axes are bound after each thread computes its own.
    """
    sch = Schedule(matmul(*sizes))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    high, wide = tile[0] // own // virtual, tile[1] // own
    by, v, ty, ii = sch.split(i, [None, virtual, high, own])
    bx, tx, jj = sch.split(j, [None, wide, own])
    ko, ki = sch.split(k, [None, tile[2]])
    sch.reorder(by, bx, v, ty, tx, ko, ki, ii, jj)

    def bind() -> None:
        axes = {"block.y": by, "block.x": bx, "thread.y": ty, "thread.x": tx}
        for axis, loop in (axes | {"vthread": v} if virtual > 1 else axes).items():
            sch.bind(loop, axis)

    if not late:
        bind()
    out = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(out, tx)
    sch.decompose_reduction(block, ko)
    copies = [sch.cache_read(block, name, "shared") for name in "AB"]
    for copy in copies:
        sch.compute_at(copy, ko)
    sch.compact_buffers()
    if late:
        bind()
    for copy in copies if together else ():
        _, y, x = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, high, wide])
        sch.bind(y, "thread.y")
        sch.bind(x, "thread.x")
    if stages is not None:
        sch.software_pipeline(ko, stages)
    return sch


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("stages", [None, (0, 0, 1), (0, 1, 2)])
def test_a_product_with_threads_around_its_reduction(
    stages: tuple[int, int, int] | None, together: bool
) -> None:
    sch = threads_outside(SMALL, TILE, 2, stages=stages, together=together)
    launched = check(sch.func)
    assert barriers(launched) <= 2 + 2 * (stages == (0, 1, 2))
    text = script(launched)
    assert text.index("A_shared = T.alloc_buffer(") < text.index("thread.y")
    assert f"A_shared = T.alloc_buffer(({'' if stages is None else f'{stages[2] + 1}, '}4, 4)" in text
    # By default the first thread fills shared memory.
    assert ("i_2 == 0 and j_1 == 0" in text) is not together


def test_virtual_threads_around_a_reduction() -> None:
    sch = threads_outside((12, 8, 8), (4, 4, 2), 1, virtual=2, stages=(0, 0, 1))
    launched = check(sch.func)
    text = script(launched)
    assert "vthread" not in text
    assert "C_local = T.alloc_buffer((2, 1, 1)" in text


def test_memory_that_threads_share_has_one_content() -> None:
    sch = threads_outside(SMALL, TILE, 2, together=False, late=True)
    with pytest.raises(
        PassError, match="A_shared of scope 'shared' is filled differently by the threads"
    ) as caught:
        lower(IRModule({"main": sch.func}), LAUNCHES)
    assert "bind loops to threads before computing its block inside them" in str(caught.value)


@pytest.mark.slow
def test_a_product_of_64() -> None:
    sch, _ = staged((64, 64, 64), (32, 32, 8), 4, virtual=2, group=2)
    for name in ("A_shared", "B_shared"):
        sch.double_buffer(sch.get_block(name))
    check(sch.func)


def test_a_kernel_of_symbolic_size() -> None:
    n = Var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: maximum(a[i], 0.0), "B")
    sch = Schedule(te.create_prim_func([a], [b]))
    (i,) = sch.get_loops(sch.get_block("B"))
    outer, inner = sch.split(i, [None, 8])
    sch.bind(outer, "block.x")
    sch.bind(inner, "thread.x")
    for size in (0, 5, 24):
        check(sch.func, [size])
    split = lower(IRModule({"main": sch.func}), f"{LAUNCHES} | {LOOPS}")
    kernel = split["main_kernel"]
    assert kernel.attrs["launch"] == ("block.x", "thread.x")
    assert kernel.attrs["shared_bytes"] == 0
    assert 'T.launch_kernel("main_kernel", T.address_of(A), T.address_of(B), n, (n + 7) // 8, 8)' in script(
        split["main"]
    )


HOST = """
@T.prim_func
def main(A: T.Buffer((8,), "float32", offset=2, strides=(1,)), B: T.Buffer((8,), "float32")):
    M = T.alloc_buffer((8,), "float32")
    for k in range(3):
        x = T.let(A[k] + T.float32(1.0))
        for g in T.thread_binding(2, thread="block.x"):
            S = T.alloc_buffer((4,), "float32", scope="shared")
            for t in T.thread_binding(4, thread="thread.x"):
                S[t] = A[g * 4 + t] * x
                T.evaluate(T.barrier())
                M[g * 4 + t] = S[3 - t]
        for t in T.thread_binding(8, thread="thread.x"):
            B[t] = B[t] + M[7 - t]
"""


def test_each_launch_becomes_a_kernel() -> None:
    func = parse(HOST)
    split = SplitHostDevice().run(IRModule({"main": func, "main_kernel_1": parse(HOST)}), PassContext())
    verify_module(split, level=2)
    names = ["main", "main_kernel_1", "main_kernel", "main_kernel_2", "main_kernel_3", "main_kernel_4"]
    assert list(split.functions) == names
    assert split["main_kernel"].attrs["shared_bytes"] == 16
    outs = []
    for program in (func, split["main"]):
        a, b = np.arange(10, dtype=np.float32), np.zeros(8, np.float32)
        run(program, a, b, module=split, check=True)
        outs.append(b)
    np.testing.assert_array_equal(*outs)
    assert outs[0].any()
    assert SplitHostDevice().run(split, PassContext()) is split


def test_functions_of_plain_loops_are_not_split() -> None:
    module = IRModule({"main": matmul(4, 4, 4)})
    assert SplitHostDevice().run(module, PassContext()) is module
    launching = IRModule({"main": parse(HOST)})
    assert SplitHostDevice().run(launching, PassContext(target=target_of(Description()))) is launching
    inner = 'for u in T.thread_binding(4, thread="thread.x"):\n                    S[u] = A[g * 4 + u] * x'
    nested = HOST.replace("S[t] = A[g * 4 + t] * x", inner)
    with pytest.raises(PassError, match="several loops of one axis"):
        SplitHostDevice().run(IRModule({"main": parse(nested)}), PassContext())


OTHERS = sorted(KNOWN.keys() - {*LAUNCHES.split(" | "), "split_host_device", "schedule_kernels"})


@pytest.mark.parametrize("name", OTHERS)
def test_other_passes_keep_launches(name: str) -> None:
    sch = threads_outside((4, 8, 8), TILE, 2, stages=(0, 0, 1))
    module = lower(IRModule({"main": sch.func}), f"{LAUNCHES} | {name} | split_host_device")
    arrays = make_arrays(sch.func, {}, 5)
    flat = [a.reshape(-1) if b.ndim == 1 else a for a, b in zip(arrays, module["main"].buffers, strict=True)]
    run(module["main"], *flat, module=module, check=True)
    np.testing.assert_array_equal(arrays[-1], arrays[0] @ arrays[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thread_axes": {"block.x": 4, "lane": 32}}, "there is no axis thread.x: there are block.x, lane"),
        ({"thread_axes": {"block.x": 1, "thread.x": 32}}, "block.x has 2 iterations, 1 at most"),
        ({"group_threads": 4}, "a group has 8 threads, 4 at most"),
        ({"memory_scopes": ("global", "local")}, "there is no memory 'shared': there is global, local"),
        ({"shared_bytes": 8}, "a group shares 16 bytes, 8 at most"),
    ],
)
def test_launches_that_a_machine_cannot_run(changes: dict[str, object], message: str) -> None:
    context = PassContext(target=target_of(replace(MACHINE, **changes)))
    with pytest.raises(PassError, match="main cannot be launched on") as caught:
        SplitHostDevice().run(IRModule({"main": parse(HOST)}), context)
    assert message in str(caught.value)
    SplitHostDevice().run(IRModule({"main": parse(HOST)}), CONTEXT)


# Pipelines of plain loops


def chain(n: int) -> Schedule:
    """Each row goes through two buffers."""
    a = te.placeholder((n, 4), name="A")
    with te.collect() as made:
        x = te.compute((n, 4), lambda i, j: a[i, j] + 1.0, "X")
        y = te.compute((n, 4), lambda i, j: x[i, 3 - j] * 2.0, "Y")
        te.compute((n, 4), lambda i, j: y[i, j] + x[i, j], "Z")
    sch = Schedule(te.create_prim_func([a], [made[-1]], producers=made))
    row = sch.get_loops(sch.get_block("Z"))[0]
    sch.compute_at(sch.get_block("Y"), row)
    sch.compute_at(sch.get_block("X"), row)
    return sch


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("stages", [(0, 1, 2), (0, 0, 1), (0, 1, 1), (0, 2, 3)])
@pytest.mark.parametrize("compact", [False, True])
def test_pipelines_buffer_values_between_their_stages(
    rows: int, stages: tuple[int, ...], compact: bool
) -> None:
    sch = chain(rows)
    if compact:
        sch.compact_buffers()
    row = sch.get_loops(sch.get_block("Z"))[0]
    sch.software_pipeline(row, stages)
    func = sch.func
    piped = InjectSoftwarePipeline()(func)
    verify_func(piped, level=2)
    arrays = make_arrays(func, {}, 0)
    outs = []
    for program in (func, piped):
        out = np.full_like(arrays[-1], 99)
        run(program, arrays[0], out, check=True)
        outs.append(out)
    np.testing.assert_array_equal(*outs)
    assert "software_pipeline" not in script(piped)


def test_a_pipeline_as_text() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for k in T.serial(8, annotations={"software_pipeline_stage": (0, 1), "software_pipeline_order": (0, 1)}):
        S = T.alloc_buffer((4,), "float32")
        for j in range(4):
            S[j] = A[k, j]
        for j in range(4):
            B[k, j] = S[3 - j]
""")
    expected = parse("""
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    S = T.alloc_buffer((2, 4), "float32")
    for j in range(4):
        S[0, j] = A[0, j]
    for k in T.serial(1, extent=7):
        for j in range(4):
            S[k % 2, j] = A[k, j]
        for j in range(4):
            B[k - 1, j] = S[(k - 1) % 2, 3 - j]
    for j in range(4):
        B[7, j] = S[1, 3 - j]
""")
    assert structural_equal(InjectSoftwarePipeline()(func), expected), script(InjectSoftwarePipeline()(func))
    assert InjectSoftwarePipeline()(expected) is expected
    plain = parse(script(func).replace(', "software_pipeline_order": (0, 1)', ""))
    assert structural_equal(InjectSoftwarePipeline()(plain), expected)


def test_pipelines_of_symbolic_length() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((n, 4), "float32"), B: T.Buffer((n, 4), "float32"), n: T.int64):
    for k in T.serial(n, annotations={"software_pipeline_stage": (0, 2), "software_pipeline_order": (1, 0)}):
        S = T.alloc_buffer((4,), "float32")
        for j in range(4):
            S[j] = A[k, j]
        for j in range(4):
            B[k, j] = S[3 - j]
""")
    piped = InjectSoftwarePipeline()(func)
    verify_func(piped, level=2)
    for n in range(5):
        a, b = np.arange(n * 4, dtype=np.float32).reshape(n, 4), np.zeros((n, 4), np.float32)
        run(piped, a, b, n, check=True)
        np.testing.assert_array_equal(b, a[:, ::-1])


def test_pipelines_that_would_change_results_are_refused() -> None:
    sch = chain(4)
    row = sch.get_loops(sch.get_block("Z"))[0]

    def refused(stages: Sequence[int], order: Sequence[int] | None, words: str) -> None:
        before = sch.func
        with pytest.raises(ScheduleError, match=words):
            sch.software_pipeline(row, stages, order)
        assert sch.func is before

    refused((0, 1), None, r"its body has 3 part\(s\)")
    refused((0, 1, 1), (0, 1, 1), "a place of its own")
    refused((1, 1, 2), None, "stages count from 0")
    refused((0, 1, 0), None, "a part would run before the one that it shares")
    refused((0, 1, 1), (0, 2, 1), "a part would run before the one that it shares Y")
    product = Schedule(matmul(4, 4, 4))
    copied = product.cache_read(product.get_block("C"), "A", "local")
    with pytest.raises(ScheduleError, match="no serial loop holds it"):
        product.double_buffer(copied)
    with pytest.raises(ScheduleError, match="nothing reads its result"):
        product.double_buffer(product.get_block("C"))
    running = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((1,), "float32")
    S[0] = T.float32(0.0)
    for k in T.serial(8, annotations={"software_pipeline_stage": (0, 1), "software_pipeline_order": (0, 1)}):
        S[0] = S[0] + A[k]
        B[k] = S[0]
""")
    with pytest.raises(ScheduleError, match="elements of S may pass from one iteration to another"):
        InjectSoftwarePipeline()(running)
