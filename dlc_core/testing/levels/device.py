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
from dlc_core.testing.levels.base import Level, case_of
from dlc_core.testing.levels.events import check_events, long_launch
from dlc_core.testing.levels.layers import (
    compiled_layers,
    in_threads,
    inputs,
    layers,
    numpy_layers,
    on_device,
    same,
)

NDArray = np.ndarray[Any, Any]


class DeviceLevel(Level):
    """Tests of a device. Memory is tested if the device can allocate."""

    level: ClassVar[str] = "device"
    by_test: ClassVar[bool] = True

    @pytest.fixture
    def device(self, target: Target) -> Any:
        return device_at(registry().devices[target.kind.device], target)

    @pytest.fixture
    def exe(self, target: Target, request: pytest.FixtureRequest) -> Executable:
        return compiled_layers(target, case_of(DeviceLevel, request.node.originalname))

    @pytest.fixture
    def expected(self, exe: Executable) -> Any:
        found = exe(inputs())
        for have, want in zip(found, numpy_layers(inputs()), strict=True):
            np.testing.assert_allclose(have, want, 1e-5, 1e-6)
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

    # Order

    def test_copies_follow_launches(self, exe: Executable, expected: Any) -> None:
        """Copies after launches read the results of the last launch, also on queued devices,
        without waiting.
        """
        device, run = on_device(exe)
        for seed in (1, 2, 3):
            x = inputs(seed=seed)
            device.write(run.inputs[0], bytes_of(x))
            run.launch()
            run.launch()
            assert same(run.read(), exe(x))

    def test_launches_are_independent(self, exe: Executable) -> None:
        """Two launches in flight on different memory have independent results."""
        device, first = on_device(exe)
        _, second = on_device(exe)
        x = inputs(seed=4)
        device.write(first.inputs[0], bytes_of(x))
        first.launch()
        device.write(second.inputs[0], bytes_of(inputs(seed=5)))
        second.launch()
        assert same(first.read(), exe(x))
        assert same(second.read(), exe(inputs(seed=5)))

    def test_direct_copies_follow_launches(self, exe: Executable, memory: Callable[..., int]) -> None:
        """A direct copy takes effect after earlier and before later launches."""
        device, run = on_device(exe)
        if not hasattr(device, "copy"):
            pytest.skip("this device has no direct copies")
        x = inputs(seed=8)
        device.write(run.inputs[0], bytes_of(x))
        expected = exe(x)[0]
        copied = memory(expected.nbytes)
        run.launch()
        if not device.copy(copied, device, run.outputs[0], expected.nbytes):
            pytest.skip("this device does not copy from its own memory")
        device.write(run.inputs[0], bytes_of(inputs(seed=9)))
        run.launch()
        found = np.empty_like(expected)
        device.read(copied, bytes_of(found))
        assert same([found], [expected])

    def test_memory_is_freed_after_its_launches(self, exe: Executable, memory: Callable[..., int]) -> None:
        """Freeing memory after a launch, and allocating it again, does not change the results of
        the launch.
        """
        for seed in (6, 7):
            device, run = on_device(exe)
            if not is_queued(device):
                pytest.skip("this device is not queued")
            x = inputs(seed=seed)
            device.write(run.inputs[0], bytes_of(x))
            run.launch()
            device.free(run.inputs.pop())
            again = memory(x.nbytes)
            device.write(again, memoryview(bytes(x.nbytes)))
            assert same(run.read(), exe(x))

    def test_events_are_reached_in_order(self, exe: Executable) -> None:
        """An event completes when all earlier launches have finished, even if no thread waits for it."""
        device, run = on_device(exe)
        if not hasattr(device, "record"):
            pytest.skip("this device has no events")
        device.write(run.inputs[0], bytes_of(inputs()))
        events = []
        for _ in range(5):
            run.launch()
            events.append(device.record())
        events[-1].wait()
        assert all(event.done for event in events)
        assert same(run.read(), exe(inputs()))

    def test_events_are_not_reached_early(self, target: Target) -> None:
        """When an event is complete, all earlier launches have finished."""
        if not hasattr(device_at(registry().devices[target.kind.device], target), "record"):
            pytest.skip("this device has no events")
        check_events(*long_launch(driver.compile(layers(Var("rows")), target, num_threads=2)))

    # Calls

    def test_all_forms_of_calls_agree(self, exe: Executable, expected: Any) -> None:
        assert same(exe(inputs()), expected)
        assert same(exe.run({"x": inputs()}).values(), expected)
        assert same(exe.bind([inputs()])(), expected)
        assert same(exe.bind({"x": inputs()})(), expected)
        assert same(exe(np.asfortranarray(inputs())), expected)

    def test_bound_calls_read_and_write_in_place(self, exe: Executable) -> None:
        x, out = inputs(), [np.zeros((24, 17), np.float32), np.zeros(24, np.float32)]
        bound = exe.bind([x], out)
        for seed in (1, 2):
            x[...] = inputs(seed=seed)
            bound()
            assert same(out, exe(inputs(seed=seed)))

    def test_executables_are_independent(self, target: Target, exe: Executable, expected: Any) -> None:
        sizes = (3, 17, 64)
        others = [driver.compile(layers(rows), target, num_threads=2) for rows in sizes]
        results = [other(inputs(rows)) for other, rows in zip(others, sizes, strict=True)]
        for _ in range(3):
            assert same(exe(inputs()), expected)
            for other, rows, result in zip(others, sizes, results, strict=True):
                assert same(other(inputs(rows)), result)

    def test_results_do_not_change_with_later_calls(self, exe: Executable) -> None:
        first = exe(inputs(seed=1))
        copies = [a.copy() for a in first]
        exe(inputs(seed=2))
        assert same(first, copies)

    def test_many_threads_call_one_executable(self, exe: Executable) -> None:
        expected = {seed: exe(inputs(seed=seed)) for seed in range(8)}

        def work(seed: int) -> None:
            for _ in range(25):
                assert same(exe(inputs(seed=seed)), expected[seed])

        in_threads(work, expected)

    def test_results_do_not_depend_on_the_number_of_threads(self, target: Target) -> None:
        made = [driver.compile(layers(200), target, num_threads=n) for n in (1, 2, 5)]
        results = [exe(inputs(200)) for exe in made]
        assert same(results[0], results[1])
        assert same(results[0], results[2])

    def test_sizes_change_from_call_to_call(self, target: Target) -> None:
        exe = driver.compile(layers(Var("rows")), target, num_threads=2)
        for rows in (1, 7, 200, 24, 7):
            for found, want in zip(exe(inputs(rows)), numpy_layers(inputs(rows)), strict=True):
                np.testing.assert_allclose(found, want, 1e-5, 1e-6)

    # Errors

    def test_wrong_inputs_are_refused(self, exe: Executable, expected: Any) -> None:
        x = inputs()
        for wrong in ((), (x, x), (x.astype(np.float64),), (x[:3],), (x[0],), ("x",)):
            with pytest.raises(UsageError):
                exe(*wrong)
        with pytest.raises(UsageError, match="unknown input"):
            exe.run({"y": x})
        with pytest.raises(UsageError):
            exe.bind([x], [np.zeros((3, 3), np.float32), np.zeros(24, np.float32)])
        assert same(exe(x), expected)

    # Artefacts

    def test_saved_executables_agree(self, exe: Executable, expected: Any, tmp_path: Path) -> None:
        exe.save(tmp_path / "model.dlc")
        assert same(driver.open(tmp_path / "model.dlc", num_threads=2)(inputs()), expected)

    def test_compiling_again_makes_the_same_code(self, target: Target, exe: Executable) -> None:
        again = driver.compile(layers(), target, num_threads=2)
        assert again.artifact.code == exe.artifact.code
        assert again.artifact.metadata == exe.artifact.metadata


__all__ = ["DeviceLevel"]
