"""Cancellation of native calls: by tokens, by timeouts, by Ctrl-C; and what it leaves behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.unit import Unit
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.pool_text import has_stops

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.diag import CancelledError, LimitError
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

pytestmark = pytest.mark.skipif(not has_stops(host_cpu().triple), reason="calls cannot be stopped here")

SOON = 2.0
"""Seconds within which a call ends on a busy machine; it takes less than 0.05 on an idle one."""
ENDLESS = 1 << 40


def built(rows: int, threads: int) -> Any:
    """A sum of 2**40 terms for each row."""
    x, k = te.placeholder((rows,), name="x"), te.reduce_axis(ENDLESS, "k")
    total = te.compute((rows,), lambda i: te.sum(x[i] * (k % 8).astype("float32"), axis=k), "total")
    return dlc.build([x, total], f"llvm -num-threads={threads}", num_threads=threads)


def later(action: Callable[[], object], seconds: float = 0.1) -> list[float]:
    """Run an action in another thread; the list gets its time."""
    at: list[float] = []

    def run() -> None:
        time.sleep(seconds)
        at.append(time.perf_counter())
        action()

    threading.Thread(target=run, daemon=True).start()
    return at


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (64, 1), (64, 2)])
def test_a_token_stops_a_call(rows: int, threads: int) -> None:
    exe, token = built(rows, threads), dlc.CancelToken()
    at = later(token.cancel)
    with pytest.raises(CancelledError, match="token was cancelled"):
        exe(np.ones(rows, np.float32), cancel=token)
    assert time.perf_counter() - at[0] < SOON


def test_a_timeout_stops_a_call_and_says_so() -> None:
    begin = time.perf_counter()
    with pytest.raises(CancelledError, match=r"timeout is 0\.1 seconds"):
        built(1, 1).run({"x": np.ones(1, np.float32)}, cancel=dlc.CancelToken(timeout=0.1))
    assert 0.1 <= time.perf_counter() - begin < SOON + 0.1


def test_a_block_stops_bound_calls_of_its_thread_only() -> None:
    x = np.ones(1, np.float32)
    bound, token = built(1, 1).bind([x]), dlc.CancelToken()
    later(token.cancel)
    with token, pytest.raises(CancelledError):
        bound()
    y, i = te.placeholder((8,), name="y"), te.compute((8,), lambda i: i.astype("float32"), "i")
    twice = te.compute((8,), lambda j: y[j] + i[j], "twice")
    short = dlc.build([y, twice], "llvm")
    with token, pytest.raises(CancelledError):
        short(np.ones(8, np.float32))
    np.testing.assert_array_equal(short(np.ones(8, np.float32)), np.arange(8) + 1)


def signalled(exe: Any, x: Any) -> float:
    """Call, with Ctrl-C meanwhile; the seconds from there to the exception."""
    at = later(lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        exe(x)
    return time.perf_counter() - at[0]


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Python's handler of SIGINT. Processes that pytest starts ignore the signal."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are of the main thread"
)
@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupts_stop_a_call_also_after_another_handler(threads: int) -> None:
    exe, x = built(64, threads), np.ones(64, np.float32)
    assert signalled(exe, x) < SOON
    seen: list[int] = []
    token = dlc.CancelToken()

    def handler(number: int, frame: object) -> None:
        seen.append(number)
        later(token.cancel)

    previous = signal.signal(signal.SIGINT, handler)
    try:
        later(lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(
            CancelledError
        ):  # the handler returns, so the call goes on until the token ends it
            exe(x, cancel=token)
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, previous)
    assert signalled(exe, x) < SOON  # Python has replaced the handler meanwhile


def test_calls_after_a_cancelled_one_are_right() -> None:
    n = 512
    a, b = (te.placeholder((n, n), name=name) for name in "ab")
    k = te.reduce_axis(n, "k")
    product = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "product")
    exe = dlc.build([a, b, product], "llvm", num_threads=2)
    x = np.ones((n, n), np.float32)
    for _ in range(20):
        token = dlc.CancelToken()
        later(token.cancel, 0.001)
        with suppress(CancelledError):
            exe(x, x, cancel=token)
        assert (exe(x, x) == n).all()


def test_a_loop_of_2_to_the_62_steps_stops() -> None:
    state, i = param("s", tensor_type((4,), "float32")), param("i", tensor_type((), "int64"))
    limit = constant(np.int64(1 << 62))
    cond = Function("cond", (i, state), std.less(i, limit))
    body = Function(
        "body", (i, state), make_tuple([std.add(i, constant(np.int64(1))), std.mul(state, state)])
    )
    x = param("x", tensor_type((4,), "float32"))
    made = std.while_(constant(np.int64(0)), x, cond=cond, body=body)
    exe = dlc.compile(IRModule.of(Function("main", (x,), make_tuple([dlc.graph.get_item(made, 1)]))), "llvm")
    with pytest.raises(CancelledError):
        exe(np.ones(4, np.float32), cancel=dlc.CancelToken(timeout=0.1))


def text_of(shape: tuple[int, ...], cpu: HostCpu) -> str:
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda *i: x[i] + 1.0, "y")
    unit = Unit(cpu)
    (func,) = dlc.lower([x, y], target="llvm -num-threads=1").functions.values()
    emit_function(unit, func)
    return unit.text()


def test_short_kernels_have_no_stop_points() -> None:
    assert "dlc_stop" not in text_of((64,), host_cpu())
    assert "dlc_stop" in text_of((1 << 28,), host_cpu())


def chain(length: int) -> IRModule:
    x = made = param("x", tensor_type((4, 4), "float32"))
    for i in range(length):
        made = std.matmul(made, constant(np.full((4, 4), i, np.float32)))
    return IRModule.of(Function("main", (x,), made))


def test_a_compile_stops_soon() -> None:
    token = dlc.CancelToken()
    at = later(token.cancel, 0.5)
    with pytest.raises(CancelledError):
        dlc.compile(chain(5_000), "llvm", cancel=token, cache=False)
    assert time.perf_counter() - at[0] < SOON


def test_a_compile_has_a_time_limit() -> None:
    model, begin = chain(5_000), time.perf_counter()
    with config.override(max_seconds=0.3), pytest.raises(LimitError, match="DLC_MAX_SECONDS"):
        dlc.compile(model, "llvm", cache=False)
    assert time.perf_counter() - begin < SOON
    with config.override(max_seconds=600.0):
        dlc.compile(chain(2), "llvm", cache=False)
