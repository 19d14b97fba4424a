"""Forged headers with right checksums are refused, and no call of such a file ends the process."""

from __future__ import annotations

import os

import pytest

from tests.forging.workers import run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
def test_forged_headers_do_no_harm():
    pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")
    found = run(300, 1, "llvm")
    assert set(found) <= {"ArtifactError", "called", "refused"}
    assert found["ArtifactError"] > 200
