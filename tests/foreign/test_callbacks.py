"""Python callables that compiled code calls: exceptions, nesting, threads, guard mode."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import RuntimeFailure
from dlc_core.foreign import CSymbol, ForeignFunction, PythonCallable
from dlc_core.script import parse
from tests.foreign.functions import PAIRS, PROGRAM, TWICE, declared
from tests.foreign.test_targets import A, usable

HOSTS = pytest.mark.parametrize("target", ["llvm", "c", "reference -level=tir"])


def compiled(target: str, register: Any, function: Any, **options: Any) -> Any:
    usable(target)
    register(ForeignFunction("test.twice", TWICE, [PythonCallable(function)], **options))
    register(declared(*PAIRS["python"])[1])
    return dlc.build(parse(PROGRAM), target)


@HOSTS
def test_an_exception_is_the_error_of_the_call(target: str, register: Any) -> None:
    fails = [True]

    def moody(x: Any, y: Any, n: int) -> None:
        if fails[0]:
            raise ValueError("not today")
        y[:] = x * 2

    exe = compiled(target, register, moody)
    for run in (lambda: exe(A), exe.bind([A])):
        fails[0] = True
        with pytest.raises(RuntimeFailure, match=r"foreign function 'test\.twice' failed") as caught:
            run()
        assert caught.value.why == "ValueError: not today"
        assert isinstance(caught.value.__cause__, ValueError)
        lines = "".join(traceback.format_exception(caught.value))
        assert "in moody" in lines
        fails[0] = False
        np.testing.assert_array_equal(run()[0], A * 2)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_after_an_exception_other_callbacks_are_skipped(target: str, register: Any) -> None:
    usable(target)
    calls: list[int] = []

    def count(n: int) -> None:
        calls.append(n)
        if n == 3:
            raise KeyError(n)

    register(ForeignFunction("test.count", "(int64 n)", [PythonCallable(count)]))
    exe = dlc.build(
        parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.parallel(8):
        B[i] = A[i] + T.float32(1.0)
        T.evaluate(T.call_extern("test.count", i, dtype="int32"))
"""),
        target,
    )
    with pytest.raises(RuntimeFailure, match="KeyError: 3"):
        exe(np.zeros(8, np.float32))
    assert calls == [0, 1, 2, 3]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_interrupts_pass_through(target: str, register: Any) -> None:
    def interrupted(x: Any, y: Any, n: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiled(target, register, interrupted)(A)


@HOSTS
def test_results_of_a_wrong_kind_are_errors(target: str, register: Any) -> None:
    usable(target)
    register(declared(*PAIRS["python"])[0])
    signature = "(float32 x) -> float32"
    register(ForeignFunction("test.cube", signature, [PythonCallable(lambda x: "x")], pure=True))
    with pytest.raises(RuntimeFailure, match="ValueError: could not convert string to float"):
        dlc.build(parse(PROGRAM), target)(A)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_callbacks_may_call_models(target: str, register: Any) -> None:
    inner: list[Any] = []
    depth: list[int] = []

    def nested(x: Any, y: Any, n: int) -> None:
        depth.append(len(depth))
        if len(depth) < 3:
            y[:] = inner[0](np.array(x))[0]
        elif x[0] < 0:
            raise OverflowError("too deep")
        else:
            y[:] = x * 2

    exe = compiled(target, register, nested)
    inner.append(exe)
    np.testing.assert_array_equal(exe(A)[0], A * 2)
    depth.clear()
    with pytest.raises(RuntimeFailure) as caught:
        exe(A - 1)
    chain: list[BaseException] = [caught.value]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    assert [type(each) for each in chain] == [RuntimeFailure] * 3 + [OverflowError]
    depth.clear()
    np.testing.assert_array_equal(exe(A)[0], A * 2)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_each_thread_gets_its_own_error(target: str, register: Any) -> None:
    barrier = threading.Barrier(2, timeout=30)

    def negative(x: Any, y: Any, n: int) -> None:
        barrier.wait()
        if x[0] < 0:
            raise ValueError(f"thread {x[0]}")
        y[:] = x * 2

    exe = compiled(target, register, negative)

    def call(first: float) -> str:
        try:
            return str(exe(np.full(64, first, np.float32))[0][0])
        except RuntimeFailure as error:
            return error.why

    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert list(pool.map(call, [-1.0, 3.0])) == ["ValueError: thread -1.0", "6.0"]
            assert list(pool.map(call, [-1.0, -2.0])) == [
                "ValueError: thread -1.0",
                "ValueError: thread -2.0",
            ]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_functions_that_are_not_thread_safe_do_not_overlap(target: str, register: Any) -> None:
    inside, most = [0], [0]

    def counted(x: Any, y: Any, n: int) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.005)
        inside[0] -= 1
        y[:] = x * 2

    exe = compiled(target, register, counted, thread_safe=False)
    exe(A)
    with ThreadPoolExecutor(4) as pool:
        for doubled, _ in pool.map(exe, [A] * 12):
            np.testing.assert_array_equal(doubled, A * 2)
    assert most == [1]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_callbacks_in_guard_mode(target: str, register: Any) -> None:
    def last(x: Any, y: Any, n: int) -> None:
        y[:] = x * 2

    compiled(target, register, last)
    for mode in ("end", "begin"):
        with config.override(guard=mode):
            np.testing.assert_array_equal(dlc.build(parse(PROGRAM), target)(A)[0], A * 2)


def test_errors_in_other_threads_are_not_lost(register: Any) -> None:
    """If a library is missing, its Python substitute runs in the threads of a parallel loop."""
    usable("llvm")

    threads: set[int] = set()

    def odd(n: int) -> None:
        threads.add(threading.get_ident())
        threading.Event().wait(0.001)  # so that the other thread takes part
        if n % 2:
            raise ValueError("odd")

    implementations = [CSymbol("libm.so.6", "no_such_symbol"), PythonCallable(odd)]
    register(ForeignFunction("test.odd", "(int64 n)", implementations))
    program = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in T.parallel(64):
        B[i] = A[i] + T.float32(1.0)
        T.evaluate(T.call_extern("test.odd", i * FACTOR, dtype="int32"))
"""
    for number in (1, 2):
        threads.clear()
        even = dlc.build(parse(program.replace("FACTOR", "2")), "llvm", num_threads=number)
        np.testing.assert_array_equal(even(A), A + 1)
        assert len(threads) <= number
        exe = dlc.build(parse(program.replace("FACTOR", "1")), "llvm", num_threads=number)
        with pytest.raises(RuntimeFailure, match="ValueError: odd"):
            exe(A)
        np.testing.assert_array_equal(even(A), A + 1)
