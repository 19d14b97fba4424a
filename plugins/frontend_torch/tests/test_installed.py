"""The package is a plugin of dlc, and imports no torch before it is used."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution

import pytest

pytest.importorskip("torch", reason="torch is not installed: make .venv/.ready-torch")


def _printed(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_torch_is_imported_only_when_it_is_used():
    try:
        distribution("dlc-frontend-torch")
    except PackageNotFoundError:
        pytest.skip("dlc-frontend-torch is not installed: make .venv/.ready-torch")
    code = "import sys, dlc_core as dlc; dlc.plugins(); dlc.torch.report(); print('torch' in sys.modules)"
    assert _printed(code) == "False"
    assert _printed("import torch, dlc_core as dlc; print(len(dlc.torch.report().graphs))") == "0"
