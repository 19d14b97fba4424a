"""The rule for convolutions by tiles, and the plan that it follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.algorithms.winograd import choice as winograd
from dlc_core.algorithms.winograd.choice import Layer, Plan, direct_cycles, part_tile, plan, tiles_of
from dlc_core.algorithms.winograd.op import CONV, points_of
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, schedule_for

WIDE = Description(vector_bits=128, vector_registers=16, cores=2)
ALONE = Description(vector_bits=256, vector_registers=16, cores=1, parallel=False)
CORE = Core(16, 32, (32 << 10, 1 << 20, 32 << 20), 2)


def kernel(shape, outputs, tile, padding, across=0, *, stride=1, residual=False):
    """A convolution with bias and relu, and optionally a residual."""
    x = param("x", tensor_type(shape))
    points = (points_of(tile, stride), points_of(across or tile, stride))
    u = param("u", tensor_type((*points, shape[-1], outputs)))
    w = param("w", tensor_type((3, 3, shape[-1], outputs)))
    params = [x, u, w, param("bias", tensor_type((outputs,)))]
    y = CONV.build(*params, tile=tile, across=across, stride=stride, padding=padding)
    if residual:
        params.append(param("r", tensor_type(y.shape)))
        y = std.add(y, params[-1])
    return kernel_of(std.relu(y), params, constants=(1,))


CASES = {
    "whole tiles": ((1, 8, 8, 8), 8, 2, (1, 1, 1, 1)),
    "cut tiles": ((1, 7, 5, 4), 8, 4, (1, 1, 1, 1)),
    "no border": ((1, 10, 8, 4), 12, 4, (0, 0, 0, 0)),
    "other border": ((1, 4, 6, 8), 4, 2, (2, 0, 1, 3)),
    "images": ((3, 6, 6, 4), 8, 2, (1, 1, 1, 1)),
    "odd channels": ((1, 6, 6, 3), 5, 4, (1, 1, 1, 1)),
    "columns two by two": ((1, 7, 7, 4), 8, 4, (1, 1, 1, 1), 2),
    "columns one by one": ((1, 7, 5, 4), 8, 2, (1, 1, 1, 1), 1),
}


@pytest.mark.parametrize("machine", [WIDE, ALONE], ids=["threads", "alone"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_programs_compute_the_same(case, machine):
    scheduled = check_schedule(kernel(*case, residual=case[0][0] == 1), machine)
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.winograd"


@pytest.mark.parametrize("machine", [WIDE, ALONE], ids=["threads", "alone"])
@pytest.mark.parametrize("images", [1, 3])
def test_a_symbolic_batch(images, machine):
    n = Var("n", "int64")
    scheduled = check_schedule(kernel((n, 7, 5, 4), 8, 4, (1, 1, 1, 1)), machine, {n: images})
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.winograd"


@pytest.mark.parametrize(
    ("shape", "tile", "padding"),
    [((1, 9, 7, 4), 2, (1, 1, 1, 1)), ((2, 12, 8, 4), 4, (0, 1, 1, 0)), ((1, 8, 8, 4), 2, (0, 0, 0, 0))],
    ids=["border", "images", "last pixels left out"],
)
def test_strides_of_two(shape, tile, padding):
    scheduled = check_schedule(kernel(shape, 8, tile, padding, stride=2), WIDE)
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.winograd"


@pytest.mark.parametrize("phases", [False, True])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_every_grouping_computes_the_same(group, phases, monkeypatch):
    monkeypatch.setattr(winograd, "plan", lambda layer, tile, core: Plan(tile, group, phases, 0.0))
    scheduled = check_schedule(kernel((2, 7, 6, 4), 8, 2, (1, 1, 1, 1)), WIDE)
    assert scheduled.attrs["rule"] == "cpu.winograd"


@pytest.mark.parametrize("group", [1, 2, 4])
def test_channels_distributed_over_threads_compute_the_same(group, monkeypatch):
    monkeypatch.setattr(winograd, "plan", lambda layer, tile, core: Plan(tile, group, False, 0.0, 2))
    scheduled = check_schedule(kernel((2, 7, 6, 4), 32, 2, (1, 1, 1, 1)), WIDE)
    assert scheduled.attrs["rule"] == "cpu.winograd"


def test_weights_of_a_part_are_contiguous(monkeypatch):
    """A thread that has half of the channels reads from point to point without a gap."""
    monkeypatch.setattr(winograd, "plan", lambda layer, tile, core: Plan(tile, 1, False, 0.0, parts=2))
    scheduled = schedule_for(kernel((1, 8, 8, 4), 32, 2, (1, 1, 1, 1)), WIDE)
    assert scheduled.attrs["why_not"] == ()
    shape = scheduled.buffers[1].static_shape()
    assert shape[:3] == (2, 4, 4)
    assert shape[3] * shape[-1] == 16


def test_tiles_divide_the_channels_of_a_thread():
    for vectors in range(1, 9):
        tile = part_tile(16, vectors * CORE.lanes, CORE)
        assert vectors % tile.vectors == 0
        assert tile.rows * tile.vectors + tile.vectors < CORE.registers


def test_stages_are_parallel_one_by_one_if_rows_of_tiles_are_few():
    """Seven rows leave one of two threads idle for an eighth of the time; fourteen do not, and pass less on
    in groups.
    """
    alone = replace(CORE, units=1)
    assert plan(Layer(1, 28, 28, 128, 128), (4, 4), alone).phases
    assert not plan(Layer(1, 56, 56, 64, 64), (4, 4), alone).phases
    assert not plan(Layer(1, 28, 28, 128, 128), (4, 4), replace(alone, threads=1)).phases
    for tile, side, channels in (((4, 4), 28, 128), ((2, 2), 14, 256)):
        strided = Layer(1, side, side, channels, channels, 2)
        assert plan(strided, tile, CORE).phases
        assert plan(strided, tile, CORE).cycles < 0.9 * direct_cycles(strided, CORE)


def test_threads_have_parts_of_the_channels_if_no_cache_holds_intermediate_values():
    """Threads with parts all read the whole input."""
    small = replace(CORE, units=1, caches=(32 << 10, 1 << 20, 3 << 19))
    assert plan(Layer(1, 28, 28, 128, 128), (4, 4), small).parts == 2
    assert plan(Layer(1, 56, 56, 64, 64), (4, 4), small).parts == 1
    assert plan(Layer(1, 28, 28, 128, 144), (4, 4), small).parts == 1


def test_groups_are_small_if_l2_holds_weights_and_intermediate_values():
    core = replace(CORE, caches=(48 << 10, 1 << 20, 32 << 20))
    for threads in (1, 2):
        found = plan(Layer(1, 56, 56, 64, 64), (4, 4), replace(core, threads=threads))
        assert (found.group, found.phases, found.parts) == (1, False, 1)


def test_plans():
    """Early layers run in small groups or at once, later ones at once. Weights larger than the caches gain
    nothing.
    """
    early, late = Layer(1, 56, 56, 64, 64), Layer(1, 7, 7, 512, 512)
    best = plan(early, (4, 4), CORE)
    assert best.cycles < plan(early, (2, 2), CORE).cycles < direct_cycles(early, CORE)
    assert 14 % best.group == 0
    assert plan(late, (4, 4), CORE).cycles > direct_cycles(late, CORE)
    assert not plan(Layer(8, 224, 224, 64, 64), (4, 4), Core(16, 32, CORE.caches, 64)).phases
    narrow = replace(CORE, lanes=8, registers=16)
    assert plan(late, (4, 4), narrow).cycles > plan(late, (4, 4), CORE).cycles


@pytest.mark.parametrize("threads", [1, 2])
def test_narrow_tiles_are_faster_if_threads_are_memory_bound(threads):
    """One core has the weights of whole tiles while it multiplies; two have not, and take fewer weights."""
    core = replace(CORE, caches=(48 << 10, 1 << 20, 32 << 20), threads=threads)
    early, middle, late = (Layer(1, s, s, c, c) for s, c in ((28, 128), (14, 256), (7, 512)))
    assert plan(early, (4, 4), core).cycles < plan(early, (4, 2), core).cycles
    narrow = [plan(middle, (4, 2), core).cycles, plan(late, (2, 1), core).cycles]
    whole = [plan(middle, (4, 4), core).cycles, plan(late, (2, 2), core).cycles]
    assert (narrow[0] < 0.95 * whole[0]) == (threads == 2)
    assert (narrow[1] < whole[1]) == (threads == 2)


def test_tiles_of_stride_two_are_square():
    assert tiles_of(4, 1) == [(4, 4), (4, 2)]
    assert tiles_of(2, 1) == [(2, 2), (2, 1)]
    assert tiles_of(4, 2) == [(4, 4)]


def test_plans_of_stride_two():
    """Tiles pay while their weights, up to nine times the windows, come faster than the direct products."""
    alone = replace(CORE, threads=1, units=1)
    early, middle, late = (Layer(1, s, s, c, c, 2) for s, c in ((28, 128), (14, 256), (7, 512)))
    assert plan(early, (4, 4), alone).cycles < plan(early, (2, 2), alone).cycles < direct_cycles(early, alone)
    assert (
        plan(middle, (2, 2), alone).cycles
        < direct_cycles(middle, alone)
        < 2 * plan(middle, (4, 4), alone).cycles
    )
    assert plan(late, (2, 2), alone).cycles > 0.9 * direct_cycles(late, alone)


def test_plans_count_reads_of_other_threads_data():
    """Stages that are parallel one by one exchange everything; if that is much, groups of rows are better."""
    large, small = Layer(1, 56, 56, 64, 64), Layer(1, 14, 14, 256, 256)
    assert not plan(large, (4, 4), CORE).phases
    assert plan(small, (4, 4), CORE).phases
    assert not plan(small, (4, 4), replace(CORE, threads=1)).phases


def test_plans_for_fewer_units():
    """With fewer multiplications per cycle, both the tiles and the direct convolution take longer."""
    layer, half = Layer(1, 28, 28, 128, 128), replace(CORE, units=1)
    assert 1.9 < direct_cycles(layer, half) / direct_cycles(layer, CORE) < 2
    assert (
        plan(layer, (4, 4), CORE).cycles
        < plan(layer, (4, 4), half).cycles
        < 2 * plan(layer, (4, 4), CORE).cycles
    )
