"""The device with a simulated driver: the calls of the driver, their order and their memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dlc_backend_cuda.device import CudaDevice, image_for
from dlc_backend_cuda.driver import Memory
from dlc_backend_cuda.graphs import Graphs

import dlc_core as dlc
from dlc_core.backend import read_launches
from dlc_core.diag import ArtifactError, RuntimeFailure, UnsupportedError
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.runtime.call.arrays import NDArray
from dlc_core.target import Artifact
from dlc_core.testing.cases import module_of
from dlc_core.testing.networks import mlp

TARGET = "cuda -arch=sm_90 -code=text"


@pytest.fixture
def exe(driver: Any, device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> dlc.Executable:
    """A network on a device whose text needs no compiler."""
    monkeypatch.setattr("dlc_backend_cuda.device.nvrtc.compile_kernels", lambda text, arch: Made(text))
    return ready(driver, mlp())


class Made:
    """A compiled text."""

    def __init__(self, text: str) -> None:
        self.cubin = text.encode()


def ready(driver: Any, module: Any) -> dlc.Executable:
    exe = dlc.compile(module, TARGET, cache=False)
    driver.takes(exe.artifact, read_launches(exe.artifact.metadata["launches"])[0])
    return exe


X = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)


def test_a_network(exe: dlc.Executable, driver: Any) -> None:
    expected = dlc.compile(mlp(), "reference")(X)
    np.testing.assert_allclose(exe(X), expected, 1e-5, 1e-6)
    launches = driver.calls.count("launch")
    assert launches > 2
    np.testing.assert_allclose(exe(X), expected, 1e-5, 1e-6)
    assert driver.calls.count("launch") == 2 * launches
    assert driver.calls.count("module") == 1


@pytest.mark.parametrize("graphs", [True, False])
def test_bound_calls_are_one_graph(exe: dlc.Executable, driver: Any, graphs: bool) -> None:
    driver.has_graphs = graphs
    expected = exe(X)
    output = np.zeros_like(expected)
    call = exe.bind([X], [output])
    before = driver.calls.count("launch")
    for _ in range(3):
        call()
    np.testing.assert_array_equal(output, expected)
    assert driver.calls.count("graph") == (3 if graphs else 0)
    assert (driver.calls.count("launch") > before) is not graphs


def test_sizes_of_calls(driver: Any, exe: dlc.Executable) -> None:
    n = Var("n")
    x = param("x", tensor_type((n, 16)))
    exe = ready(driver, module_of(std.softmax(x), [x]))
    for size in (1, 7, 300):
        given = np.random.default_rng(size).standard_normal((size, 16)).astype(np.float32)
        expected = np.exp(given) / np.exp(given).sum(-1, keepdims=True)
        np.testing.assert_allclose(exe(given), expected, 1e-5, 1e-6)


def test_arrays_stay_on_the_device(exe: dlc.Executable) -> None:
    there = NDArray.from_host(exe.device, X)
    found = exe(there)
    assert found.device is exe.device
    np.testing.assert_array_equal(found.numpy(), exe(X))
    assert found.__dlpack_device__() == (2, 0)


def test_kernels_are_measured(exe: dlc.Executable) -> None:
    report = exe.profile([X], runs=2, warmup=0)
    assert len(report) == len(exe.explain().kernels)
    for row in report:
        assert row.milliseconds > 0
        assert row.roofline is not None
        assert row.attained == row.roofline / row.milliseconds
        assert row.bound in ("compute", "cache")
    assert "roofline" in str(report)


@pytest.mark.parametrize(("dtype", "products"), [("float16", 2048), ("float32", 128)])
def test_the_roofline_uses_the_rate_of_matrix_units(dtype: str, products: int) -> None:
    size = 4096
    given = [param(name, tensor_type((size, size), dtype)) for name in "xy"]
    (kernel,) = dlc.compile(module_of(std.matmul(*given), given), TARGET, cache=False).explain().kernels
    assert kernel.estimate is not None
    assert kernel.estimate.bound == "compute"
    assert kernel.estimate.limit == pytest.approx(size**3 / (132 * products * 1.98e9), rel=0.01)


def test_limits_are_checked_before_anything_runs(exe: dlc.Executable, driver: Any) -> None:
    driver.threads = 8
    with pytest.raises(RuntimeFailure, match="threads of a group, 8 at most are possible"):
        exe(X)
    assert "launch" not in driver.calls


def test_memory(driver: Any, device: CudaDevice) -> None:
    handles = [device.alloc(size) for size in (100, 3 << 20)]
    assert all(handle % 256 == 0 for handle in handles)
    data = np.arange(100, dtype=np.uint8)
    device.write(handles[0], memoryview(data)[10:], 10)
    out = np.zeros(90, np.uint8)
    device.read(handles[0], memoryview(out), 10)
    np.testing.assert_array_equal(out, data[10:])
    for size in (1 << 30, (1 << 25) + 1):
        with pytest.raises(RuntimeFailure, match="a card is out of memory") as caught:
            device.alloc(size)
        assert "the largest buffers in use: 3 MiB, 100 bytes" in str(caught.value)
    with pytest.raises(RuntimeFailure, match="outside the 100 bytes"):
        device.write(handles[0], memoryview(data), 1)
    for handle in handles:
        device.free(handle)
    with pytest.raises(RuntimeFailure, match="not allocated"):
        device.free(handles[0])
    assert not driver.pieces
    event = device.record()
    assert event.done
    assert event.wait(1.0)
    device._opened = (device.session, -1)
    with pytest.raises(RuntimeFailure, match="before this process was forked"):
        device.alloc(1)


def test_buffers_smaller_than_their_accesses_are_refused(
    exe: dlc.Executable, driver: Any, device: CudaDevice
) -> None:
    program = device.load(exe.artifact)
    entry = program.entry("main")
    handles = [device.alloc(16) for _ in range(entry.launches.buffers)]
    with pytest.raises(RuntimeFailure, match="would access memory outside of its buffers"):
        device.launch(entry, handles, (), 1)
    with pytest.raises(ArtifactError, match="no entry point other"):
        program.entry("other")
    driver.text = ""
    with pytest.raises(ArtifactError, match="has no kernel fused_matmul_add_relu_kernel"):
        device.load(exe.artifact)


def test_the_device_option_selects_a_device(device: CudaDevice) -> None:
    first, second = (dlc.compile(mlp(), f"{TARGET} -device={i}", cache=False) for i in (0, 1))
    assert first.device is device
    assert second.device is not device
    assert second.device.dlpack_device == (2, 1)


BINARY = Artifact("cuda-binary", b"machine.ptx", "", metadata={"arch": "sm_80", "cubin": 7})


def test_machine_code_for_its_generation_and_text_for_later_ones(driver: Any) -> None:
    for arch, image in (("sm_80", b"machine"), ("sm_86", b"machine"), ("sm_90", b".ptx\0")):
        driver.arch = arch
        assert image_for(driver, BINARY) == image
    driver.arch = "sm_75"
    with pytest.raises(UnsupportedError, match="the code is for sm_80, and a card is sm_75"):
        image_for(driver, BINARY)
    for metadata in ({}, {"arch": 80}, {"arch": "sm_80", "cubin": 99}, {"arch": "x"}):
        with pytest.raises(ArtifactError):
            image_for(driver, replace(BINARY, metadata=metadata))
    assert image_for(driver, Artifact("ptx", b"text", "", metadata={"arch": "sm_70"})) == b"text\0"


def test_code_for_one_architecture_alone(driver: Any) -> None:
    artifact = replace(BINARY, metadata={"arch": "sm_90a", "cubin": 7})
    driver.arch = "sm_90"
    assert image_for(driver, artifact) == b"machine"
    driver.arch = "sm_100"
    with pytest.raises(UnsupportedError, match="the code is for sm_90a alone, and a card is sm_100"):
        image_for(driver, artifact)


def test_groups_may_use_the_larger_shared_memory(
    driver: Any, device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that need more shared memory than static arrays may have request dynamic shared memory."""
    for_arch: list[str] = []
    made = "dlc_backend_cuda.device.nvrtc.compile_kernels"
    monkeypatch.setattr(made, lambda text, arch: for_arch.append(arch) or Made(text))
    x, y = (param(name, tensor_type((256, 256), "float16")) for name in "xy")
    module = module_of(std.matmul(x, y), [x, y])
    exe = dlc.compile(module, "cuda -code=text -arch=sm_90a -units=1", cache=False)
    kernels, _ = read_launches(exe.artifact.metadata["launches"])
    driver.takes(exe.artifact, kernels)
    given = [np.random.default_rng(i).integers(-2, 3, (256, 256)).astype(np.float16) for i in (0, 1)]
    submitted: list[Any] = []
    submit = driver.submit
    monkeypatch.setattr(driver, "submit", lambda starts: (submitted.extend(starts), submit(starts)))
    np.testing.assert_array_equal(exe(*given), given[0] @ given[1])
    assert [start.shared for start in submitted] == [kernel.shared_bytes for kernel in kernels]
    assert submitted[0].shared > 48 << 10
    assert for_arch == ["sm_90a"]


