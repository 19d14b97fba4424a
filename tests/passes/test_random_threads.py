"""Random stages of threads: separate loops compute the same as one launch with barriers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.diag import PassError
from dlc_core.passes.tir.thread_sync import ThreadSync
from dlc_core.passes.tir.unify_threads import UnifyThreadBinding, is_unified
from dlc_core.passes.tir.virtual_threads import InjectVirtualThread
from dlc_core.script import parse
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.threads import launches
from dlc_core.tir.verify import verify_func

WIDE, HIGH = 6, 3
ONE_TO_ONE = (
    "{t}",
    "{t} + 6",
    "17 - {t}",
    "{t} * 3",
    "{t} * 2 + 1",
    "({t} + {k}) % 18",
    "{k} % 2 * 9 + {t} % 9",
)
ANY = (*ONE_TO_ONE, "0", "{k}", "{t} // 2", "{t} % 4", "({t} * 5 + {k}) % 18", "{t} // 3 * 3 + {t} % 2")


@st.composite
def stages(draw: st.DrawFn, indent: int, loops: tuple[str, ...], private: bool) -> list[str]:
    """Statements of a group: loops of threads, serial loops of them, statements of all and of conditions."""
    pad, lines = "    " * indent, []
    for _ in range(draw(st.integers(1, 3))):
        kinds = (
            ["yx", "yx", "yx", "for", "if", "plain"] if private else ["x", "x", "yx", "for", "if", "plain"]
        )
        kind = draw(st.sampled_from(kinds))
        k = draw(st.sampled_from([*loops, "1"]))
        if kind == "for" and len(loops) < 2:
            name = f"k{len(loops)}"
            lines.append(f"{pad}for {name} in range({draw(st.integers(1, 3))}):")
            lines += draw(stages(indent + 1, (*loops, name), private))
        elif kind == "if" and loops:
            lines.append(f"{pad}if {loops[-1]} {draw(st.sampled_from(['<', '>=']))} 1:")
            lines += draw(stages(indent + 1, loops, private))
        elif kind == "plain":
            target, source = draw(st.permutations(["S", "R"]))
            place, other = (draw(st.sampled_from(["0", "3", "{k}"])).format(k=k) for _ in range(2))
            lines.append(f"{pad}{target}[{place}] = {source}[{other}] + 1.0")
        else:
            lines += draw(stage(pad, k, kind, private))
    return lines


@st.composite
def stage(draw: st.DrawFn, pad: str, k: str, kind: str, private: bool) -> list[str]:
    """A loop of threads. Each writes elements that no other thread accesses in this stage."""
    if kind == "x":
        heads = [f'for x in T.thread_binding({draw(st.integers(1, WIDE))}, thread="thread.x"):']
        number = "x"
    else:
        heads = [
            f'for y in T.thread_binding({HIGH}, thread="thread.y"):',
            f'for x in T.thread_binding({WIDE}, thread="thread.x"):',
        ]
        number = "(y * 6 + x)"
    most = WIDE if kind == "x" else HIGH * WIDE
    reach = [f for f in ONE_TO_ONE if _fits(f, most)]
    write = draw(st.sampled_from(reach)).format(t=number, k=k)
    read = draw(st.sampled_from([f for f in ANY if _fits(f, most)])).format(t=number, k=k)
    target, source = draw(st.permutations(["S", "R"]))
    if private and draw(st.integers(0, 9)):
        # Most threads access only their own element of R.
        write, read = (number if name == "R" else at for name, at in ((target, write), (source, read)))
    lines = [pad + "    " * depth + head for depth, head in enumerate(heads)]
    inner = pad + "    " * len(heads)
    lines.append(f"{inner}{target}[{write}] = {source}[{read}] * 2.0 + {target}[{write}]")
    if draw(st.booleans()):
        lines.append(f"{inner}{target}[{write}] = {target}[{write}] + 1.0")
    return lines


def _fits(form: str, count: int) -> bool:
    """Whether the indices of all threads are below 18, and differ where required."""
    places = [eval(form.format(t=t, k=k)) for t in range(count) for k in range(3)]  # noqa: S307
    apart = all(len({eval(form.format(t=t, k=k)) for t in range(count)}) == count for k in range(3))  # noqa: S307
    return all(0 <= p < 18 for p in places) and (apart or form not in ONE_TO_ONE)


HEAD = """
@T.prim_func
def main(A: T.Buffer((2, 18), "float32"), B: T.Buffer((2, 18), "float32")):
    for g in T.thread_binding(2, thread="block.x"):
        S = T.alloc_buffer((18,), "float32", scope="shared")
        R = T.alloc_buffer((18,), "float32", scope="shared")
        for y in T.thread_binding(3, thread="thread.y"):
            for x in T.thread_binding(6, thread="thread.x"):
                S[y * 6 + x] = A[g, y * 6 + x]
                R[y * 6 + x] = A[g, 17 - y * 6 - x]
"""
TAIL = """
        for y in T.thread_binding(3, thread="thread.y"):
            for x in T.thread_binding(6, thread="thread.x"):
                B[g, y * 6 + x] = S[y * 6 + x] - R[x * 3 + y]
"""


def _is_private(func: PrimFunc) -> bool:
    """Whether the private memory of threads is accepted, because it passes no values between them."""
    try:
        UnifyThreadBinding()(func)
    except PassError:
        return False
    return True


PRIVATE = 'R = T.alloc_buffer((18,), "float32", scope="local")'


def result(func: PrimFunc) -> np.ndarray:
    a = np.random.default_rng(0).integers(0, 5, (2, 18)).astype(np.float32)
    b = np.full((2, 18), 99, np.float32)
    run(func, a, b, check=True)
    return b


@given(st.data(), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_stages_of_threads_compute_the_same_as_a_launch(
    data: st.DataObject, virtual: bool, private: bool
) -> None:
    text = HEAD + "\n".join(data.draw(stages(2, (), private))) + TAIL
    if private:
        text = text.replace('R = T.alloc_buffer((18,), "float32", scope="shared")', PRIVATE)
        text = text.replace("R[x * 3 + y]", "R[y * 6 + x]")
    func = parse(text.replace('"thread.y"', '"vthread"') if virtual else text)
    verify_func(func, level=2)
    if private and not _is_private(func):
        return
    launched = ThreadSync()(InjectVirtualThread()(UnifyThreadBinding()(func)))
    verify_func(launched, level=2)
    assert all(map(is_unified, launches(launched.body)))
    np.testing.assert_array_equal(result(launched), result(func))
