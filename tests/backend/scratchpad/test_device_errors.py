"""Errors of a stream device name the command, the entry point and the device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlc_core.backend.scratchpad import StreamDevice
from dlc_core.backend.scratchpad.commands import Command, to_data
from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.op import std
from dlc_core.target import Artifact, Description
from tests.backend.scratchpad.machines import kernel_of, lowered, machine, stream, tensor


class Device(StreamDevice):
    """A device whose memories have the size of `pad`."""

    name, formats = "toy", ("toy-stream",)
    pad = 1 << 16

    def describe(self, target: str) -> Description:
        return machine(pad=self.pad)


class Broken(Device):
    def run(self, entry: Any, blocks: Sequence[Any], scalars: Sequence[int], threads: int) -> None:
        raise OSError("bus error")


def commands() -> tuple[Command, ...]:
    return stream(lowered(kernel_of(std.relu(tensor("x", 64, 32))), machine()), machine())


def artifact(made: Sequence[Command]) -> Artifact:
    entry = {"commands": [to_data(each) for each in made], "kernels": ["map"], "owner": [0] * len(made)}
    return Artifact("toy-stream", json.dumps({"main": entry}).encode(), "toy", ("main",), {})


def launched(device: Device, size: int) -> None:
    """Run the stream with buffers of a size in bytes."""
    entry = device.load(artifact(commands())).entry("main")
    handles = [device.alloc(size) for _ in range(2)]
    for handle in handles:
        device.write(handle, memoryview(np.zeros(size, np.uint8)))
    device.launch(entry, handles, (), 1)
    device.sync()


def test_a_stream_for_larger_memories_is_refused_when_it_is_loaded() -> None:
    device = Device()
    device.load(artifact(commands()))
    device.pad = 1 << 10
    with pytest.raises(ArtifactError) as refused:
        device.load(artifact(commands()))
    text = str(refused.value)
    assert refused.value.what.endswith("of pad")
    assert "because it has 1024 bytes" in text
    assert "in command 0\n  in load: load pad0" in text
    assert "in entry 'main'" in text
    assert "in device 'toy'" in text


def test_a_launch_that_fails_names_command_entry_and_device() -> None:
    launched(Device(), 64 * 32 * 4)
    with pytest.raises(RuntimeFailure, match="of main memory") as failed:
        launched(Device(), 64)
    assert failed.value.details[0] == "in command 0"
    assert failed.value.details[1].startswith("in load: load pad0")
    assert failed.value.details[2:] == ("in entry 'main'", "in device 'toy'")


def test_an_exception_of_a_device_becomes_an_error_with_its_place() -> None:
    with pytest.raises(RuntimeFailure, match=r"OSError\('bus error'\)") as failed:
        launched(Broken(), 64)
    assert failed.value.details == ("in entry 'main'", "in device 'toy'")


def test_a_stream_that_lacks_a_token_names_its_entry() -> None:
    made = list(commands())
    first = next(i for i, each in enumerate(made) if each.pops)
    made[first] = replace(made[first], pops=())
    with pytest.raises(RuntimeFailure, match="race") as refused:
        Device().load(artifact(made))
    assert "in entry 'main'" in refused.value.details
