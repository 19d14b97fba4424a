"""The frontend's models for level 3 of the conformance kit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dlc_frontend_onnx.testing import models

from dlc_core.driver import find_target
from dlc_core.testing.cases import Trial
from dlc_core.testing.models import Models, all_models
from dlc_core.testing.runner import run_cases


def test_the_kit_has_the_models():
    assert {group.name for group in models.MODELS} <= set(all_models())


@pytest.mark.parametrize("family", ["arithmetic", "reductions", "recurrent"])
def test_families_pass_on_the_references(family):
    (group,) = (g for g in models.MODELS if g.name == f"onnx-{family}")
    found = run_cases(group.named(), find_target("reference"))
    assert len(found) >= 15
    assert [o for o in found if o.status != "passed"] == []
    assert all(o.case.startswith(f"models/onnx-{family}/test_") for o in found)


def test_a_wrong_stored_output_is_found():
    (stored, _) = Models("net", lambda: models.network_cases("squeezenet")).named()
    assert stored.name == "models/net/stored"
    ((right,),) = (trial.expected for trial in stored.trials)
    wrong = replace(stored, trials=[Trial(stored.trials[0].inputs, [right * np.float32(1.01)])])
    (outcome,) = run_cases([wrong], find_target("reference"))
    assert outcome.status == "failed"
