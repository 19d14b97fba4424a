"""The card: programs are loaded and launched in order; malformed programs are refused."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_vta.device import VtaDevice
from dlc_backend_vta.isa import Gemm, Load, encode_all
from dlc_backend_vta.plugin import KIND
from dlc_backend_vta.program import compile_function, read_program
from helpers import drawn

from dlc_core.diag import ArtifactError, RuntimeFailure, TargetError
from dlc_core.graph import Function, constant, param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.target import Target

A, B = drawn(np.random.default_rng(0), 20, 30), drawn(np.random.default_rng(1), 30, 17)
EXPECTED = A.astype(np.int32) @ B.astype(np.int32)


@pytest.fixture(scope="module")
def artifact():
    x = param("x", tensor_type(A.shape, "int8"))
    body = std.matmul(x, constant(B), out_dtype="int32")
    return compile_function("product", Function("product", (x,), body), Target(KIND))


def launched(device: VtaDevice, artifact):
    loaded = device.load(artifact)
    handles = [device.alloc(A.nbytes), device.alloc(EXPECTED.nbytes)]
    device.write(handles[0], memoryview(A.tobytes()))
    device.launch(loaded.entry("product"), handles, (), 1)
    event = device.record()
    device.sync()
    assert event.done
    out = bytearray(EXPECTED.nbytes)
    device.read(handles[1], memoryview(out))
    return loaded, handles, np.frombuffer(out, np.int32).reshape(EXPECTED.shape)


def test_a_program_runs_and_takes_cycles(artifact):
    device = VtaDevice()
    loaded, handles, found = launched(device, artifact)
    np.testing.assert_array_equal(found, EXPECTED)
    assert device.cycles == loaded.report.cycles == device.report.cycles > 0
    assert abs(sum(layer["predicted"] for layer in artifact.metadata["layers"]) / device.cycles - 1) < 0.05
    device.launch(loaded.entry("product"), handles, (), 1)
    device.sync()
    assert device.cycles == 2 * loaded.report.cycles
    for handle in handles:
        device.free(handle)
    loaded.close()
    assert device.memory_used == 0


def test_requests_take_effect_in_order(artifact):
    """Freeing memory right after a launch, and allocating it again, does not change the results."""
    device = VtaDevice()
    entry = device.load(artifact).entry("product")
    given, result = device.alloc(A.nbytes), device.alloc(EXPECTED.nbytes)
    device.write(given, memoryview(A.tobytes()))
    events = []
    for _ in range(3):
        device.launch(entry, [given, result], (), 1)
        events.append(device.record())
    device.free(given)
    again = device.alloc(A.nbytes)
    device.write(again, memoryview(bytes(A.nbytes)))
    assert events[-1].wait(60)
    assert all(event.done for event in events)
    out = bytearray(EXPECTED.nbytes)
    device.read(result, memoryview(out))
    np.testing.assert_array_equal(np.frombuffer(out, np.int32).reshape(EXPECTED.shape), EXPECTED)
    assert device.launches == 3


def test_memory_of_unreferenced_programs_is_freed(artifact):
    device = VtaDevice()
    loaded, handles, _ = launched(device, artifact)
    device.free_all(handles)
    assert device.memory_used > 0
    del loaded
    gc.collect()
    assert device.memory_used == 0


def test_the_listing_is_a_source(artifact):
    assert "gemm" in artifact.sources["vta"]


def test_the_same_graph_gives_the_same_bytes(artifact):
    x = param("x", tensor_type(A.shape, "int8"))
    function = Function("product", (x,), std.matmul(x, constant(B), out_dtype="int32"))
    assert compile_function("product", function, Target(KIND)).code == artifact.code


def test_options_configure_the_machine(artifact):
    small = Target(KIND).with_options(block_in=8, block_out=8, batch=2, bus_bytes=4)
    x = param("x", tensor_type(A.shape, "int8"))
    function = Function("product", (x,), std.matmul(x, constant(B), out_dtype="int32"))
    other = compile_function("product", function, small)
    device = VtaDevice()
    _, _, found = launched(device, other)
    np.testing.assert_array_equal(found, EXPECTED)
    assert device.cycles > 2 * read_cycles(artifact)
    with pytest.raises(TargetError, match="-block-in=0"):
        small.with_options(block_in=0).describe()


def read_cycles(artifact) -> int:
    return VtaDevice().load(artifact).report.cycles


@pytest.mark.parametrize(
    "change",
    [
        lambda a: replace(a, code=a.code[:-1]),
        lambda a: replace(a, code=b""),
        lambda a: replace(a, code=a.code[:-64] + bytes(64)),
        lambda a: replace(a, metadata={}),
        lambda a: replace(a, metadata={**a.metadata, "config": {"batch": 0}}),
        lambda a: replace(a, metadata={**a.metadata, "scratch": -1}),
    ],
)
def test_malformed_programs_are_refused(artifact, change):
    with pytest.raises(ArtifactError):
        read_program(change(artifact))


def test_accesses_out_of_bounds_fail_and_the_card_still_works(artifact):
    wrong = encode_all([Load(base=0, offset=1 << 20, b=16, bs=1)])
    size = artifact.metadata["constants"]
    device = VtaDevice()
    with pytest.raises(RuntimeFailure, match="outside"):
        launched(device, replace(artifact, code=artifact.code[:size] + wrong))
    _, _, found = launched(device, artifact)
    np.testing.assert_array_equal(found, EXPECTED)


def test_a_program_with_a_deadlock_is_not_loaded(artifact):
    size = artifact.metadata["constants"]
    stuck = encode_all([Gemm(pop_prev=True)])
    with pytest.raises(RuntimeFailure, match="wait for each other"):
        VtaDevice().load(replace(artifact, code=artifact.code[:size] + stuck))


def test_memory_is_limited_and_buffers_have_their_size(artifact):
    device = VtaDevice(memory_bytes=1 << 16)
    with pytest.raises(RuntimeFailure, match="out of memory"):
        device.alloc(1 << 17)
    loaded = device.load(artifact)
    small = device.alloc(8)
    with pytest.raises(RuntimeFailure, match="a buffer of 8 bytes"):
        device.launch(loaded.entry("product"), [small, small], (), 1)
    with pytest.raises(RuntimeFailure, match="is not a memory handle of device 'vta'"):
        device.launch(loaded.entry("product"), [99, small], (), 1)
    with pytest.raises(ArtifactError, match="no entry"):
        loaded.entry("other")
