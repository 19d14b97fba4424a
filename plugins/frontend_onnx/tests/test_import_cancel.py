"""Imports of models stop at the next node, and leave nothing behind."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from dlc_frontend_onnx import scope
from onnx import TensorProto, helper

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import CancelledError

SOON = 2.0
"""Seconds within which an import ends on a busy machine; it takes less than 0.2 on an idle one."""


def chain(length: int) -> bytes:
    """A model of `length` nodes in a row."""
    nodes = [helper.make_node("Sin" if i % 2 else "Cos", [f"x{i}"], [f"x{i + 1}"]) for i in range(length)]
    ends = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [4]) for i in (0, length)]
    made = helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:]))
    return bytes(made.SerializeToString())


def test_the_import_of_a_huge_model_stops_soon(tmp_path) -> None:
    model, at, token = chain(100_000), [], dlc.CancelToken()

    def cancel() -> None:
        at.append(time.perf_counter())
        token.cancel()

    dlc.load(chain(2))  # so that the time is that of the import
    with token, config.override(cache_dir=tmp_path):
        timer = threading.Timer(0.3, cancel)
        timer.start()
        with pytest.raises(CancelledError):
            dlc.load(model)
        assert time.perf_counter() - at[0] < SOON
    assert not list(tmp_path.iterdir())


def test_no_node_is_converted_after_the_token_is_cancelled(monkeypatch, tmp_path) -> None:
    token, seen, convert = dlc.CancelToken(), [], scope.Scope._convert

    def counted(self, node):
        seen.append(node)
        if len(seen) == 10:
            token.cancel()
        return convert(self, node)

    monkeypatch.setattr(scope.Scope, "_convert", counted)
    with config.override(cache_dir=tmp_path), pytest.raises(CancelledError):
        dlc.compile(chain(1000), "reference", cancel=token, cache=True)
    assert len(seen) == 10
    assert not list(tmp_path.rglob("*.dlc"))
    monkeypatch.undo()
    exe = dlc.compile(chain(3), "reference", cache=False)
    np.testing.assert_allclose(exe(np.zeros(4, np.float32)), np.cos(np.sin(np.ones(4))), rtol=1e-6)
