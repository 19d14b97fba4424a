"""Convolutions on many machines: capacities, rates, and shapes whose tiles end unevenly."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dlc_core.backend.scratchpad import ScratchpadRule, check_tokens, simulate, synchronise
from dlc_core.backend.scratchpad.checks import check_inside
from dlc_core.backend.scratchpad.commands import Command
from dlc_core.backend.scratchpad.ordering import ordered
from dlc_core.backend.scratchpad.recording import record_commands
from dlc_core.diag import CodegenError
from dlc_core.ir.module import IRModule
from dlc_core.op import std
from dlc_core.passes.base import PassContext
from dlc_core.passes.default_pipelines import default_pipeline
from dlc_core.plugin.registry import registry
from dlc_core.target import Description, MemoryScope, Unit
from dlc_core.testing.schedules import kernel_of, target_of
from dlc_core.tir.failures import CHECKS
from dlc_core.tir.stmt import PrimFunc
from tests.backend.scratchpad.machines import executed, tensor

Tile = tuple[int, int, int] | None
Shape = tuple[int, int, int, int, int, int]
"""Channels, outputs, height and width, window, stride, padding."""
SMALL: tuple[Shape, ...] = (
    (3, 16, 24, 3, 2, 1),
    (3, 16, 23, 3, 2, 1),
    (3, 8, 17, 5, 2, 2),
    (5, 7, 13, 3, 1, 1),
    (12, 10, 11, 1, 1, 0),
    (9, 10, 11, 1, 2, 0),
)
LARGE: tuple[Shape, ...] = (
    (3, 16, 96, 3, 2, 1),
    (3, 16, 97, 3, 2, 1),
    (3, 24, 64, 7, 2, 3),
    (3, 8, 51, 5, 3, 2),
    (32, 48, 28, 3, 1, 1),
    (33, 47, 27, 3, 2, 1),
    (64, 64, 28, 1, 1, 0),
    (64, 96, 28, 1, 2, 0),
)


def vector_machine(pad: int, rate: float, banks: int = 1) -> Description:
    """A vector machine of 32 lanes with one DMA engine for loads and stores."""
    return Description(
        parallel=False,
        memory_scopes=("global", "local", MemoryScope("pad", pad, banks=banks, align=64)),
        units=(
            Unit("dma", ("load", "store"), rate=rate, latency=40),
            Unit("fma", ("product", "vector"), shape=(1, 32), rate=32, startup=16),
        ),
    )


def convolution(shape: Shape, description: Description, tile: Tile = None) -> PrimFunc:
    """A convolution with bias and ReLU in its final form for a machine."""
    channels, outputs, size, window, stride, padding = shape
    x, w = tensor("x", 1, channels, size, size), tensor("w", outputs, channels, window, window)
    value = std.conv(x, w, strides=(stride, stride), padding=(padding,) * 4)
    kernel = kernel_of(std.relu(std.add(value, tensor("b", outputs, 1, 1))))
    rule = ScratchpadRule("test.contraction", operands="pad", sums="pad", tile=tile)
    context = PassContext(target=target_of(description), schedule_rules=(rule,))
    pipeline = default_pipeline("tir", registry().passes)
    func = pipeline.run(IRModule({"kernel": kernel}, {}, "kernel"), context)["kernel"]
    assert isinstance(func, PrimFunc)
    assert func.attrs["rule"] == "test.contraction", func.attrs["why_not"]
    return func


def reference(x: np.ndarray, w: np.ndarray, b: np.ndarray, stride: int, padding: int) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    sums = np.einsum("bcyxij,ocij->boyx", windows[:, :, ::stride, ::stride], w, optimize=True)
    return np.maximum(sums + b[:, None, None], 0)


def stream_of(func: PrimFunc, description: Description) -> tuple[Command, ...]:
    made = record_commands(IRModule({"kernel": func}, {}, "kernel"), func, description).commands
    commands = synchronise([made[number] for number in ordered(made, description)])
    check_tokens(commands)
    return commands


def computes_right(shape: Shape, description: Description, tile: Tile = None) -> PrimFunc:
    """Compile and run a convolution; sums of small integers are exact."""
    func = convolution(shape, description, tile)
    rng = np.random.default_rng(0)
    channels, outputs, size, window, stride, padding = shape
    x, w, b = (
        rng.integers(-9, 10, dims).astype(np.float32)
        for dims in ((1, channels, size, size), (outputs, channels, window, window), (outputs,))
    )
    expected = reference(x, w, b, stride, padding)
    arrays = [x.ravel(), w.ravel(), b.ravel(), np.zeros(expected.size, np.float32)]
    arrays += [np.zeros(4, np.int64)] * (len(func.buffers) - 4)
    found, _ = executed(stream_of(func, description), description, arrays)
    np.testing.assert_array_equal(found[3].reshape(expected.shape), expected)
    return func


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_small_convolutions_on_small_memories(shape: Shape) -> None:
    for kilobytes, rate in product((2, 8), (4, 16)):
        computes_right(shape, vector_machine(kilobytes << 10, rate))


def test_a_window_that_is_divided_unevenly_is_proved_by_its_commands() -> None:
    """The kernel has a check of the rows of its last chunk; the stream has none."""
    description = vector_machine(64 << 10, 8)
    func = computes_right((3, 16, 24, 3, 2, 1), description, tile=(10, 8, 18))
    assert CHECKS in func.attrs
    load = next(c for c in stream_of(func, description) if c.inside)
    source = next(buffer for buffer in func.buffers if buffer.name == "p0")
    check_inside(load, [(load.sources[0], source, 0, 4 * 3 * 24 * 24)], "kernel")
    with pytest.raises(CodegenError, match=r"kernel: a command accesses bytes .* of p0\n.*it has 64 bytes"):
        check_inside(load, [(load.sources[0], source, 0, 64)], "kernel")


SHARED: tuple[tuple[Shape, float], ...] = (
    ((64, 64, 28, 1, 1, 0), 0.85),
    ((32, 64, 28, 3, 1, 1), 0.75),
    ((128, 64, 14, 1, 1, 0), 0.65),
)
"""Convolutions, and the least part of the bound in two banks of 32 kB."""


@pytest.mark.parametrize(("shape", "least"), SHARED, ids=str)
def test_tiles_share_two_large_banks(shape: Shape, least: float) -> None:
    description = vector_machine(64 << 10, 16, banks=2)
    func = computes_right(shape, description)
    channels, outputs, size, window, stride, _ = shape
    bound = channels * outputs * window**2 * (size // stride) ** 2 / 32
    assert least < bound / simulate(stream_of(func, description), description).cycles <= 1


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_small_convolutions_in_few_banks(shape: Shape) -> None:
    for kilobytes, banks in ((4, 2), (8, 3), (16, 2)):
        computes_right(shape, vector_machine(kilobytes * 3 * 1024, 16, banks))


@pytest.mark.slow
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_convolutions_on_many_machines(shape: Shape) -> None:
    for kilobytes, rate in product((8, 32, 64, 128), (4, 8, 16)):
        computes_right(shape, vector_machine(kilobytes << 10, rate))


__all__ = ["computes_right", "convolution", "stream_of", "vector_machine"]
