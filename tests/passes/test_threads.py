"""The passes that make launches: texts before and after, and results before and after."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import PassError, RuntimeFailure
from dlc_core.ir.structural import structural_equal
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.tir import PASSES
from dlc_core.passes.tir.cross_thread import LowerCrossThreadReduction
from dlc_core.passes.tir.lower_blocks import LowerBlocks
from dlc_core.passes.tir.thread_sync import ThreadSync
from dlc_core.passes.tir.unify_threads import UnifyThreadBinding, is_unified
from dlc_core.passes.tir.virtual_threads import InjectVirtualThread
from dlc_core.schedule import Schedule
from dlc_core.script import parse, script
from dlc_core.target import Description
from dlc_core.testing.schedules import make_arrays, target_of
from dlc_core.tir.functor import stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import Eval, PrimFunc
from dlc_core.tir.threads import launches
from dlc_core.tir.verify import verify_func

AB = 'A: T.Buffer((4, 8, 32), "float32"), B: T.Buffer((4, 32), "float32")'


def program(body: str, params: str = AB) -> PrimFunc:
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    func = parse(f"@T.prim_func\ndef main({params}):\n{lines}\n")
    assert isinstance(func, PrimFunc)
    return func


def same(func: PrimFunc, body: str, params: str = AB) -> None:
    verify_func(func, level=2)
    expected = program(body, params)
    assert structural_equal(func, expected), script(func)
    assert script(parse(script(func))) == script(func)


def outputs(func: PrimFunc, *, check: bool = True) -> np.ndarray:
    *inputs, out = make_arrays(func, {}, 3)
    out.fill(99)
    run(func, *inputs, out, check=check)
    return out


def barriers(func: PrimFunc) -> int:
    return sum(isinstance(s, Eval) for s in stmts(func.body))


STAGED = """
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    L = T.alloc_buffer((32,), "float32", scope="local")
    for t in T.thread_binding(32, thread="thread.x"):
        L[t] = T.float32(0.0)
    for k in range(8):
        for t in T.thread_binding(32, thread="thread.x"):
            S[t] = A[g, k, t]
        for u in T.thread_binding(16, thread="thread.x"):
            L[u] = L[u] + S[31 - u]
    B[g, 0] = S[1]
    for v in T.thread_binding(31, thread="thread.x"):
        B[g, v + 1] = L[v + 1]
"""
UNIFIED = """
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for t in T.thread_binding(32, thread="thread.x"):
        L = T.alloc_buffer((32,), "float32", scope="local")
        L[t] = T.float32(0.0)
        for k in range(8):
            S[t] = A[g, k, t]
            if t < 16:
                L[t] = L[t] + S[31 - t]
        if t == 0:
            B[g, 0] = S[1]
        if t < 31:
            B[g, t + 1] = L[t + 1]
"""


def test_stages_of_a_launch_become_one_nest() -> None:
    func = program(STAGED.replace("T.thread_binding(31", "T.thread_binding(32").replace("v + 1", "v"))
    unified = UnifyThreadBinding()(func)
    same(
        unified,
        """
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for t in T.thread_binding(32, thread="thread.x"):
        L = T.alloc_buffer((1,), "float32", scope="local")
        L[0] = T.float32(0.0)
        for k in range(8):
            S[t] = A[g, k, t]
            if t < 16:
                L[0] = L[0] + S[31 - t]
        if t == 0:
            B[g, 0] = S[1]
        B[g, t] = L[0]
""",
    )
    assert UnifyThreadBinding()(unified) is unified
    with pytest.raises(RuntimeFailure, match="is read before it is written"):
        outputs(unified)
    synced = ThreadSync()(unified)
    same(
        synced,
        """
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for t in T.thread_binding(32, thread="thread.x"):
        L = T.alloc_buffer((1,), "float32", scope="local")
        L[0] = T.float32(0.0)
        for k in range(8):
            T.evaluate(T.barrier())
            S[t] = A[g, k, t]
            T.evaluate(T.barrier())
            if t < 16:
                L[0] = L[0] + S[31 - t]
        if t == 0:
            B[g, 0] = S[1]
        T.evaluate(T.barrier())
        B[g, t] = L[0]
