"""The simulated device: its own memory, commands in order, failures reported by waits."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import CommandQueue, SimulatedDevice, SourceCodegen
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.target import Description, TargetKind
from dlc_core.testing.networks import mlp

needs_compiler = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


class Codegen(SourceCodegen):
    name, kinds, format = "toy", ("toy",), "toy-source"


class Device(SimulatedDevice):
    name, formats = "toy", ("toy-source",)
    memory_bytes = 1 << 20


class Plugin:
    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        describe = lambda options: Description(vector_bits=128, fma=True, parallel=False)  # noqa: E731
        return [TargetKind("toy", "a toy", "toy", "toy", describe=describe)]

    @hookimpl
    def dlc_codegens(self):
        return [Codegen()]

    @hookimpl
    def dlc_devices(self):
        return [Device()]


@needs_compiler
def test_eight_lines_compute_a_model():
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    with fresh_registry({"toy": Plugin()}):
        exe = dlc.compile(mlp(), "toy")
        expected = dlc.compile(mlp(), "reference")(x)
        np.testing.assert_allclose(exe(x), expected, 1e-5, 1e-6)
        once = exe.device.cycles
        exe(x)
    assert once > 0
    assert exe.device.cycles == 2 * once


@needs_compiler
def test_out_of_memory_is_an_error_and_the_device_still_works():
    x = np.ones((1, 64), np.float32)
    with fresh_registry({"toy": Plugin()}):
        exe = dlc.compile(mlp(), "toy")
        device = exe.device
        first = exe(x)
        taken = device.alloc(device.memory_bytes - 20_000)
        with pytest.raises(RuntimeFailure, match=r"'toy' is out of memory"):
            device.alloc(1 << 16)
        device.free(taken)
        np.testing.assert_array_equal(exe(x), first)


def test_handles_are_opaque_and_checked():
    device = Device()
    handle = device.alloc(8)
    data = np.arange(8, dtype=np.uint8)
    device.write(handle, bytes_of(data))
    out = np.zeros(4, np.uint8)
    device.read(handle, bytes_of(out), 3)
    assert list(out) == [3, 4, 5, 6]
    with pytest.raises(RuntimeFailure, match="outside the 8 bytes"):
        device.read(handle, bytes_of(out), 5)
    with pytest.raises(RuntimeFailure, match="not a memory handle"):
        device.launch(None, [handle + 1], [], 1)
    device.free(handle)
    with pytest.raises(RuntimeFailure, match="not allocated"):
        device.free(handle)


def test_commands_run_in_order_and_events_report_progress():
    queue, gate, seen = CommandQueue("q"), threading.Event(), []
    queue.submit(lambda: gate.wait(10) and seen.append(1))
    half = queue.record()
    queue.submit(lambda: seen.append(2))
    assert not half.done
    assert not half.wait(0.01)
    gate.set()
    assert half.wait(10)
    queue.wait()
    assert seen == [1, 2]


def test_a_failure_belongs_to_the_thread_that_submitted():
    queue = CommandQueue("q")

    def fail() -> None:
        raise ValueError("too hot")

    queue.submit(fail)
    other = threading.Thread(target=queue.wait)
    other.start()
    other.join(10)
    with pytest.raises(RuntimeFailure, match=r"a command of q failed[\s\S]*too hot"):
        queue.wait()
    queue.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_has_an_empty_queue_that_works():
    queue, gate = CommandQueue("q"), threading.Event()
    queue.submit(lambda: gate.wait(10))
    child = os.fork()
    if child == 0:
        done: list[int] = []
        queue.submit(lambda: done.append(1))
        queue.wait()
        os._exit(0 if done == [1] else 1)
    _, status = os.waitpid(child, 0)
    gate.set()
    queue.wait()
    assert os.waitstatus_to_exitcode(status) == 0
