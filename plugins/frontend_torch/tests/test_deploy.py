"""Files that run without torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import dlc_core as dlc
from dlc_core.diag import UsageError


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x).relu()


def test_an_artefact_runs_in_a_process_without_torch(tmp_path):
    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 4)
    (path,) = dlc.torch.export(model, (x,), tmp_path / "m.dlc")
    np.save(tmp_path / "x.npy", x.numpy())
    code = (
        "import sys, numpy as np, dlc_core as dlc; "
        f"y = dlc.open({str(path)!r})(np.load({str(tmp_path / 'x.npy')!r})); "
        f"assert 'torch' not in sys.modules; np.save({str(tmp_path / 'y.npy')!r}, y)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_c_sources(tmp_path):
    files = dlc.torch.export(Model(), (torch.randn(2, 4),), tmp_path / "m.c")
    assert {file.suffix for file in files} >= {".c", ".h"}
    assert all(file.stat().st_size for file in files)


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no suffix"):
        dlc.torch.export(Model(), (torch.randn(2, 4),), tmp_path / "m.exe")
