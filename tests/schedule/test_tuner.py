"""Schedules from a tuner: traces that replace the choice of rules."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.hooks import hookimpl
from dlc_core.ir.structural import structural_hash
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.plugin.registry import fresh_registry
from dlc_core.schedule import Schedule
from dlc_core.target import Description
from dlc_core.testing.schedules import target_of
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For

MACHINE = target_of(Description(vector_bits=256, cores=2))


def double(size=24):
    x = te.placeholder((size,), name="x")
    return te.create_prim_func([x], [te.compute((size,), lambda i: x[i] * 2.0, name="y")], "double")


def by_hand(func):
    """A schedule made by hand: an inner loop of three unrolled iterations."""
    schedule = Schedule(func)
    (loop,) = schedule.get_loops(schedule.get_block("y"))
    schedule.unroll(schedule.split(loop, [None, 3])[1])
    return schedule


def scheduled(func, tuner):
    return ScheduleKernels().run_function(func, PassContext(target=MACHINE, tuner=tuner))


@pytest.mark.parametrize("form", [lambda trace: trace, lambda trace: trace.to_json()], ids=["trace", "json"])
def test_a_tuner_is_asked_first(form):
    func, calls = double(), []

    def tuner(kernel, target):
        calls.append((kernel, target))
        return form(by_hand(kernel).trace)

    made = scheduled(func, tuner)
    assert calls == [(func, MACHINE)]
    assert made.attrs["rule"] == "tuned"
    assert [s.kind for s in stmts(made.body) if isinstance(s, For)] == ["serial", "unrolled"]


def test_rules_apply_if_the_tuner_has_no_answer():
    assert scheduled(double(), lambda kernel, target: None).attrs["rule"] == "cpu.map"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (3, "the tuner gave a int"),
        ("{", "no JSON"),
        (by_hand(double()).trace.to_json().replace('"y"', '"z"'), "no block 'z'"),
    ],
    ids=["number", "damaged", "of another kernel"],
)
def test_rules_apply_if_an_answer_is_invalid(answer, why):
    made = scheduled(double(), lambda kernel, target: answer)
    assert made.attrs["rule"] == "cpu.map"
    (reason,) = made.attrs["why_not"]
    assert reason.startswith("tuned: ")
    assert why in reason


def test_a_plugin_is_a_tuner():
    known = {structural_hash(double()): by_hand(double()).trace}

    class Database:
        DLC_API = "0.1"

        @hookimpl
        def dlc_schedule(self, kernel, target):
            return known.get(structural_hash(kernel))

    with fresh_registry({"database": Database()}):
        for size, rule in ((24, "tuned"), (25, "cpu.map")):
            exe = dlc.build(double(size), "reference -level=tir")
            np.testing.assert_array_equal(exe(np.ones(size, np.float32)), 2)
            assert exe.explain().kernels[0].rule == rule
