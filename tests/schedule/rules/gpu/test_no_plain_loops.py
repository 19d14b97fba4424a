"""Reductions are not plain loops of a thread: GEMMs are tiled and rows are distributed, for constant and
symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlc_core.driver import context_for, find_target, pipelines
from dlc_core.ir.module import IRModule
from dlc_core.passes import Pipeline
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.schedule.rules.analysis import reductions
from dlc_core.testing.cases import op_cases, symbolic_cases
from dlc_core.testing.models import all_models
from dlc_core.tir.stmt import PrimFunc
from tests.schedule.rules.gpu.machines import USUAL, Launching

with fresh_registry({}):
    OPS = list(registry().ops)
    NETWORKS = [name for name in all_models() if name.endswith("/float32")]
USED = {
    "avg_pool", "conv", "conv_transpose", "integer_conv", "integer_matmul", "layer_norm", "matmul",
    "max_pool", "reduce_any", "softmax",
}  # fmt: skip
QUICK = {"encoder/float32", "micro-mobilenet/float32"}
MADE_FOR_PROCESSORS = ("row_filter_conv", "strassen_matmul", "winograd_conv")
ALLOWED = {
    "ops/conv/7/symbolic": "groups of an unknown number of channels",
    **{f"ops/{op}/": "made for processors alone" for op in MADE_FOR_PROCESSORS},
    "ops/packed_matmul/2/": "weights with more columns than there are results, for processors alone",
}
"""Cases that may be plain loops, by the beginnings of their names, with reasons."""


@pytest.fixture(scope="module", autouse=True)
def target():
    with fresh_registry({"launching": Launching(USUAL)}):
        yield find_target("launching")


def plain(module: IRModule, target) -> Iterator[str]:
    """The reasons of kernels of a model that reduce in plain loops."""
    context = context_for(target)
    stages = pipelines(target, context)
    for stage in ("graph", "lower"):
        module = Pipeline(tuple(stages[stage])).run(module, context)
    for func in module.of_kind(PrimFunc).values():
        if reductions(func):
            attrs = ScheduleKernels().run_function(func, context).attrs
            if attrs["rule"] in ("gpu.loops", "gpu.single_thread") or (
                attrs["rule"] == "none" and attrs["why_not"]
            ):
                yield f"{func.name} is {attrs['rule']}: {attrs['why_not']}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in USED else pytest.mark.slow) for name in OPS]
)
def test_samples(name, target):
    decl = registry().ops[name]
    for case in (*op_cases(decl, ("float32", "int32")), *symbolic_cases(decl)):
        if not any(case.name.startswith(prefix) for prefix in ALLOWED):
            assert list(plain(case.module, target)) == [], case.name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NETWORKS]
)
def test_networks(name, target):
    for case in all_models()[name].cases():
        assert list(plain(case.module, target)) == []