class Library:
    """Functions of a driver that record their names."""

    def __init__(self, failing: str = "") -> None:
        self.called: list[str] = []
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        def function(*args: Any) -> int:
            self.called.append(name)
            return 700 if name == self._failing else 0

        return function


def test_graphs() -> None:
    library = Library()
    done: list[str] = []
    graph = Graphs(library).captured(16, lambda: done.append("submitted"))
    graph.launch(16)
    del graph
    assert done == ["submitted"]
    assert library.called == [
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
        "cuGraphLaunch",
        "cuGraphExecDestroy",
    ]
    with pytest.raises(RuntimeFailure, match="cuGraphLaunch returned the error 700"):
        Graphs(Library("cuGraphLaunch")).captured(0, list).launch(0)


def test_a_failed_launch_ends_the_capture() -> None:
    library = Library()

    def submit() -> None:
        raise RuntimeFailure("no")

    with pytest.raises(RuntimeFailure, match="no"):
        Graphs(library).captured(0, submit)
    assert library.called[-1] == "cuStreamEndCapture"


NO_PYCUDA = """
import sys
sys.modules["pycuda"] = sys.modules["pycuda.driver"] = None
import numpy as np
import dlc_core as dlc
from dlc_core.testing.networks import mlp
exe = dlc.compile(mlp(), "cuda -code=text", cache=False)
assert "__global__ void" in exe.source("cu")
try:
    exe(np.zeros((1, 64), np.float32))
except dlc.DlcError as error:
    print(error)
from dlc_core.driver import find_target
print(find_target("cuda").kind.problem())
"""


