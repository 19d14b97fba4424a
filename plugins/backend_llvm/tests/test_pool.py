"""The thread pool: correct sums under stress, nested calls, several callers, forks, no CPU time when idle."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_llvm.engine import Loaded, compile_ir, engine
from dlc_backend_llvm.linking import find_compiler, link_shared
from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.pool import pool
from dlc_backend_llvm.pool_text import STOP_SYMBOLS, SYMBOLS, pool_ir

from dlc_core.diag import UnsupportedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the pool is serial elsewhere")

BODIES = """
declare i32 @dlc_parallel_for(ptr, ptr, i64, i32)
define void @increment(ptr %c, i64 %b, i64 %e) {
entry:
  br label %loop
loop:
  %i = phi i64 [%b, %entry], [%j, %loop]
  %p = getelementptr i64, ptr %c, i64 %i
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  %j = add i64 %i, 1
  %m = icmp slt i64 %j, %e
  br i1 %m, label %loop, label %end
end:
  ret void
}
define void @nested(ptr %c, i64 %b, i64 %e) {
entry:
  br label %loop
loop:
  %i = phi i64 [%b, %entry], [%j, %loop]
  %offset = mul i64 %i, 50
  %p = getelementptr i64, ptr %c, i64 %offset
  %r = call i32 @dlc_parallel_for(ptr @increment, ptr %p, i64 50, i32 4)
  %j = add i64 %i, 1
  %m = icmp slt i64 %j, %e
  br i1 %m, label %loop, label %end
end:
  ret void
}
define void @ranges(ptr %c, i64 %b, i64 %e) {
  %n = sub i64 %e, %b
  %p = getelementptr i64, ptr %c, i64 %b
  store i64 %n, ptr %p
  ret void
}
define void @empty(ptr %c, i64 %b, i64 %e) {
  ret void
}
define void @repeat(ptr %body, ptr %c, i64 %n, i32 %t, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %r = call i32 @dlc_parallel_for(ptr %body, ptr %c, i64 %n, i32 %t)
  %j = add i64 %i, 1
  %m = icmp slt i64 %j, %times
  br i1 %m, label %loop, label %end
end:
  ret void
}
"""


@pytest.fixture(scope="module")
def bodies() -> Loaded:
    pool()
    return engine().load(compile_ir(BODIES))


def _repeat(bodies: Loaded, body: str, array: np.ndarray, n: int, threads: int, times: int) -> None:
    function = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64
    )(bodies.address("repeat"))
    function(bodies.address(body), array.ctypes.data, n, threads, times)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 1000, 100_003])
@pytest.mark.parametrize("threads", [0, 1, 2, 3, 8])
def test_every_item_runs_once(bodies: Loaded, n: int, threads: int) -> None:
    array = np.zeros(n + 8, np.int64)
    pool().parallel_for(bodies.address("increment"), array.ctypes.data, n, threads)
    assert (array[:n] == 1).all()
    assert not array[n:].any()


def test_ranges_are_at_most_eight_per_thread_and_balanced(bodies: Loaded) -> None:
    array = np.zeros(1000, np.int64)
    pool().parallel_for(bodies.address("ranges"), array.ctypes.data, 1000, 2)
    sizes = array[array > 0]
    assert len(sizes) == 16
    assert sizes.sum() == 1000
    assert sizes.max() - sizes.min() <= 1


def test_threads_run_their_own_ranges_then_steal() -> None:
    taken: dict[int, list[int]] = {}
    both, rest = threading.Barrier(2, timeout=60), threading.Event()
    caller = threading.get_ident()

    def body(_: int, begin: int, end: int) -> None:
        me = threading.get_ident()
        own_items = taken.setdefault(me, [])
        own_items.extend(range(begin, end))
        if len(own_items) == 1:
            both.wait()
            if me != caller:
                rest.wait(60)
        if len(taken[caller]) == 15:
            rest.set()

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(body)
    for _ in range(20):
        taken.clear()
        rest.clear()
        pool().parallel_for(ctypes.cast(function, ctypes.c_void_p).value or 0, 0, 16, 2)
        (worker,) = (items for thread, items in taken.items() if thread != caller)
        assert worker == [8]
        assert taken[caller] == [*range(8), *range(15, 8, -1)]


def test_workers_handle_only_signals_of_their_own_faults() -> None:
    blocked: dict[int, set[signal.Signals]] = {}
    both = threading.Barrier(2, timeout=60)

    def body(_: int, begin: int, end: int) -> None:
        if threading.get_ident() not in blocked:
            blocked[threading.get_ident()] = set(signal.pthread_sigmask(signal.SIG_BLOCK, []))
            both.wait()

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(body)
    pool().parallel_for(ctypes.cast(function, ctypes.c_void_p).value or 0, 0, 16, 2)
    del blocked[threading.get_ident()]
    (worker,) = blocked.values()
    assert worker.isdisjoint({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP})
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM} <= worker


def test_concurrent_callers(bodies: Loaded) -> None:
    """Hundreds of thousands of calls from several threads, with various sizes and numbers of threads."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        array, expected = np.zeros(600, np.int64), np.zeros(600, np.int64)
        for _ in range(1000):
            n, times, threads = int(rng.integers(600)), int(rng.integers(1, 250)), int(rng.integers(6))
            _repeat(bodies, "increment", array, n, threads, times)
            expected[:n] += times
        if not (array == expected).all():
            wrong.append(seed)

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_sleeping_workers_wake(bodies: Loaded) -> None:
    array = np.zeros(64, np.int64)
    for repeat in range(40):
        time.sleep(0.001 * (repeat % 3))
        _repeat(bodies, "increment", array, 64, 1 + repeat % 4, 1)
    assert (array == 40).all()