""",
    )
    np.testing.assert_array_equal(outputs(synced), outputs(func))
    assert ThreadSync()(synced) is synced


def test_memory_of_threads_that_passes_values_between_them_is_refused() -> None:
    with pytest.raises(PassError, match="L cannot be private to each thread") as caught:
        UnifyThreadBinding()(program(STAGED))
    assert "written by one thread and read by another" in str(caught.value)
    shared = program(STAGED.replace('scope="local"', 'scope="shared"'))
    np.testing.assert_array_equal(outputs(ThreadSync()(shared)), outputs(shared))


def test_memory_that_all_threads_fill_equally_is_private() -> None:
    func = program(
        """
for g in T.thread_binding(4, thread="block.x"):
    L = T.alloc_buffer((8,), "float32", scope="local")
    for k in range(8):
        L[k] = A[g, k, 0]
    for y in T.thread_binding(4, thread="thread.y"):
        for t in T.thread_binding(8, thread="thread.x"):
            B[g, y * 8 + t] = L[t]
"""
    )
    synced = ThreadSync()(func)
    assert barriers(synced) == 0
    np.testing.assert_array_equal(outputs(synced), outputs(func))


def test_distributes_a_nested_loop_of_the_same_axis() -> None:
    func = program(
        """
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for t in T.thread_binding(32, thread="thread.x"):
        for u in T.thread_binding(32, thread="thread.x"):
            S[u] = A[g, 0, u] * 2.0
        B[g, t] = S[31 - t]
"""
    )
    same(
        ThreadSync()(func),
        """
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for t in T.thread_binding(32, thread="thread.x"):
        S[t] = A[g, 0, t] * 2.0
        T.evaluate(T.barrier())
        B[g, t] = S[31 - t]
""",
    )
    depends = script(func).replace("S[u] = A[g, 0, u]", "S[t] = A[g, 0, u + t]")
    with pytest.raises(PassError, match=r"the loop u is inside another one bound to thread\.x"):
        UnifyThreadBinding()(parse(depends))


def test_refuses_group_axes_inside_of_other_statements() -> None:
    func = program(
        """
for t in T.thread_binding(8, thread="block.y"):
    for k in range(2):
        for g in T.thread_binding(4, thread="block.x"):
            B[g, t * 2 + k] = A[g, t, k]
"""
    )
    with pytest.raises(PassError, match=r"the loop g bound to block.x is inside of other statements"):
        UnifyThreadBinding()(func)


@pytest.mark.parametrize(
    ("write", "read", "needed"),
    [
        ("S[y * 8 + x]", "S[y * 8 + x]", 0),
        ("S[y * 8 + x]", "S[x * 8 + y]", 1),
        ("S[y * 8 + x]", "S[y * 8 + 7 - x]", 1),
        ("S[x * 4 + y]", "S[x * 4 + y]", 0),
        ("S[(y * 8 + x) // 4 * 4 + (y * 8 + x) % 4]", "S[(y * 8 + x) // 4 * 4 + (y * 8 + x) % 4]", 0),
        ("S[y * 8 + x]", "S[y * 8 + x + 32]", 0),
        ("S[y * 8 + x]", "A[g, y, x]", 0),
        ("S[(y * 8 + x) * 2 % 64]", "S[(y * 8 + x) * 2 % 64 + 1]", 0),
    ],
)
def test_inserts_barriers_only_between_conflicting_accesses(write: str, read: str, needed: int) -> None:
    func = program(
        f"""
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((80,), "float32", scope="shared")
    for k in range(80):
        S[k] = T.float32(1.0)
    for y in T.thread_binding(4, thread="thread.y"):
        for x in T.thread_binding(8, thread="thread.x"):
            {write} = A[g, 0, y * 8 + x]
            B[g, y * 8 + x] = {read}
"""
    )
    synced = ThreadSync()(func)
    # Another barrier orders the filling by the first thread.
    assert barriers(synced) == needed + 1
    outputs(synced)
    if needed:
        once = script(synced).split("T.evaluate(T.barrier())")
        assert len(once) == 3
        with pytest.raises(RuntimeFailure, match="race"):
            outputs(parse("T.evaluate(T.barrier())".join((once[0], once[1] + "pass" + once[2]))))


def test_barriers_under_conditions_of_all_threads_and_not_of_one() -> None:
    body = """
