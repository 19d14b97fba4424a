"""Every op on a machine with thread axes: rules, all passes, and launches in the interpreter."""

from __future__ import annotations

from itertools import islice

import pytest

from dlc_core.driver import find_target
from dlc_core.passes.tir import schedule_kernels
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.testing.cases import op_cases, symbolic_cases
from dlc_core.testing.runner import check_outcomes, run_cases
from tests.schedule.rules.gpu.machines import Launching

with fresh_registry({}):
    OPS = list(registry().ops)
LONG = {"attention", "conv", "conv_transpose", "max_pool", "avg_pool", "winograd_conv"}


@pytest.fixture(scope="module")
def launching():
    with fresh_registry({"launching": Launching()}):
        yield find_target("launching")


@pytest.fixture
def unscheduled(monkeypatch):
    """The names of kernels with results that no rule schedules."""
    names = []
    whole = schedule_kernels.ScheduleKernels.run_function

    def watched(self, func, context):
        made = whole(self, func, context)
        if made.attrs.get("rule") == "none" and made.attrs["why_not"]:
            names.append((func.name, made.attrs["why_not"]))
        return made

    monkeypatch.setattr(schedule_kernels.ScheduleKernels, "run_function", watched)
    return names


def test_one_sample_of_each_op(launching, unscheduled):
    cases = [
        case
        for name in OPS
        for case in islice(op_cases(registry().ops[name], ("float32", "int64", "bool")), 1)
    ]
    check_outcomes(run_cases(cases, launching))
    assert unscheduled == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_every_sample(name, launching, unscheduled):
    decl = registry().ops[name]
    dtypes = ("float32", "float16", "int32", "int64", "uint8", "bool") if name in LONG else ()
    check_outcomes(run_cases(op_cases(decl, dtypes), launching))
    check_outcomes(run_cases(symbolic_cases(decl), launching))
    assert unscheduled == []
