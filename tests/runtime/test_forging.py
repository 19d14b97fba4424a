"""Forged headers with right checksums are refused, and no call of such a file ends the process."""

from __future__ import annotations

import os

import pytest

import dlc_core as dlc
from dlc_core.diag import ArtifactError
from dlc_core.testing.networks import mlp
from tests.forging.files import forged
from tests.forging.workers import run

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
HARMLESS = {"ArtifactError", "UsageError", "called", "refused", "too large"}


@forking
@pytest.mark.parametrize("model", ["mlp", "dims", "programs", "quantised", "data_dims"])
def test_forged_headers_do_no_harm(model):
    """Static and symbolic dims, several entry points, bytes, and a program that the host runs."""
    pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")
    found = run(80, 1, "llvm", models=(model,))
    assert set(found) <= HARMLESS
    assert found["ArtifactError"] > 50


@forking
@pytest.mark.parametrize("target", ["reference", "reference -level=tir"])
def test_a_right_contract_does_no_harm_to_interpreted_code(target):
    found = run(120, 3, target, contract=True, models=("mlp", "dims", "functions"))
    assert set(found) <= HARMLESS
    assert found["ArtifactError"] > 60


@pytest.mark.parametrize("target", ["../x", "/etc/hostname", "x/y", ""])
def test_an_unknown_target_is_an_error_of_the_file(tmp_path, target):
    path = tmp_path / "m.dlc"
    dlc.compile(mlp(), "reference", cache=False).save(path)
    data = forged(path.read_bytes(), lambda header: header.update(target=target), contract=True)
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="is not known here"):
        dlc.open(path, trust=True)