for g in T.thread_binding(4, thread="block.x"):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for t in T.thread_binding(32, thread="thread.x"):
        B[g, t] = T.float32(0.0)
        if COND:
            S[t] = A[g, 0, t]
            B[g, t] = S[31 - t]
"""
    uniform = program(body.replace("COND", "g < 2"))
    synced = ThreadSync()(uniform)
    assert barriers(synced) == 1
    outputs(synced)
    with pytest.raises(PassError, match="threads may need a barrier between accesses to S") as caught:
        ThreadSync()(program(body.replace("COND", "t > 2")))
    assert "differs between threads" in str(caught.value)
    loops = body.replace("if COND:", "for k in range(t + 1):")
    with pytest.raises(PassError, match="threads may need a barrier"):
        ThreadSync()(program(loops))


VIRTUAL = """
for x in T.thread_binding(2, thread="thread.x"):
    for v in T.thread_binding(2, thread="vthread"):
        L = T.alloc_buffer((1,), "float32", scope="local")
        M = T.alloc_buffer((1,), "float32", scope="local")
        M[0] = T.float32(1.0)
        for k in range(8):
            L[0] = A[v * 2 + x, k, 0] + M[0]
            T.evaluate(T.barrier())
            if v + k > 2:
                B[v * 2 + x, k] = L[0]
            else:
                w = T.let(L[0] * 2.0)
                B[v * 2 + x, k] = w
"""


def test_interleaves_virtual_threads() -> None:
    func = program(VIRTUAL)
    injected = InjectVirtualThread()(func)
    same(
        injected,
        """
for x in T.thread_binding(2, thread="thread.x"):
    L = T.alloc_buffer((2, 1), "float32", scope="local")
    M = T.alloc_buffer((1,), "float32", scope="local")
    M[0] = T.float32(1.0)
    for k in range(8):
        for v in T.unroll(2):
            L[v, 0] = A[v * 2 + x, k, 0] + M[0]
        T.evaluate(T.barrier())
        for v in T.unroll(2):
            if v + k > 2:
                B[v * 2 + x, k] = L[v, 0]
            else:
                w = T.let(L[v, 0] * 2.0)
                B[v * 2 + x, k] = w
