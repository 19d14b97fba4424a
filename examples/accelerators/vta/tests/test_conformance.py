"""The conformance kit: level 0, level 1 for the operations that the machine takes, level 2."""

from __future__ import annotations

import pytest
from dlc_backend_vta.config import Config
from dlc_backend_vta.support import CHECKS, accepts

from dlc_core.graph import param
from dlc_core.ir.types import tensor_type
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.plugin.registry import registry
from dlc_core.testing import conformance_suite
from dlc_core.testing.cases import op_cases
from dlc_core.testing.runner import PASSED, run_cases, usable_target

INTEGERS = ("int8", "uint8", "int32")
OPS = (*CHECKS, "integer_conv", "integer_matmul")

TestLevel0 = pytest.mark.slow(conformance_suite("vta", levels=["device"]))
TestLevel1 = pytest.mark.slow(conformance_suite("vta", levels=["ops"], dtypes=INTEGERS, ops=OPS))
TestLevel2 = pytest.mark.slow(conformance_suite("vta", levels=["graphs"], graphs=20))


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
