"""Level `speed`: the fraction of the declared roofline that a target attains.

A case fails only below the required fraction (`conformance_suite(..., fraction=0.5)`, or `--dlc-fraction`).
Without one it only measures and reports. If the device counts `cycles`, as simulated devices do, the time is
the cycles at the description's frequency. Otherwise it is the clock time of the best of a few calls. A
fraction above 1 is possible: with algorithms that need fewer operations, and with caches that are larger than
declared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from dlc_core import driver
from dlc_core.graph.node import Node, constant, param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.runtime.executable import Executable
from dlc_core.target import Target
from dlc_core.target.cost import Machine, Work
from dlc_core.testing.cases import module_of
from dlc_core.testing.levels.base import Level, RanOn, Settings
from dlc_core.testing.parts import part_on
from dlc_core.testing.properties import FIGURES
from dlc_core.testing.runner import ON_HOST
from dlc_core.testing.where import where_of

Measure = Callable[[Node, Node, Work], None]

ROWS, COLUMNS = 1024, 2048
"""The shape of values: 8 MiB of float32, which is more than the private caches of a core."""


def _weights(*shape: int) -> Node:
    drawn = np.random.default_rng(0).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return constant(drawn.astype(np.float32))


class SpeedLevel(Level):
    """Copies, elementwise ops, GEMM and convolution of float32, each large enough to reach the machine's
    peak.
    """

    level: ClassVar[str] = "speed"
    by_test: ClassVar[bool] = True

    @pytest.fixture
    def measure(
        self, request: pytest.FixtureRequest, target: Target, conformance: Settings, ran_on: RanOn
    ) -> Measure:
        """A function that compiles a graph with one parameter, measures a call, and compares it with the
        roofline.
        """

        def run(x: Node, body: Node, work: Work) -> None:
            module = module_of(body, [x])
            exe = driver.compile(module, target, cache=False)
            where = where_of(exe, target, module)
            ran_on(where)
            if not where.on:
                pytest.skip(f"{ON_HOST}: {where.why}")
            seconds, by_cycles = seconds_of(exe, target)
            limit = limit_of(target, work, exe.num_threads)
            fraction = limit / seconds
            figures = {"fraction": fraction, "microseconds": seconds * 1e6, "limit": limit * 1e6}
            figures |= {"by cycles": float(by_cycles), "GFLOP/s": (work.flops or 0) / seconds / 1e9}
            figures["GB/s"] = (work.bytes or 0) / seconds / 1e9
            request.node.user_properties.append((FIGURES, figures))
            assert fraction >= conformance.fraction, (
                f"{fraction:.3f} of the declared roofline, {conformance.fraction} is required: "
                f"{seconds * 1e6:.1f} microseconds, the limit is {limit * 1e6:.1f}"
            )

        return run

    def test_copy(self, measure: Measure) -> None:
        x = param("x", tensor_type((ROWS, COLUMNS)))
        size = 4 * ROWS * COLUMNS
        measure(x, std.concat(x, x, axis=0), Work(0, 0, 0, 3 * size, 0))

    def test_elementwise(self, measure: Measure) -> None:
        x = param("x", tensor_type((ROWS, COLUMNS)))
        size = ROWS * COLUMNS
        body = std.relu(std.add(std.mul(x, x), x))
        measure(x, body, Work(3 * size, 2 * size, 0, 8 * size, 0))

    def test_gemm(self, measure: Measure) -> None:
        m, k, n = 512, 512, 512
        x = param("x", tensor_type((m, k)))
        bytes_ = 4 * (m * k + k * n + m * n)
        measure(x, std.matmul(x, _weights(k, n)), Work(2 * m * k * n, m * k * n, 0, bytes_, 4 * k * n))

    def test_convolution(self, measure: Measure) -> None:
        ins, outs, size = 64, 64, 56
        x = param("x", tensor_type((1, ins, size, size)))
        steps = outs * ins * 9 * size * size
        bytes_ = 4 * ((ins + outs) * size * size + outs * ins * 9)
        body = std.conv(x, _weights(outs, ins, 3, 3), padding=(1, 1, 1, 1))
        measure(x, body, Work(2 * steps, steps, 0, bytes_, 4 * outs * ins * 9))


def limit_of(target: Target, work: Work, threads: int) -> float:
    """The shortest possible time of work in seconds, by the target's description."""
    estimate = Machine.of(target.describe()).estimate(work, threads=threads)
    assert estimate is not None
    return estimate.limit


def seconds_of(exe: Executable, target: Target) -> tuple[float, bool]:
    """The time of a call in seconds, and whether it is from the device's cycles."""
    rng = np.random.default_rng(1)
    shapes = [value.type.static_shape() or () for value in exe.inputs]
    feeds = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    device: Any = (part_on(exe, target) or exe).device
    before: Any = getattr(device, "cycles", None)
    exe(*feeds)
    if before is not None and device.cycles > before:
        return (device.cycles - before) / target.describe().frequency, True
    return exe.time_evaluator(number=1, repeat=7)(*feeds).min, False


__all__ = ["SpeedLevel", "limit_of", "seconds_of"]