""",
    )
    np.testing.assert_array_equal(outputs(injected), outputs(func))
    inside = VIRTUAL.replace("            T.evaluate(T.barrier())\n", "").replace(
        "                w = ", "                T.evaluate(T.barrier())\n                w = "
    )
    with pytest.raises(PassError, match="have a barrier under a condition that differs between them"):
        InjectVirtualThread()(program(inside))
    with pytest.raises(PassError, match="is a loop of virtual threads"):
        ThreadSync()(func)


def sums(m: int, n: int) -> PrimFunc:
    a, r = te.placeholder((m, n), name="A"), te.reduce_axis(n, "r")
    return te.create_prim_func([a], [te.compute((m,), lambda i: te.sum(a[i, r], axis=r), "B")])


def shared_sum(m: int, n: int, threads: int, rows: int) -> PrimFunc:
    schedule = Schedule(sums(m, n))
    i, r = schedule.get_loops(schedule.get_block("B"))
    outer, inner = schedule.split(r, [None, threads])
    schedule.reorder(inner, outer)
    if rows > 1:
        i, row = schedule.split(i, [None, rows])
        schedule.bind(row, "thread.y")
    schedule.bind(i, "block.x")
    schedule.bind(inner, "thread.x")
    return schedule.func


@pytest.mark.parametrize(
    ("m", "n", "threads", "rows"), [(3, 32, 8, 1), (4, 37, 6, 2), (2, 5, 1, 1), (1, 7, 7, 1)]
)
def test_threads_share_a_reduction(m: int, n: int, threads: int, rows: int) -> None:
    func = shared_sum(m, n, threads, rows)
    split = LowerCrossThreadReduction()(func)
    verify_func(split, level=2)
    expected = make_arrays(func, {}, 3)[0].sum(1)
    for each in (func, split):
        np.testing.assert_array_equal(outputs(each, check=each is split), expected)
    known = {cls.name: cls for cls in PASSES}
    pipeline = Pipeline.parse(
        "lower_cross_thread_reduction | unify_thread_binding | lower_blocks | thread_sync", known
    )
    lowered = func
    for step in pipeline.passes:
        lowered = step(lowered)  # type: ignore[operator]
        verify_func(lowered, level=2)
    assert all(map(is_unified, launches(lowered.body)))
    np.testing.assert_array_equal(outputs(lowered), expected)
    if threads > 2:
        unsynced = LowerBlocks()(UnifyThreadBinding()(split))
        with pytest.raises(RuntimeFailure, match=r"race|read before it is written"):
            outputs(unsynced)


@pytest.mark.parametrize(
    ("m", "n", "threads", "rows"), [(3, 32, 8, 1), (4, 37, 16, 2), (2, 5, 4, 1), (1, 14, 6, 1)]
)
def test_subgroups_exchange_their_parts(m: int, n: int, threads: int, rows: int) -> None:
    func = shared_sum(m, n, threads, rows)
    expected = make_arrays(func, {}, 3)[0].sum(1)
    for each in (LowerCrossThreadReduction(subgroup=4), UnifyThreadBinding(), LowerBlocks(), ThreadSync()):
        func = each(func)
        verify_func(func, level=2)
        if not isinstance(each, (UnifyThreadBinding, LowerBlocks)):
            np.testing.assert_array_equal(outputs(func), expected)
    text = script(func)
    assert ("subgroup_shuffle_down" in text) is (threads % 4 == 0)
    if threads == 4:
        assert barriers(func) == 0
    with pytest.raises(PassError, match="subgroups of 6 threads"):
        LowerCrossThreadReduction(subgroup=6)(shared_sum(m, n, threads, rows))


def test_subgroups_stay_those_of_the_innermost_axis() -> None:
    func = program(
        """
for g in T.thread_binding(4, thread="block.x"):
    for x in T.thread_binding(8, thread="thread.x"):
        B[g, x] = T.subgroup_shuffle_xor(A[g, 0, x], 1, 4)
    for y in T.thread_binding(2, thread="thread.y"):
        B[g, y + 8] = A[g, 0, y]
"""
    )
    with pytest.raises(PassError, match=r"threads along thread\.x exchange values, and thread\.y is inside"):
        UnifyThreadBinding()(func)


def test_a_tree_of_partial_sums() -> None:
    lowered = ThreadSync()(
        LowerBlocks()(UnifyThreadBinding()(LowerCrossThreadReduction()(shared_sum(2, 12, 4, 1))))
    )
    same(
        lowered,
        """
for i in T.thread_binding(2, thread="block.x"):
    P = T.alloc_buffer((4,), "float32", scope="shared")
    for r in T.thread_binding(4, thread="thread.x"):
        with T.alloc_buffer((1,), "float32", scope="local") as S:
            for k in range(3):
                if k == 0:
                    S[0] = T.float32(0.0)
                S[0] = S[0] + A[i, r + k * 4]
            P[r] = S[0]
        T.evaluate(T.barrier())
        if r < 2:
            P[r] = P[r] + P[r + 2]
        T.evaluate(T.barrier())
        if r < 1:
            P[r] = P[r] + P[r + 1]
        if r == 0:
            B[i] = P[0]
""",
        'A: T.Buffer((2, 12), "float32"), B: T.Buffer((2,), "float32")',
    )


def test_targets_without_thread_axes_are_unchanged() -> None:
    func = program(STAGED.replace('scope="local"', 'scope="shared"'))
    context = PassContext(target=target_of(Description()))
    for cls in (LowerCrossThreadReduction, UnifyThreadBinding, InjectVirtualThread, ThreadSync):
        assert cls()(func, context) is func
    threads = Description(thread_axes={"block.x": 1 << 16, "thread.x": 256})
    assert ThreadSync()(func, PassContext(target=target_of(threads))) is not func
    plain = sums(4, 8)
    for cls in (LowerCrossThreadReduction, UnifyThreadBinding, InjectVirtualThread, ThreadSync):
        assert cls()(plain) is plain
