"""Thread axes: barriers in the interpreter, races, and legal nests."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import RuntimeFailure
from dlc_core.ir.module import IRModule
from dlc_core.script import parse, script
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.threads import GROUP, THREAD, VIRTUAL, launch_axes, launches, level_of
from dlc_core.tir.verify import find_problems, verify_func

F32 = np.float32


def program(
    body: str, params: str = 'A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")'
) -> PrimFunc:
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    func = parse(f"@T.prim_func\ndef main({params}):\n{lines}\n")
    assert isinstance(func, PrimFunc)
    assert script(parse(script(func))) == script(func)
    return func


def outcome(func: PrimFunc, *, check: bool = True, reverse: bool = False) -> list[float]:
    verify_func(func, level=2)
    a, b = np.arange(8, dtype=F32), np.zeros(8, F32)
    run(func, a, b, check=check, reverse=reverse)
    return b.tolist()


REVERSED = """
for g in T.thread_binding(2, thread="block.x"):
    S = T.alloc_buffer((4,), "float32", scope="shared")
    for x in T.thread_binding(4, thread="thread.x"):
        S[x] = A[g * 4 + x]
        T.evaluate(T.barrier())
        B[g * 4 + x] = S[3 - x]
"""


@pytest.mark.parametrize("reverse", [False, True])
def test_a_barrier_orders_the_threads_of_a_group(reverse: bool) -> None:
    assert outcome(program(REVERSED), reverse=reverse) == [3, 2, 1, 0, 7, 6, 5, 4]


def test_a_missing_barrier_is_a_race() -> None:
    func = program(REVERSED.replace("        T.evaluate(T.barrier())\n", ""))
    with pytest.raises(RuntimeFailure, match=r"S\[3\] is read before it is written") as early:
        outcome(func)
    assert "a parallel iteration may write it at the same time" in str(early.value)
    filled = REVERSED.replace("    for x", "    for k in range(4):\n        S[k] = A[k]\n    for x")
    func = program(filled.replace("        T.evaluate(T.barrier())\n", ""))
    with pytest.raises(RuntimeFailure) as caught:
        outcome(func)
    message = str(caught.value)
    assert "race: S[2] is read and written by iterations 1 and 2 of the loop x (thread.x)" in message
    assert "no barrier stands between" in message
    assert "S[x] = A[g * 4 + x]" in message
    outcome(func, check=False)


def test_one_barrier_orders_one_side_only() -> None:
    body = """
S = T.alloc_buffer((8,), "float32", scope="shared")
for x in T.thread_binding(8, thread="thread.x"):
    for k in range(3):
        S[x] = A[x]
        T.evaluate(T.barrier())
        B[x] = B[x] + S[7 - x]
"""
    # Thread 3 writes for the next step before thread 4 has read.
    with pytest.raises(RuntimeFailure, match=r"race: S\[3\] is written and read by iterations 3 and 4 of"):
        outcome(program(body))
    both = body + "        T.evaluate(T.barrier())\n"
    assert outcome(program(both)) == [21, 18, 15, 12, 9, 6, 3, 0]


def test_barriers_synchronise_all_axes_of_one_group() -> None:
    body = """
S = T.alloc_buffer((2, 4), "float32", scope="shared")
for y in T.thread_binding(2, thread="thread.y"):
    for x in T.thread_binding(4, thread="thread.x"):
        S[y, x] = A[y * 4 + x]
        T.evaluate(T.barrier())
        B[y * 4 + x] = S[1 - y, x]
"""
    assert outcome(program(body)) == [4, 5, 6, 7, 0, 1, 2, 3]
    across = body.replace('thread="thread.y"', 'thread="block.y"').replace("S[1 - y, x]", "A[x]")
    across = across.replace("B[y * 4 + x]", "B[x]")
    with pytest.raises(RuntimeFailure, match=r"race: B\[0\] .* iterations 0 and 1 of the loop y \(block.y\)"):
        outcome(program(across))


def test_the_end_of_a_thread_loop_is_a_barrier() -> None:
    body = """
S = T.alloc_buffer((8,), "float32", scope="shared")
for x in T.thread_binding(8, thread="thread.x"):
    S[x] = A[x]
for x in T.thread_binding(8, thread="thread.x"):
    B[x] = S[7 - x]
"""
    assert outcome(program(body)) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_local_memory_is_private_to_a_thread() -> None:
    body = """
for x in T.thread_binding(8, thread="thread.x"):
    L = T.alloc_buffer((1,), "float32", scope="local")
    L[0] = A[x]
    T.evaluate(T.barrier())
    B[x] = L[0]
