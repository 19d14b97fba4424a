"""A target with thread axes, from a model to its results: rules that bind loops, passes, kernels."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import fresh_registry
from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.script import script
from dlc_core.script.json import from_json
from dlc_core.target import STAGES, Description
from dlc_core.target.reference import KIND
from dlc_core.tir.stmt import PrimFunc

MACHINE = Description(
    thread_axes={"block.x": 1 << 31, "thread.x": 64},
    memory_scopes=("global", "shared", "local"),
    parallel=False,
)


class GroupReduction(ScheduleRule):
    """The threads of a group reduce each element; the next steps run on the first of them."""

    name, priority = "grid.group_reduction", 300

    def matches(self, func, machine):
        return bool(machine.description.thread_axes)

    def apply(self, schedule, machine):
        for block in schedule.get_blocks():
            axes = schedule.get(block).axes
            loops = schedule.get_loops(block)
            spatial = [loop for loop, axis in zip(loops, axes, strict=True) if axis.kind == "spatial"]
            reduce = [loop for loop, axis in zip(loops, axes, strict=True) if axis.kind == "reduce"]
            point = schedule.fuse(*spatial) if len(spatial) > 1 else spatial[0]
            if reduce:
                total = schedule.fuse(*reduce) if len(reduce) > 1 else reduce[0]
                steps, thread = schedule.split(total, [None, 4])
                schedule.reorder(thread, steps)
                schedule.bind(point, "block.x")
                schedule.bind(thread, "thread.x")
            else:
                group, thread = schedule.split(point, [None, 8])
                schedule.bind(group, "block.x")
                schedule.bind(thread, "thread.x")


class Grid:
    """The plugin of the target."""

    @hookimpl
    def dlc_targets(self):
        options = (replace(KIND.options[0], default="tir"), *KIND.options[1:])
        kind = replace(KIND, name="grid", device="shared", options=options, stages=STAGES)
        return [replace(kind, describe=lambda options: MACHINE)]

    @hookimpl
    def dlc_schedule_rules(self):
        return [GroupReduction()]


@pytest.fixture
def grid(devices):
    with fresh_registry({"devices": devices, "grid": Grid()}):
        yield


def test_a_model_runs_as_launches(grid):
    ops = dlc.ops()
    rng = np.random.default_rng(0)
    weight = rng.integers(-2, 3, (8, 5)).astype(np.float32)
    x, shift = param("x", tensor_type((3, 8))), param("shift", tensor_type((5,)))
    product = ops["matmul"].build(x, constant(weight))
    body = ops["reduce_max"].build(ops["add"].build(ops["relu"].build(product), shift), axes=(1,))
    exe = dlc.compile(IRModule({"main": Function("main", (x, shift), body)}), "grid")
    a, s = rng.integers(-3, 4, (3, 8)).astype(np.float32), rng.integers(-3, 4, 5).astype(np.float32)
    expected = (np.maximum(a @ weight, 0) + s).max(axis=1, keepdims=True)
    np.testing.assert_array_equal(exe(a, s).reshape(-1), expected.reshape(-1))
    assert {kernel.rule for kernel in exe.explain().kernels} == {"grid.group_reduction"}
    module = from_json(json.loads(exe.artifact.code))
    launched = {
        name: f.attrs["launch"] for name, f in module.of_kind(PrimFunc).items() if "launch" in f.attrs
    }
    assert launched
    assert set(launched.values()) == {("block.x", "thread.x")}
    assert "T.barrier()" in script(module)
