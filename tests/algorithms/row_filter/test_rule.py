"""The rule for convolutions by filtered rows, and the plan that it follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.algorithms.row_filter.choice import (
    Window,
    direct_cycles,
    filtered_cycles,
    strip_cycles,
    strip_of,
)
from dlc_core.algorithms.row_filter.op import CONV, points_of
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of

WIDE = Description(vector_bits=128, vector_registers=16, cores=2)
ALONE = Description(vector_bits=256, vector_registers=16, cores=1, parallel=False)
CORE = Core(16, 32, (32 << 10, 1 << 20, 32 << 20), 1, 1)
STEM = Window(1, 112, 112, 3, 64, 7, 7, 2)


def kernel(shape, columns, outputs, tile, stride, taps, padding):
    """A convolution with bias, residual and relu."""
    x = param("x", tensor_type(shape))
    points = points_of(tile, stride, taps)
    u = param("u", tensor_type((points, stride, columns, shape[-1], outputs)))
    w = param("w", tensor_type((taps, columns, shape[-1], outputs)))
    params = [x, u, w, param("bias", tensor_type((outputs,)))]
    y = CONV.build(*params, tile=tile, stride=stride, taps=taps, padding=padding)
    params.append(param("r", tensor_type(y.shape)))
    return kernel_of(std.relu(std.add(y, params[-1])), params, constants=(1,))


CASES = {
    "whole tiles": ((1, 8, 8, 3), 3, 8, 4, 1, 3, (1, 1, 1, 1)),
    "cut tiles": ((1, 13, 11, 3), 7, 8, 4, 2, 7, (3, 3, 3, 3)),
    "no border": ((1, 9, 9, 2), 5, 4, 2, 1, 5, (0, 0, 0, 0)),
    "images": ((2, 10, 6, 1), 3, 8, 3, 2, 5, (2, 1, 2, 1)),
    "odd channels": ((1, 12, 7, 4), 1, 5, 2, 4, 6, (2, 0, 1, 0)),
}


@pytest.mark.parametrize("machine", [WIDE, ALONE], ids=["threads", "alone"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_programs_compute_the_same(case, machine):
    scheduled = check_schedule(kernel(*case), machine)
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.row_filter"


@pytest.mark.parametrize("machine", [WIDE, ALONE], ids=["threads", "alone"])
@pytest.mark.parametrize("images", [1, 3])
def test_a_symbolic_batch(images, machine):
    n = Var("n", "int64")
    scheduled = check_schedule(kernel((n, 10, 6, 1), 3, 8, 3, 2, 5, (2, 1, 2, 1)), machine, {n: images})
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.row_filter"


def test_costs():
    """Layers of few channels gain most. Small tiles of many channels, or weights larger than a cache, gain
    nothing.
    """
    assert filtered_cycles(STEM, 4, CORE) < filtered_cycles(STEM, 2, CORE) < direct_cycles(STEM, CORE)
    assert filtered_cycles(STEM, 4, CORE) < 0.6 * direct_cycles(STEM, CORE)
    small = Window(1, 112, 112, 3, 32, 3, 3, 2)
    assert filtered_cycles(small, 4, CORE) > direct_cycles(small, CORE)
    assert filtered_cycles(replace(STEM, stride=1), 4, CORE) is None
    assert filtered_cycles(replace(STEM, inputs=512, outputs=512), 4, CORE) is None


def test_costs_include_idle_threads():
    few = replace(STEM, height=12)
    assert filtered_cycles(few, 4, replace(CORE, threads=2)) > filtered_cycles(few, 4, CORE)


def test_strips_divide_the_row():
    assert strip_of(112, 7, 64, 42, CORE) == 14
    assert 7 * strip_of(112, 7, 64, 42, CORE) * 64 * 4 < CORE.caches[0]
    assert strip_of(13, 7, 64, 160, CORE) == 13


def test_products_leave_l1_if_narrow_strips_would_read_the_weights_more_often():
    """Strips of one column fit in L1, but each of them reads all weights."""
    assert strip_of(13, 7, 256, 160, CORE) == 13
    assert strip_of(13, 7, 256, 1, CORE) == 1
    assert strip_of(13, 7, 2048, 160, CORE) == 13
    one, whole = (strip_cycles(13, size, 8, 128, 160, CORE) for size in (1, 13))
    assert whole < 0.9 * one
