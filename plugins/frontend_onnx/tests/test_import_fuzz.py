"""For any model, the import returns a module or raises a `DlcError`, within limits of time and memory."""

from __future__ import annotations

import random

import pytest
from dlc_frontend_onnx.importer import load
from dlc_frontend_onnx.testing import fuzz, suite
from dlc_frontend_onnx.testing.mutations import STRUCTURED
from dlc_frontend_onnx.testing.semantic import CHANGES
from onnx import ModelProto

from dlc_core.diag import DlcError

pytestmark = pytest.mark.filterwarnings("ignore::dlc_frontend_onnx.symbols.WrongShapeWarning")

MODULES = (
    "averagepool conv einsum expand gather gemm if_ loop lstm maxpool pad reducesum reshape resize scan slice"
    " split squeeze transpose unsqueeze where"
)


def imported(count, seed):
    report = fuzz.run(load, count, seed=seed, memory=8 << 30)
    assert report.failures == []
    assert report.total == count
    assert report.accepted > count // 50
    assert report.grown_mib < 500


def test_mutants_are_imported_or_refused():
    imported(150, seed=0)


@pytest.mark.slow
def test_many_mutants_are_imported_or_refused():
    imported(10_000, seed=1)


def changed(count, seed, modules=()):
    """Node tests of the ONNX package with attributes, types, inputs and constants changed at random."""
    cases = suite.cases(*modules)
    outcomes = {"imported": 0, "refused": 0}
    for number in range(count):
        rng = random.Random(f"{seed}:{number}")
        case = rng.choice(cases)
        model = ModelProto.FromString(case.model.SerializeToString())
        inputs = case.data_sets[0][0]
        for _ in range(rng.choice((1, 1, 2, 3))):
            rng.choice(CHANGES)(rng, model, inputs)
        if rng.random() < 0.1:
            rng.choice(STRUCTURED)(rng, model)
        try:
            load(model)
            outcomes["imported"] += 1
        except DlcError:
            outcomes["refused"] += 1
    return outcomes


def test_changed_node_tests_are_imported_or_refused():
    outcomes = changed(120, 0, tuple(MODULES.split()))
    assert min(outcomes.values()) > 12


@pytest.mark.slow
def test_many_changed_node_tests_are_imported_or_refused():
    changed(10_000, 1)
