"""Errors name the cause and the remedy, and are raised before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_opencl import platforms, programs
from dlc_backend_opencl.allocator import Separate, Shared, is_shared
from dlc_backend_opencl.device import OpenclDevice

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import ArtifactError, CodegenError, RuntimeFailure, TargetError, UnsupportedError
from dlc_core.driver import find_target
from dlc_core.script import parse

NO_PYOPENCL = """
import sys
sys.modules["pyopencl"] = None
import numpy as np
import dlc_core as dlc
from dlc_core.testing.networks import mlp
exe = dlc.compile(mlp(), "opencl", cache=False)
assert "kernel void" in exe.source("cl")
try:
    exe(np.zeros((1, 64), np.float32))
except dlc.DlcError as error:
    print(error)
from dlc_core.driver import find_target
print(find_target("opencl").kind.problem())
"""


def test_without_pyopencl_models_compile_and_do_not_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_PYOPENCL], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    what, *_, problem = done.stdout.strip().splitlines()
    assert what == "pyopencl, which accesses OpenCL devices, is not installed"
    assert problem.startswith(what)
    assert 'pip install "dlc-backend-opencl[device]"' in problem


def test_without_a_device_the_error_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "devices", list)
    problem = platforms.problem()
    assert problem is not None
    assert problem.startswith("there is no OpenCL device on this machine: pip install")
    with pytest.raises(UnsupportedError, match="no OpenCL device"):
        find_target("opencl -device=0").describe()


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize(
    "text", ["opencl -device=99", "opencl -platform=nonsense", "opencl -device=nonsense"]
)
def test_missing_devices_are_errors(text: str) -> None:
    with pytest.raises(TargetError, match="no OpenCL device matches -") as caught:
        find_target(text).describe()
    assert "-platform=0 -device=0: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-subgroup=12", "not a power of two"),
        ("-vector-bits=96", "not a power of two"),
        ("-vector-bits=16", "too narrow for a vector"),
        ("-group-threads=-1", "must not be negative"),
    ],
)
def test_invalid_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        find_target(f"opencl {text}").describe()


COPIED = """
@T.prim_func
def main(A: T.Buffer((2, {n}), "float32"), B: T.Buffer((2, {n}), "float32")):
    for g in T.thread_binding(2, thread="block.x"):
        S = T.alloc_buffer(({shared},), "float32", scope="shared")
        for t in T.thread_binding({n}, thread="thread.x"):
            S[t] = A[g, t]
            T.evaluate(T.barrier())
            B[g, t] = S[{n} - 1 - t]