def test_without_pycuda_models_compile_and_do_not_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_PYCUDA], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    what, *_, problem = done.stdout.strip().splitlines()
    assert what == "pycuda, which accesses CUDA devices, is not installed or finds no driver"
    assert problem.startswith(what)
    assert 'pip install "dlc-backend-cuda[device]"' in problem
    assert "cuda_simulated" in problem


def test_a_device_is_opened_on_first_use() -> None:
    opened: list[int] = []
    device = CudaDevice(3, opened.append)  # type: ignore[arg-type]
    device.sync()
    assert not opened


class Allocation:
    """Memory that can be freed only while a context is current, as pycuda's."""

    def __init__(self) -> None:
        self.current = self.freed = 0

    def push(self) -> None:
        self.current += 1

    def pop(self) -> None:
        self.current -= 1

    def __int__(self) -> int:
        return 4096

    def free(self) -> None:
        assert self.current == 1
        self.freed += 1


@pytest.mark.parametrize("collected", [False, True])
def test_memory_is_freed_once_while_the_context_is_current(collected: bool) -> None:
    allocation = Allocation()
    memory = Memory(allocation, allocation.push, allocation.pop)
    assert int(memory) == 4096
    if not collected:
        memory.free()
        memory.free()
    del memory
    assert (allocation.freed, allocation.current) == (1, 0)
