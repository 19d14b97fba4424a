"""Level `hostile`: a failure is a clear error, does not affect later calls, and leaks no memory."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dlc_core import driver
from dlc_core.diag import ArtifactError, DlcError, RuntimeFailure
from dlc_core.runtime.device import shares_memory
from dlc_core.runtime.executable import Executable
from dlc_core.target import Target
from dlc_core.testing.faults import EVERY, Faulty
from dlc_core.testing.levels.base import Level, RanOn, case_of
from dlc_core.testing.levels.layers import Subject, call, in_threads, model_for, same, subject_of
from dlc_core.testing.parts import executable_on

FAULT = "the bus is gone"
ALL_MEMORY = 1 << 50
"""More bytes than any device has."""


class HostileLevel(Level):
    """Tests with a wrapper of the device that fails on request."""

    level: ClassVar[str] = "hostile"
    by_test: ClassVar[bool] = True

    @pytest.fixture
    def subject(self, target: Target, ran_on: RanOn, request: pytest.FixtureRequest) -> Subject:
        """The model of these tests, its executable, and its part on the device."""
        ran_on(model_for(target)[1])  # also if the target takes nothing, and the test is skipped
        found = subject_of(target, case_of(HostileLevel, request.node.originalname))
        ran_on(found.where)
        return found

    @pytest.fixture
    def compiled(self, subject: Subject) -> Executable:
        return subject.exe

    @pytest.fixture
    def faulty(self, subject: Subject) -> Iterator[Faulty]:
        """The target's device in a wrapper that fails on request. At the end of the test all memory must be
        freed.
        """
        device = Faulty(subject.device)
        yield device
        gc.collect()
        assert not device.live, f"{len(device.live)} blocks of memory were never freed"

    # A device that fails

    def test_loading_fails(self, compiled: Executable, faulty: Faulty) -> None:
        exe = executable_on(compiled, faulty)
        with faulty.failing("load", OSError(FAULT)), pytest.raises(RuntimeFailure) as caught:
            call(exe)
        check_error(caught.value, faulty)
        assert same(call(exe), call(compiled))

    def test_allocating_fails(self, compiled: Executable, faulty: Faulty) -> None:
        check_fault(compiled, faulty, "alloc")

    def test_writing_fails(self, compiled: Executable, faulty: Faulty) -> None:
        check_fault(compiled, faulty, "write")

    def test_launching_fails(self, compiled: Executable, faulty: Faulty) -> None:
        check_fault(compiled, faulty, "launch")

    def test_waiting_fails(self, compiled: Executable, faulty: Faulty) -> None:
        check_fault(compiled, faulty, "sync")

    def test_reading_fails(self, compiled: Executable, faulty: Faulty) -> None:
        check_fault(compiled, faulty, "read")

    def test_the_device_is_lost(self, compiled: Executable, faulty: Faulty) -> None:
        """All methods fail from some point on. When the device works again, code that is loaded
        again works.
        """
        exe = executable_on(compiled, faulty)
        expected = call(exe)
        for after in (0, 1, 2):
            with faulty.failing(EVERY, OSError(FAULT), after), pytest.raises(RuntimeFailure) as caught:
                _call_often(exe)  # one call may have fewer than `after` steps
            check_error(caught.value, faulty)
            with faulty.failing(EVERY, OSError(FAULT)), pytest.raises(RuntimeFailure):
                call(executable_on(compiled, faulty))
        assert same(call(executable_on(compiled, faulty)), expected)

    # Interrupts

    def test_calls_after_an_interrupted_step_are_right(self, compiled: Executable, faulty: Faulty) -> None:
        exe = executable_on(compiled, faulty)
        expected = call(exe)
        for method in ("alloc", "write", "launch", "sync", "read"):
            if not _steps(exe, faulty, method):
                continue
            with faulty.failing(method, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
                call(exe)
            assert same(call(exe), expected)

    def test_calls_after_an_interrupt_are_right(self, compiled: Executable) -> None:
        """After an interrupt (Ctrl-C) during calls, later calls are correct."""
        if threading.current_thread() is not threading.main_thread():
            pytest.skip("only the main thread can be interrupted")
        expected = call(compiled)
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
        try:
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                _call_often(compiled, 10.0)
        finally:
            timer.join()
            signal.signal(signal.SIGINT, handler)
        assert same(call(compiled), expected)

    # Memory

    def test_allocating_too_much_memory(self, compiled: Executable, subject: Subject) -> None:
        expected = call(compiled)
        with pytest.raises(RuntimeFailure):
            subject.device.alloc(ALL_MEMORY)
        assert same(call(compiled), expected)

    def test_all_memory_is_in_use(self, compiled: Executable, faulty: Faulty) -> None:
        if shares_memory(faulty):
            pytest.skip("the memory of this device is that of the machine")
        exe = executable_on(compiled, faulty)
        expected = call(exe)
        exe.release()
        handles: list[int] = []
        try:
            fill(faulty, handles)
            with pytest.raises(RuntimeFailure):
                call(exe)
        finally:
            for handle in handles:
                faulty.free(handle)
        assert same(call(exe), expected)

    def test_memory_is_not_used_after_it_is_freed(self, subject: Subject) -> None:
        device = subject.device
        handle = device.alloc(64)
        device.free(handle)
        with pytest.raises(DlcError):
            device.write(handle, memoryview(bytes(8)))
        with pytest.raises(DlcError):
            device.read(handle, memoryview(bytearray(8)))
        with pytest.raises(DlcError):
            device.free(handle)

    def test_many_calls_leak_no_memory(self, compiled: Executable, faulty: Faulty) -> None:
        exe = executable_on(compiled, faulty)
        call(exe)
        gc.collect()
        before = len(faulty.live)
        for _ in range(20):
            call(exe)
        gc.collect()
        assert len(faulty.live) == before

    def test_many_threads_load_launch_and_free(self, compiled: Executable, faulty: Faulty) -> None:
        expected = {seed: call(compiled, seed) for seed in range(6)}

        def work(seed: int) -> None:
            for size in (1, 100, 5000):
                handle, data = faulty.alloc(size), bytearray(size)
                faulty.write(handle, memoryview(bytes([seed]) * size))
                assert same(call(executable_on(compiled, faulty), seed), expected[seed])
                faulty.read(handle, memoryview(data))
                faulty.free(handle)
                assert data == bytes([seed]) * size

        in_threads(work, expected)

    # Artefacts

    def test_code_of_another_format(self, subject: Subject, tmp_path: Path) -> None:
        """A device refuses artefacts of another format, in memory and in files."""
        foreign = replace(subject.part.artifact, format="of-another-device", code=b"\x7f" * 100)
        exe = executable_on(subject.exe, subject.device, foreign)
        with pytest.raises(ArtifactError, match="of-another-device"):
            call(exe)
        exe.save(tmp_path / "foreign.dlc", sources=[])
        with pytest.raises(ArtifactError, match="of-another-device"):
            driver.open(tmp_path / "foreign.dlc")

    def test_files_of_another_version(self, compiled: Executable, tmp_path: Path) -> None:
        path = tmp_path / "model.dlc"
        compiled.save(path)
        data = bytearray(path.read_bytes())
        data[8] += 1  # the schema's version, see `runtime.artefact.container`
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match="artefact format 2, this version of dlc reads 1"):
            driver.open(path)

    def test_damaged_files(self, compiled: Executable, tmp_path: Path) -> None:
        """A changed byte is detected, unless it is padding."""
        path, expected = tmp_path / "model.dlc", call(compiled)
        compiled.save(path)
        saved = path.read_bytes()
        for offset in range(3, len(saved), len(saved) // 24):
            path.write_bytes(saved[:offset] + bytes([saved[offset] ^ 0x55]) + saved[offset + 1 :])
            try:
                found = call(driver.open(path, num_threads=2, verify=True))
            except ArtifactError:
                continue
            assert same(found, expected), f"byte {offset}"
        path.write_bytes(saved[: len(saved) // 2])
        with pytest.raises(ArtifactError):
            driver.open(path)


def check_error(error: DlcError, device: Any) -> None:
    """Check that the error names the device and the failure."""
    assert device.name in str(error)
    assert FAULT in str(error)


def check_fault(compiled: Executable, device: Faulty, method: str) -> None:
    """Check each failure of a method in a call: it raises an error and leaks no memory, and the next call is
    right.
    """
    exe = executable_on(compiled, device)
    expected = call(exe)
    steps = _steps(exe, device, method)
    if not steps:
        pytest.skip(f"calls of this device do not use {method}")
    gc.collect()
    before = len(device.live)
    for after in range(steps):
        with device.failing(method, OSError(FAULT), after), pytest.raises(RuntimeFailure) as caught:
            call(exe)
        check_error(caught.value, device)
        del caught
        gc.collect()
        assert len(device.live) <= before, f"a call whose {method} fails does not free its memory"
        assert same(call(exe), expected)


def _call_often(exe: Executable, seconds: float = 0.0) -> None:
    """Make three calls, and more for `seconds`."""
    deadline = time.monotonic() + seconds
    for number in count():
        if number >= 3 and time.monotonic() >= deadline:
            return
        call(exe)


def _steps(exe: Executable, device: Faulty, method: str) -> int:
    """The number of times that a call uses a method of the device."""
    before = device.calls[method]
    call(exe)
    return device.calls[method] - before


def fill(device: Any, handles: list[int]) -> None:
    """Allocate all memory of a device, in blocks of at least 256 bytes. Handles are appended to `handles`."""
    size = ALL_MEMORY
    while size >= 256:
        try:
            handles.append(device.alloc(size))
        except RuntimeFailure:
            size //= 2


__all__ = ["HostileLevel"]
