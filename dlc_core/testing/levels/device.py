"""Level `device`: memory, all forms of calls, concurrent calls, and errors that do not affect later calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dlc_core import driver
from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.ir.expr import Var
from dlc_core.plugin.registry import registry
from dlc_core.runtime.device import device_at, is_queued
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.target import Target
from dlc_core.testing.levels.base import Level, RanOn, case_of
from dlc_core.testing.levels.device_models import ROWS
from dlc_core.testing.levels.events import check_events, long_launch
from dlc_core.testing.levels.layers import (
    Subject,
    in_threads,
    model_for,
    on_device,
    results,
    same,
    subject_of,
)

NDArray = np.ndarray[Any, Any]
Draw = Callable[..., NDArray]
"""Draws inputs: `draw(rows, seed=...)`."""


class DeviceLevel(Level):
    """Tests of a device. Memory is tested if the device can allocate."""

    level: ClassVar[str] = "device"
    by_test: ClassVar[bool] = True

    @pytest.fixture
    def device(self, target: Target) -> Any:
        return device_at(registry().devices[target.kind.device], target)

    @pytest.fixture
    def subject(self, target: Target, ran_on: RanOn, request: pytest.FixtureRequest) -> Subject:
        """The model of these tests, its executable, and its part on the device."""
        ran_on(model_for(target)[1])  # also if the target takes nothing, and the test is skipped
        found = subject_of(target, case_of(DeviceLevel, request.node.originalname))
        ran_on(found.where)
        return found

    @pytest.fixture
    def exe(self, subject: Subject) -> Executable:
        return subject.exe

    @pytest.fixture
    def draw(self, subject: Subject) -> Draw:
        """A function that draws inputs of the model."""
        return subject.model.inputs

    @pytest.fixture
    def expected(self, subject: Subject) -> Any:
        x = subject.model.inputs()
        found = subject.exe(x)
        subject.model.check(found, x)
        return found

    @pytest.fixture
    def memory(self, device: Any) -> Iterator[Callable[..., int]]:
        """`alloc` whose memory is freed when the test ends."""
        handles: list[int] = []

        def alloc(size: int, **options: int) -> int:
            handles.append(device.alloc(size, **options))
            return handles[-1]

        yield alloc
        for handle in handles:
            device.free(handle)

    # Memory

    def test_memory_holds_what_was_written(self, device: Any, memory: Callable[..., int]) -> None:
        blocks = {memory(size): bytes(i * 7 % 251 for i in range(size)) for size in (1, 3, 64, 4097, 1 << 20)}
        for handle, data in blocks.items():
            device.write(handle, memoryview(data))
        for handle, data in blocks.items():
            out = bytearray(len(data))
            device.read(handle, memoryview(out))
            assert bytes(out) == data

    def test_memory_is_read_and_written_in_parts(self, device: Any, memory: Callable[..., int]) -> None:
        handle = memory(100)
        device.write(handle, memoryview(bytes(100)))
        device.write(handle, memoryview(b"middle"), offset=47)
        out = bytearray(8)
        device.read(handle, memoryview(out), offset=46)
        assert bytes(out) == b"\0middle\0"

    def test_memory_is_aligned(self, device: Any, memory: Callable[..., int]) -> None:
        if not getattr(device, "host_memory", False):
            pytest.skip("handles of this device are not addresses")
        for align in (64, 256, 4096):
            assert memory(100, align=align) % align == 0

    def test_blocks_of_no_bytes(self, device: Any, memory: Callable[..., int]) -> None:
        first, second = memory(0), memory(0)
        assert first != second
        device.write(first, memoryview(b""))
        device.read(second, memoryview(bytearray()))

    def test_memory_is_freed_once(self, device: Any) -> None:
        handle = device.alloc(64)
        device.free(handle)
        with pytest.raises(RuntimeFailure):
            device.free(handle)

    def test_access_outside_is_refused(self, device: Any, memory: Callable[..., int]) -> None:
        handle = memory(16)
        with pytest.raises(RuntimeFailure):
            device.write(handle, memoryview(bytes(17)))
        with pytest.raises(RuntimeFailure):
            device.read(handle, memoryview(bytearray(8)), offset=12)

    # Order: launches of the part on the device, without the rest of the model

    def test_copies_follow_launches(self, subject: Subject) -> None:
        """Copies after launches read the results of the last launch, also on queued devices,
        without waiting.
        """
        _, run = on_device(subject.part)
        for seed in (1, 2, 3):
            given = subject.part_inputs(seed)
            run.write(given)
            run.launch()
            run.launch()
            assert same(run.read(), results(subject.part, given))

    def test_launches_are_independent(self, subject: Subject) -> None:
        """Two launches in flight on different memory have independent results."""
        (_, first), (_, second) = on_device(subject.part), on_device(subject.part)
        given = {seed: subject.part_inputs(seed) for seed in (4, 5)}
        first.write(given[4])
        first.launch()
        second.write(given[5])
        second.launch()
        assert same(first.read(), results(subject.part, given[4]))
        assert same(second.read(), results(subject.part, given[5]))

    def test_direct_copies_follow_launches(self, subject: Subject, memory: Callable[..., int]) -> None:
        """A direct copy takes effect after earlier and before later launches."""
        device, run = on_device(subject.part)
        if not hasattr(device, "copy"):
            pytest.skip("this device has no direct copies")
        given = subject.part_inputs(8)
        run.write(given)
        expected = results(subject.part, given)[0]
        copied = memory(expected.nbytes)
        run.launch()
        if not device.copy(copied, device, run.outputs[0], expected.nbytes):
            pytest.skip("this device does not copy from its own memory")
        run.write(subject.part_inputs(9))
        run.launch()
        found = np.empty_like(expected)
        device.read(copied, bytes_of(found))
        assert same([found], [expected])

    def test_memory_is_freed_after_its_launches(self, subject: Subject, memory: Callable[..., int]) -> None:
        """Freeing memory after a launch, and allocating it again, does not change the results of
        the launch.
        """
        for seed in (6, 7):
            device, run = on_device(subject.part)
            if not is_queued(device):
                pytest.skip("this device is not queued")
            given = subject.part_inputs(seed)
            run.write(given)
            run.launch()
            device.free(run.inputs.pop())
            again = memory(given[-1].nbytes)
            device.write(again, memoryview(bytes(given[-1].nbytes)))
            assert same(run.read(), results(subject.part, given))

    def test_events_are_reached_in_order(self, subject: Subject) -> None:
        """An event completes when all earlier launches have finished, even if no thread waits for it."""
        device, run = on_device(subject.part)
        if not hasattr(device, "record"):
            pytest.skip("this device has no events")
        given = subject.part_inputs()
        run.write(given)
        events = []
        for _ in range(5):
            run.launch()
            events.append(device.record())
        events[-1].wait()
        assert all(event.done for event in events)
        assert same(run.read(), results(subject.part, given))

    def test_events_are_not_reached_early(self, target: Target, device: Any, request: Any) -> None:
        """When an event is complete, all earlier launches have finished."""
        if not hasattr(device, "record"):
            pytest.skip("this device has no events")
        case = case_of(DeviceLevel, request.node.originalname)
        check_events(*long_launch(subject_of(target, case, Var("rows")).part))

    # Calls

    def test_all_forms_of_calls_agree(self, exe: Executable, draw: Draw, expected: Any) -> None:
        assert same(exe(draw()), expected)
        assert same(exe.run({"x": draw()}).values(), expected)
        assert same(exe.bind([draw()])(), expected)
        assert same(exe.bind({"x": draw()})(), expected)
        assert same(exe(np.asfortranarray(draw())), expected)

    def test_bound_calls_read_and_write_in_place(self, exe: Executable, draw: Draw) -> None:
        x = draw()
        out = [np.zeros(v.type.static_shape() or (), v.type.dtype.numpy) for v in exe.outputs]
        bound = exe.bind([x], out)
        for seed in (1, 2):
            x[...] = draw(seed=seed)
            bound()
            assert same(out, exe(draw(seed=seed)))

    def test_executables_are_independent(
        self, target: Target, subject: Subject, draw: Draw, expected: Any
    ) -> None:
        exe, sizes = subject.exe, (3, 17, 64)
        others = [driver.compile(subject.model.make(rows), target, num_threads=2) for rows in sizes]
        found = [other(draw(rows)) for other, rows in zip(others, sizes, strict=True)]
        for _ in range(3):
            assert same(exe(draw()), expected)
            for other, rows, result in zip(others, sizes, found, strict=True):
                assert same(other(draw(rows)), result)

    def test_results_do_not_change_with_later_calls(self, exe: Executable, draw: Draw) -> None:
        first = exe(draw(seed=1))
        copies = [a.copy() for a in first]
        exe(draw(seed=2))
        assert same(first, copies)

    def test_many_threads_call_one_executable(self, exe: Executable, draw: Draw) -> None:
        expected = {seed: exe(draw(seed=seed)) for seed in range(8)}

        def work(seed: int) -> None:
            for _ in range(25):
                assert same(exe(draw(seed=seed)), expected[seed])

        in_threads(work, expected)

    def test_results_do_not_depend_on_the_number_of_threads(
        self, target: Target, subject: Subject, draw: Draw
    ) -> None:
        module = subject.model.make(200)
        made = [driver.compile(module, target, num_threads=n) for n in (1, 2, 5)]
        found = [exe(draw(200)) for exe in made]
        assert same(found[0], found[1])
        assert same(found[0], found[2])

    def test_sizes_change_from_call_to_call(self, target: Target, request: Any) -> None:
        subject = subject_of(target, case_of(DeviceLevel, request.node.originalname), Var("rows"))
        for rows in (1, 7, 200, 24, 7):
            x = subject.model.inputs(rows)
            subject.model.check(subject.exe(x), x)

    # Errors

    def test_wrong_inputs_are_refused(self, exe: Executable, draw: Draw, expected: Any) -> None:
        x = draw()
        for wrong in ((), (x, x), (x.astype(np.complex64),), (x[:3],), (x[0],), ("x",)):
            with pytest.raises(UsageError):
                exe(*wrong)
        with pytest.raises(UsageError, match="unknown input"):
            exe.run({"y": x})
        with pytest.raises(UsageError):
            exe.bind([x], [np.zeros((3, 3), each.dtype) for each in expected])
        assert same(exe(x), expected)

    # Artefacts

    def test_saved_executables_agree(
        self, exe: Executable, draw: Draw, expected: Any, tmp_path: Path
    ) -> None:
        exe.save(tmp_path / "model.dlc")
        assert same(driver.open(tmp_path / "model.dlc", num_threads=2)(draw()), expected)

    def test_compiling_again_makes_the_same_code(self, target: Target, subject: Subject) -> None:
        exe = subject.exe
        again = driver.compile(subject.model.make(ROWS), target, num_threads=2)
        assert list(again.regions) == list(exe.regions)
        for name, one in {"": exe, **exe.regions}.items():
            other = again.regions[name] if name else again
            assert other.artifact.code == one.artifact.code
            assert other.artifact.metadata == one.artifact.metadata


__all__ = ["DeviceLevel"]
