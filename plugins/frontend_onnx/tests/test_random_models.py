"""Random valid models, compared with the evaluator of the onnx package."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.compare import parse
from dlc_frontend_onnx.testing.random_models import differential
from dlc_frontend_onnx.testing.score import score_of
from onnx.reference import ReferenceEvaluator

from dlc_core.diag import UnsupportedError


def test_the_same_seed_gives_the_same_model():
    one, two = differential.draw(7), differential.draw(7)
    assert one.model.SerializeToString() == two.model.SerializeToString()
    assert len(one.model.graph.node) > 0


def test_random_models_match():
    refused = 0
    for seed in range(40):
        try:
            differential.judge(seed, ops=differential.TRUSTED)
        except UnsupportedError:
            refused += 1
    assert refused < 4


def test_a_wrong_result_is_found_and_reduced(tmp_path, monkeypatch):
    class Wrong(differential.ByDlc):
        def __call__(self, model, feeds):
            found = list(super().__call__(model, feeds))
            if any(node.op_type == "Relu" for node in model.graph.node):
                found = [array + 1 if array.dtype.kind == "f" else array for array in found]
            return found

    # A peer that is always available: onnxruntime may be missing, or not support a model's dtypes.
    monkeypatch.setattr(differential, "by_onnxruntime", differential.ByDlc("reference"))
    monkeypatch.setattr(differential, "ByDlc", Wrong)
    found = {}
    for seed in range(20):
        try:
            differential.judge(seed, "reference", tmp_path, ("Relu", "Add", "Reshape", "Transpose"))
        except AssertionError as error:
            found[f"seed{seed}.onnx"] = str(error)
    assert found
    assert all("agrees with the evaluator" in text for text in found.values())
    assert {path.name for path in tmp_path.glob("*.onnx")} == set(found)
    for name in found:
        assert [node.op_type for node in onnx.load(tmp_path / name).graph.node].count("Relu") == 1


@pytest.mark.slow
def test_many_random_models_match():
    pytest.importorskip("onnxruntime")
    names = {f"random {seed}": partial(differential.judge, seed) for seed in range(1000, 3000)}
    score = score_of(names, limit=120.0)
    bad = [v.reason for outcome in ("wrong", "crashed", "late") for v in score.of(outcome)]
    assert bad == []


@pytest.mark.parametrize(
    "body",
    [
        "s = Shape(x) y = Add(s, s)",
        "a = InstanceNormalization(x, w, w) y = Relu(a)",
        "a = BatchNormalization(x, w, w, w, w) y = Relu(a)",
    ],
)
def test_defects_found_by_random_models(body):
    kind = "int64[3] y" if "Shape" in body else "float[a, b, c] y"
    model = parse(f"g (float[n, m, k] x) => ({kind}) <float[3] w = {{1, 2, 3}}> {{ {body} }}")
    x = np.arange(30, dtype=np.float32).reshape(2, 3, 5) % 7
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = differential.ByDlc()(model, {"x": x})
    assert differential.difference(found, expected) == ""