"""
    assert outcome(program(body)) == list(range(8))
    shared = 'L = T.alloc_buffer((1,), "float32", scope="local")\n' + body.replace(
        '    L = T.alloc_buffer((1,), "float32", scope="local")\n', ""
    )
    with pytest.raises(RuntimeFailure, match=r"race: L\[0\] is written and written"):
        outcome(program(shared))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    if x < 2:\n        T.evaluate(T.barrier())", "2 of 4 threads wait at a barrier"),
        (
            "    if x < 2:\n        T.evaluate(T.barrier())\n    else:\n        T.evaluate(T.barrier())",
            "wait at 2 different barriers",
        ),
        ("    for k in range(x + 1):\n        T.evaluate(T.barrier())", "3 of 4 threads wait"),
    ],
)
def test_divergent_barriers_fail(body: str, message: str) -> None:
    func = program(f'for x in T.thread_binding(4, thread="thread.x"):\n{body}')
    with pytest.raises(RuntimeFailure, match=message):
        outcome(func)


def test_subgroups_exchange_values() -> None:
    body = """
for x in T.thread_binding(8, thread="thread.x"):
    v = T.let(A[x] + T.subgroup_shuffle_down(A[x], 2, 4))
    w = T.let(v + T.subgroup_shuffle_down(v, 1, 4))
    B[x] = T.subgroup_shuffle(w, 0, 4) * 100.0 + T.subgroup_shuffle_xor(A[x], 1, 8)
"""
    assert outcome(program(body)) == [601, 600, 603, 602, 2205, 2204, 2207, 2206]
    with pytest.raises(RuntimeFailure, match=r"8 threads of the loop x .* are no subgroups of 3"):
        outcome(
            program('for x in T.thread_binding(8, thread="x"):\n    B[x] = T.subgroup_shuffle(A[x], 0, 3)')
        )


def test_barriers_in_deep_nests() -> None:
    """Python limits nested blocks, so some loops become separate functions."""
    lines = [
        'S = T.alloc_buffer((8,), "float32", scope="shared")',
        'for x in T.thread_binding(8, thread="x"):',
    ]
    lines += ["    " * depth + f"for k{depth} in range(1):" for depth in range(1, 21)]
    inside = "    " * 21
    lines += [inside + "S[x] = A[x]", inside + "T.evaluate(T.barrier())", inside + "B[x] = S[7 - x]"]
    assert outcome(program("\n".join(lines))) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_launches_check_their_extents() -> None:
    kernel = program(
        """
for g in T.thread_binding(n // 4, thread="block.x"):
    for x in T.thread_binding(4, thread="thread.x"):
        B[g * 4 + x] = A[g * 4 + x] + 1.0
""",
        'A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32"), n: T.int64',
    )
    assert {axis: str(extent) for axis, extent in launch_axes(kernel).items()} == {
        "block.x": "n // 4",
        "thread.x": "4",
    }
    host = program('T.evaluate(T.launch_kernel("kernel", T.address_of(A), T.address_of(B), 8, 2, 4))')
    assert '    T.launch_kernel("kernel", T.address_of(A)' in script(host)
    module = IRModule({"main": host, "kernel": kernel})
    assert find_problems(host, level=2, module=module) == []
    a, b = np.arange(8, dtype=F32), np.zeros(8, F32)
    run(host, a, b, module=module, check=True)
    np.testing.assert_array_equal(b, a + 1)
    wrong = program('T.evaluate(T.launch_kernel("kernel", T.address_of(A), T.address_of(B), 8, 4, 4))')
    with pytest.raises(RuntimeFailure, match=r"kernel is launched over \(4, 4\)"):
        run(wrong, a, b, module=module)
    short = program('T.evaluate(T.launch_kernel("kernel", T.address_of(A), T.address_of(B), 8, 2))')
    (problem,) = find_problems(short, level=2, module=module)
    assert problem.message == "kernel kernel takes 5 arguments, not 4"


def test_levels_come_from_names() -> None:
    names = ["block.x", "blockIdx.y", "vthread", "vthread.x", "thread.x", "lane"]
    assert [level_of(n) for n in names] == [GROUP, GROUP, VIRTUAL, VIRTUAL, THREAD, THREAD]
    func = program(
        'for x in T.thread_binding(4, thread="block.x"):\n    B[x] = A[x]\n'
        'for y in T.thread_binding(4, thread="block.x"):\n    B[y + 4] = A[y]\n'
    )
    assert [s.var.name for s in launches(func.body)] == ["x", "y"]


GROUP_INSIDE = """
for x in T.thread_binding(4, thread="t"):
    for g in T.thread_binding(2, thread="block"):
        B[g] = A[x]
"""
EXTENTS = """
for x in T.thread_binding(4, thread="t"):
    for y in T.thread_binding(2, thread="t"):
        B[y] = A[y]
"""
VECTOR = """
for x in T.thread_binding(4, thread="t"):
    for k in T.vectorized(2):
        T.evaluate(T.barrier())
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (GROUP_INSIDE, "the axis block of groups stands inside the axis t of threads"),
        (EXTENTS, "loops over x and y, inside each other, are both bound to t with extents 4 and 2"),
        (VECTOR, "barrier in the vectorized loop over k"),
    ],
)
def test_rules_of_thread_axes(body: str, message: str) -> None:
    assert any(message in p.message for p in find_problems(program(body)))