"""


@pytest.mark.usefixtures("opencl")
def test_launches_beyond_the_device_limits_are_refused() -> None:
    x = np.ones((2, 8), np.float32)
    made = dlc.build(parse(COPIED.format(n=8, shared=8)), "opencl")
    np.testing.assert_array_equal(made(x), x)
    text = COPIED.format(n=8, shared=1 << 26)
    exe = dlc.build(parse(text), f"opencl -shared-bytes={1 << 30}")
    with pytest.raises((RuntimeFailure, CodegenError), match=r"cannot launch|refuses") as caught:
        exe(x)
    if isinstance(caught.value, RuntimeFailure):
        assert "268435456 bytes of shared memory of a group" in str(caught.value)
    most = exe.device.session.device.max_work_group_size
    wide = dlc.build(parse(COPIED.format(n=2 * most, shared=2 * most)), f"opencl -group-threads={2 * most}")
    with pytest.raises(RuntimeFailure, match=f"{2 * most} threads of a group along axis x, {most} at most"):
        wide(np.ones((2, 2 * most), np.float32))


SLOW = """
kernel void slow(global float *x)
{
    for (int i = 0; i < 1000; ++i)
        ((volatile global float *)x)[get_global_id(0)] += 1;
}
"""


@pytest.fixture
def device() -> Any:
    if platforms.problem():
        pytest.skip(str(platforms.problem()))
    return OpenclDevice()


def test_out_of_memory_names_the_largest_buffers(device: Any) -> None:
    handles = [device.alloc(size) for size in (100, 3 << 20, 2 << 20, 5 << 10)]
    with pytest.raises(RuntimeFailure) as caught:
        device.alloc(1 << 50)
    text = str(caught.value)
    assert "is out of memory: cannot allocate a buffer of 1.049e+06 GiB" in text
    assert "the largest buffers in use: 3 MiB, 2 MiB, 5 KiB and 1 smaller" in text
    for handle in handles:
        device.free(handle)
    with pytest.raises(RuntimeFailure, match="not allocated"):
        device.free(handles[0])
    with pytest.raises(RuntimeFailure, match="is not a memory handle of"):
        device.session.memory.get(handles[0])


def test_copies_wait_for_launches(device: Any) -> None:
    """Copies of shared blocks and of separate blocks."""
    session = device.session
    data = np.arange(1 << 17, dtype=np.float32)
    kinds = [Separate, Shared] if is_shared(session.cl, session.device) else [Separate]
    for kind in kinds:
        block = kind(session.cl, session.context, data.nbytes)
        block.write(session.queue, data.view(np.uint8), 0)
        program = session.cl.Program(session.context, SLOW).build()
        kernel = program.slow
        kernel.set_arg(0, block.argument)
        session.cl.enqueue_nd_range_kernel(session.queue, kernel, (data.size,), (64,))
        part = np.empty(16, np.float32)
        block.read(session.queue, part.view(np.uint8), 4 * (data.size - 16))
        np.testing.assert_array_equal(part, data[-16:] + 1000)
        session.cl.enqueue_nd_range_kernel(session.queue, kernel, (data.size,), (64,))
        block.write(session.queue, np.zeros(64, np.uint8), 4 * (data.size - 16))
        block.read(session.queue, part.view(np.uint8), 4 * (data.size - 16))
        np.testing.assert_array_equal(part, 0)
        block.free(session.queue)


def test_devices_without_shared_memory(device: Any) -> None:
    cl = device.session.cl

    class Older:
        host_unified_memory = True

        @property
        def svm_capabilities(self) -> int:
            raise cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")

    class FakeDevice:
        host_unified_memory = False
        svm_capabilities = cl.device_svm_capabilities.FINE_GRAIN_BUFFER

    assert not is_shared(cl, Older())
    assert not is_shared(cl, FakeDevice())


def test_buffers_smaller_than_their_accesses_are_refused(device: Any) -> None:
    artifact = dlc.build(parse(COPIED.format(n=8, shared=8)), "opencl").artifact
    entry = device.load(artifact).entry("main")
    handles = [device.alloc(16) for _ in range(4)]
    with pytest.raises(RuntimeFailure, match="would access memory outside of its buffers"):
        device.launch(entry, handles, (), 1)
    with pytest.raises(ArtifactError, match="no entry point other"):
        device.load(artifact).entry("other")


def test_compile_errors_show_the_text(device: Any) -> None:
    artifact = dlc.build(parse(COPIED.format(n=8, shared=8)), "opencl").artifact
    broken = replace(artifact, code=artifact.code + b"\nkernel void other( { }\n")
    with pytest.raises(CodegenError, match="refuses the kernels") as caught:
        device.load(broken)
    assert len(caught.value.details) > 1, "what the compiler says"
    with_extension = replace(artifact, metadata={**artifact.metadata, "extensions": ["cl_acme_none"]})
    with pytest.raises(UnsupportedError, match="has no cl_acme_none"):
        device.load(with_extension)
    without_metadata = replace(artifact, metadata={})
    with pytest.raises(ArtifactError, match="malformed"):
        device.load(without_metadata)


def test_binaries_are_cached(device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of binaries for drivers without their own cache."""
    artifact = dlc.build(parse(COPIED.format(n=8, shared=8)), "opencl").artifact
    monkeypatch.setattr(programs, "_keeps_itself", lambda device: False)
    with config.override(cache_dir=tmp_path):
        device.load(artifact)
        (cached,) = (tmp_path / "opencl").iterdir()
        before = cached.stat().st_mtime_ns
        device.load(artifact)
        assert cached.stat().st_mtime_ns == before
        cached.write_bytes(b"damaged")
        device.load(artifact)
        assert cached.read_bytes() != b"damaged"


def test_events(device: Any) -> None:
    handle = device.alloc(64)
    device.write(handle, memoryview(bytes(64)))
    event = device.record()
    assert event.wait()
    assert event.done
    assert event.wait(0.0)
    device.sync()
    device.free(handle)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_device_cannot_be_used_after_a_fork(device: Any) -> None:
    device._opened = (device.session, -1)
    with pytest.raises(RuntimeFailure, match="before this process was forked"):
        device.alloc(1)