def test_nested_calls(bodies: Loaded) -> None:
    array = np.zeros(20 * 50, np.int64)
    _repeat(bodies, "nested", array, 20, 3, 200)
    assert (array == 200).all()


def test_idle_workers_use_no_processor(bodies: Loaded) -> None:
    _repeat(bodies, "empty", np.zeros(1), 8, 4, 1000)
    for _ in range(20):  # on a busy machine workers take longer to go to sleep
        before = time.process_time()
        time.sleep(0.2)
        if time.process_time() - before < 0.02:
            return
    raise AssertionError("idle workers keep running")


def test_a_forked_child_makes_its_own_workers(bodies: Loaded) -> None:
    array = np.zeros(5000, np.int64)
    _repeat(bodies, "increment", array, 5000, 3, 10)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = b"raised"
        try:
            _repeat(bodies, "increment", array, 5000, 3, 200)
            tasks = len(os.listdir("/proc/self/task"))  # noqa: PTH208
            status = b"right" if (array == 210).all() and tasks == 3 else f"tasks {tasks}".encode()
        finally:
            os.write(write, status)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"right"
    os.close(read)
    os.close(write)
    _repeat(bodies, "increment", array, 5000, 3, 10)
    assert (array == 20).all()


def test_the_limit_on_threads() -> None:
    automatic = pool().num_threads()
    assert automatic == len(os.sched_getaffinity(0))
    pool().set_num_threads(3)
    assert pool().num_threads() == 3
    pool().set_num_threads(0)
    assert pool().num_threads() == automatic


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "riscv64"])
def test_the_ir_has_the_same_interface_for_each_machine(arch: str) -> None:
    info = read_object(compile_ir(pool_ir(f"{arch}-linux-gnu"), f"{arch}-linux-gnu"))
    assert set(info.defined) == {*SYMBOLS, *STOP_SYMBOLS}
    assert "pthread_create" in info.undefined


def test_other_systems_run_serially_and_unknown_machines_are_refused() -> None:
    info = read_object(compile_ir(pool_ir("arm64-apple-darwin"), "arm64-apple-darwin"))
    assert set(info.defined) == set(SYMBOLS)
    assert not info.undefined
    with pytest.raises(UnsupportedError, match="s390x"):
        pool_ir("s390x-linux-gnu")


def test_an_exported_library_contains_its_own_pool(tmp_path: Path) -> None:
    try:
        find_compiler()
    except UnsupportedError:
        pytest.skip("no C compiler here")
    text = pool_ir(engine()._triple)
    made = link_shared([compile_ir(BODIES), compile_ir(text), compile_ir(text)], tmp_path / "own.so")
    library = ctypes.CDLL(str(made))
    array = np.zeros(500, np.int64)
    for _ in range(100):
        library.dlc_parallel_for(
            library.increment, ctypes.c_void_p(array.ctypes.data), ctypes.c_int64(500), ctypes.c_int32(2)
        )
    assert (array == 100).all()
