"""The subjects of device tests: a model, its executable, and its part on the target's device."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from dlc_core import driver
from dlc_core.config import config as settings
from dlc_core.plugin.registry import Registry, registry
from dlc_core.runtime.device import is_queued
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.interface.signature import Shape, Value
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.target import Target
from dlc_core.testing.capability import is_partial, taken
from dlc_core.testing.cases import outputs_of
from dlc_core.testing.levels.device_models import DENSE, MODELS, ROWS, Model, random_array
from dlc_core.testing.parts import part_on
from dlc_core.testing.runner import ON_HOST
from dlc_core.testing.running import report
from dlc_core.testing.where import Where, where_of

NDArray = np.ndarray[Any, Any]


def model_for(target: Target) -> tuple[Model, Where]:
    """The model of device tests for a target, and where it runs: the first of which the target takes a part,
    or the first if it takes nothing of any.
    """
    if not is_partial(target):
        return DENSE, Where(1, 1)
    found = [(model, taken(model.make(ROWS), target)) for model in MODELS]
    known = [(model, where) for model, where in found if where is not None]
    return next((each for each in known if each[1].on), known[0] if known else (DENSE, Where(1, 1)))


@dataclass(frozen=True)
class Subject:
    """The subject of a device test: a model, its executable, and the executable of the part on the target's
    device, which is the whole or a region.
    """

    model: Model
    exe: Executable
    part: Executable
    where: Where

    @property
    def device(self) -> Any:
        """The target's device."""
        return self.part.device

    def part_inputs(self, seed: int = 0) -> list[NDArray]:
        """Random inputs of the part."""
        return random_inputs(self.part, seed)


@lru_cache(maxsize=8)
def _compiled(target: Target, guard: str, model: Model, known: Registry) -> Executable:
    """Compile a model. The code depends on `guard`, the guard mode, and on the registry."""
    return driver.compile(model.make(ROWS), target, num_threads=2)


def subject_of(target: Target, test: str, rows: Any = ROWS) -> Subject:
    """The subject of a test. Tests with the same number of rows share it.

    If nothing runs on the target, the test is skipped, with the reason.
    """
    model, _ = model_for(target)
    if rows is ROWS:
        exe = _compiled(target, settings.guard, model, registry())
    else:
        exe = driver.compile(model.make(rows), target, num_threads=2)
    report(test, exe)
    where = where_of(exe, target, model.make(rows))
    part = part_on(exe, target)
    if part is None:
        pytest.skip(f"{ON_HOST}: {where.why}")
    return Subject(model, exe, part, where)


def inputs(rows: int = ROWS, seed: int = 0) -> NDArray:
    """Inputs of `layers`."""
    return DENSE.inputs(rows, seed)


def random_inputs(exe: Executable, seed: int = 0) -> list[NDArray]:
    """Random inputs of an executable without symbolic dims."""
    values = [(v.type.static_shape() or (), v.type.dtype.numpy) for v in exe.inputs]
    return [random_array(shape, dtype, seed) for shape, dtype in values]


def call(exe: Executable, seed: int = 0) -> Any:
    """Call an executable with random inputs."""
    return exe(*random_inputs(exe, seed))


def results(exe: Executable, given: Sequence[NDArray]) -> list[NDArray]:
    """The results of a call, as a list also if there is only one."""
    return list(outputs_of(exe(*given)))


def same(a: Any, b: Any) -> bool:
    """Whether two tuples of arrays are bitwise equal."""
    return all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@dataclass
class OnDevice:
    """An entry point of an executable with memory on its device, for direct launches. Its deletion frees the
    memory.
    """

    exe: Executable
    entry: Any
    inputs: list[int]
    outputs: list[int]
    others: list[int]
    scalars: Sequence[int]
    shapes: Sequence[Shape]
    """The shapes of the outputs."""

    def write(self, given: Sequence[NDArray]) -> None:
        """Copy inputs to the device."""
        for handle, array in zip(self.inputs, given, strict=True):
            self.exe.device.write(handle, bytes_of(array))

    def launch(self) -> None:
        """Launch on its memory."""
        handles = [*self.inputs, *self.outputs, *self.others]
        self.exe.device.launch(self.entry, handles, self.scalars, 2)

    def read(self) -> list[NDArray]:
        """Copy the results from the device, after all earlier requests."""
        if not is_queued(self.exe.device):
            self.exe.device.sync()
        made = [np.empty(s, v.type.dtype.numpy) for s, v in zip(self.shapes, self.exe.outputs, strict=True)]
        for array, handle in zip(made, self.outputs, strict=True):
            self.exe.device.read(handle, bytes_of(array))
        return made

    def __del__(self) -> None:
        for handle in (*self.inputs, *self.outputs, *self.others):
            self.exe.device.free(handle)


def on_device(exe: Executable, *given: NDArray) -> tuple[Any, OnDevice]:
    """The device of an executable without regions, and its entry point with memory that contains the inputs
    `given`. Without these, the inputs are uninitialised. The test is skipped if entry points take arrays.
    Raises RuntimeFailure if the device has not enough memory.
    """
    device = exe.device
    entry = device.load(exe.artifact).entry(exe.entry)
    if hasattr(entry, "evaluate"):
        pytest.skip("entry points of this device take arrays, not memory")
    shapes = [a.shape for a in given] or [v.type.static_shape() or () for v in exe.inputs]
    plan = exe.signature.plan(shapes)
    run = OnDevice(exe, entry, [], [], [], plan.scalars, plan.outputs)  # it frees what is allocated so far
    for value, shape in zip(exe.inputs, shapes, strict=True):
        run.inputs.append(device.alloc(_nbytes(value, shape)))
    for value, shape in zip(exe.outputs, plan.outputs, strict=True):
        run.outputs.append(device.alloc(_nbytes(value, shape)))
    for size in (exe.weights.nbytes, plan.arena):
        run.others.append(device.alloc(max(1, size)))
    device.write(run.others[0], bytes_of(exe.weights))
    if given:
        run.write(given)
    return device, run


def _nbytes(value: Value, shape: Shape) -> int:
    return math.prod(shape) * value.type.dtype.itemsize


def in_threads(work: Callable[[int], None], seeds: Iterable[int]) -> None:
    """Run `work(seed)` for each seed, all at the same time, each in its own thread.

    Raises the first error of a thread after all have ended.
    """
    seeds = list(seeds)
    barrier = threading.Barrier(len(seeds))

    def run(seed: int) -> None:
        barrier.wait()
        work(seed)

    with ThreadPoolExecutor(len(seeds)) as pool:
        for future in [pool.submit(run, seed) for seed in seeds]:
            future.result()


__all__ = [
    "OnDevice",
    "Subject",
    "call",
    "in_threads",
    "inputs",
    "model_for",
    "on_device",
    "random_inputs",
    "results",
    "same",
    "subject_of",
]
