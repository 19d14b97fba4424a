"""The package is a plugin of dlc, and imports no torch before it is used."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed: make .venv/.ready-torch")
pytest.importorskip("dlc_frontend_torch", reason="dlc-frontend-torch is not installed")


def test_torch_is_imported_only_when_it_is_used():
    code = "import sys, dlc_core as dlc; dlc.plugins(); assert dlc.torch; print('torch' in sys.modules)"
    without = "import sys, dlc_core as dlc; dlc.plugins(); print('torch' in sys.modules)"
    found = [
        subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=True).stdout.strip()
        for each in (code, without)
    ]
    assert found == ["True", "False"]
