"""Executables under stress: many callers, changing numbers of threads, forks, errors, loading and unloading.

The tests take a few seconds by default, and an hour with `DLC_STRESS_SECONDS=3600`.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from dlc_backend_llvm.pool import pool

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and the pool is serial elsewhere")

SECONDS = float(os.environ.get("DLC_STRESS_SECONDS", "3"))
CALLERS = 4
TIMEOUT = 60.0
"""The seconds after which a caller or a child process is considered to hang."""


class Mixed(nn.Module):
    """A model with GEMM, reductions and elementwise ops, for kernels of several rules."""

    def __init__(self, width: int) -> None:
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.softmax(x + self.second(nn.gelu(self.first(self.norm(x)))))


@dataclass(frozen=True)
class Case:
    """An executable with inputs, and the results of a call with one thread."""

    exe: Any
    inputs: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]


def make_case(rows: int, width: int, seed: int) -> Case:
    model = Mixed(width).init(seed=seed)
    module = model.to_module({"x": (rows, width)})
    exe = dlc.compile(module, params=model.state_dict(), num_threads=1)
    inputs = tuple(
        np.random.default_rng(seed + i).standard_normal((rows, width), np.float32) for i in range(3)
    )
    return Case(exe, inputs, tuple(exe(x) for x in inputs))


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [make_case(*shape, seed=i) for i, shape in enumerate([(3, 16), (64, 48), (197, 32), (33, 128)])]


def call_once(case: Case, generator: random.Random) -> None:
    """Make a call of a random kind, and compare its results."""
    index = generator.randrange(len(case.inputs))
    x, expected = case.inputs[index], case.expected[index]
    kind = generator.randrange(6)
    if kind == 0:
        case.exe.num_threads = generator.randrange(1, 6)
    if kind == 1:
        try:
            case.exe(x[:, 1:])
        except UsageError:
            return
        raise AssertionError("a wrong shape was taken")
    if kind == 2:
        out = np.full_like(expected, np.nan)
        bound = case.exe.bind([x], [out])
        for _ in range(3):
            bound()
    else:
        out = case.exe(x)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=1e-6)


def in_child(work: Callable[[], None]) -> int:
    """Run a function in a forked process, and return the exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forks of a process with threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("a forked child is stuck")


def stress(cases: list[Case], seconds: float, seed: int = 0) -> Counter[str]:
    """Run all actions concurrently for some time. Returns the number of times each was done."""
    until = time.monotonic() + seconds
    done: Counter[str] = Counter()
    wrong: list[BaseException] = []

    def caller(number: int) -> None:
        generator, count = random.Random(1000 * seed + number), 0
        try:
            while time.monotonic() < until and not wrong:
                call_once(generator.choice(cases), generator)
                count += 1
                if generator.random() < 0.002:
                    time.sleep(generator.random() * 0.01)  # long enough that workers go to sleep
        except BaseException as error:  # noqa: BLE001 (the waiting thread reports it)
            wrong.append(error)
        done["calls"] += count

    callers = [threading.Thread(target=caller, args=(i,)) for i in range(CALLERS)]
    for each in callers:
        each.start()
    generator = random.Random(seed)
    try:
        while time.monotonic() < until and not wrong:
            kind = generator.randrange(8)
            if kind < 3:
                fork_seed = generator.randrange(1 << 30)

                def call_a_few(fork_seed: int = fork_seed) -> None:
                    own = random.Random(fork_seed)
                    for _ in range(10):
                        call_once(own.choice(cases), own)

                assert in_child(call_a_few) == 0, "a forked child failed"
                done["forks"] += 1
            elif kind == 3:
                pool().set_num_threads(generator.randrange(4))
                done["limits"] += 1
            elif kind == 4:
                fresh = make_case(generator.randrange(1, 20), 16, generator.randrange(1 << 20))
                for _ in range(5):
                    call_once(fresh, generator)
                done["compiles"] += 1
            else:
                call_once(generator.choice(cases), generator)
            time.sleep(generator.random() * 0.02)
    finally:
        for each in callers:
            each.join(TIMEOUT)
        pool().set_num_threads(0)
    assert not any(each.is_alive() for each in callers), "a caller is stuck"
    if wrong:
        raise wrong[0]
    return done


def test_compiling_calling_and_closing_concurrently(
    cases: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    done = stress(cases, SECONDS, seed=int(os.environ.get("DLC_STRESS_SEED", "0")))
    assert done["calls"] > 20
    assert done["forks"] >= 1
    if SECONDS > 10:
        with capsys.disabled():
            print(f"\n{SECONDS:g} s of stress: {dict(done)}")


def test_forks_while_other_threads_compile(cases: list[Case]) -> None:
    """A process that is forked during a compile of another thread can compile and call."""
    running = threading.Event()
    stop = threading.Event()

    def compiling() -> None:
        seed = 0
        while not stop.is_set():
            make_case(2, 16, seed)
            running.set()
            seed += 1

    other = threading.Thread(target=compiling)
    other.start()
    try:
        assert running.wait(TIMEOUT)
        for number in range(3):

            def compile_too(number: int = number) -> None:
                fresh = make_case(4, 16, number)
                call_once(fresh, random.Random(number))
                call_once(cases[1], random.Random(number))

            assert in_child(compile_too) == 0
    finally:
        stop.set()
        other.join(TIMEOUT)
    assert not other.is_alive()


def _in_pool(case: Case) -> bool:
    case.exe.num_threads = 2
    return all(np.allclose(case.exe(x), y, atol=1e-5) for x, y in zip(case.inputs, case.expected))


_shared: list[Case] = []


def _of_worker(number: int) -> bool:
    return _in_pool(_shared[number])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_of_multiprocessing(cases: list[Case]) -> None:
    assert _in_pool(cases[1])
    _shared[:] = cases
    with multiprocessing.get_context("fork").Pool(3) as workers:
        found = workers.map_async(_of_worker, [i % len(cases) for i in range(24)])
        assert all(found.get(timeout=TIMEOUT))
    assert _in_pool(cases[1])


def test_an_idle_process_uses_no_processor(cases: list[Case]) -> None:
    """Idle workers use no CPU time from one second after the last call."""
    case = cases[2]
    case.exe.num_threads = 4
    for _ in range(200):
        case.exe(case.inputs[0])
    time.sleep(1.0)
    before = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - before < 0.01
