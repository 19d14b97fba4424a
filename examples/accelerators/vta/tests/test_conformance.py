"""The conformance kit. The partitioner says what the machine takes; the kit runs the rest on the host."""

from __future__ import annotations

import pytest
from dlc_backend_vta.config import Config
from dlc_backend_vta.support import accepts

from dlc_core.graph import param
from dlc_core.ir.types import tensor_type
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.plugin.registry import registry
from dlc_core.testing import conformance_suite
from dlc_core.testing.cases import op_cases
from dlc_core.testing.runner import PASSED, run_cases, usable_target

TestLevel0 = conformance_suite("vta", levels=["device"])
TestMore = pytest.mark.slow(
    conformance_suite("vta", levels=["ops", "graphs", "models", "hostile"], graphs=20)
)


def taken(name: str) -> list[str]:
    """The cases of an op whose sample runs completely on the machine."""
    decl, found = registry().ops[name], []
    for number, sample in enumerate(decl.samples):
        for dtype in sample_dtypes(decl, sample):
            arrays = make_inputs(sample, dtype)
            given = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
            if accepts(decl.build(*given, **sample.attrs), Config()) is True:
                found.append(f"ops/{name}/{number}/{dtype}")
    return found


@pytest.mark.parametrize("name", [pytest.param("conv", marks=pytest.mark.slow), "matmul", "max_pool"])
def test_samples_run_on_the_card(name):
    """Results are right and computed on the card: each sample is a launch."""
    expected = taken(name)
    assert expected
    cases = [case for case in op_cases(registry().ops[name]) if case.name in expected]
    device = registry().devices["vta"]
    before = device.launches
    outcomes = run_cases(cases, usable_target("vta"))
    assert {outcome.status for outcome in outcomes} == {PASSED}
    assert device.launches - before >= len(cases)
