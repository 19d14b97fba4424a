"""Imports of programs stop at the next node, and leave nothing behind."""

import numpy as np
import pytest
import torch
from dlc_frontend_torch.importer import Importer

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import CancelledError

LENGTH, ENOUGH = 200, 10


class Chain(torch.nn.Module):
    """Sines of sines."""

    def forward(self, x):
        for _ in range(LENGTH):
            x = torch.sin(x)
        return x


def test_no_node_is_converted_after_the_token_is_cancelled(monkeypatch, tmp_path):
    x, token, seen, convert = torch.ones(4), dlc.CancelToken(), [], Importer._convert
    program = torch.export.export(Chain(), (x,))

    def counted(self, node):
        seen.append(node)
        if len(seen) == ENOUGH:
            token.cancel()
        return convert(self, node)

    monkeypatch.setattr(Importer, "_convert", counted)
    with config.override(cache_dir=tmp_path), pytest.raises(CancelledError):
        dlc.compile(program, "reference", cancel=token, cache=True)
    assert len(seen) == ENOUGH
    assert not list(tmp_path.rglob("*.dlc"))
    monkeypatch.undo()
    exe = dlc.compile(program, "reference", cache=False)
    np.testing.assert_allclose(exe(x.numpy()), Chain()(x).numpy(), rtol=1e-5)
