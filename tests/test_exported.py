"""The check of exported models tells right from wrong."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

exported = pytest.importorskip("benchmarks.exported.checking")
TEXT = '<ir_version: 10, opset_import: ["" : 20]> g (float[3] x) => (float[3] y) { y = Relu(x) }'


@pytest.mark.parametrize(("shift", "outcome"), [(0, "right"), (1, "wrong")])
def test_outcomes(tmp_path, shift, outcome):
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    x = np.float32([-1, 0, 2])
    np.savez(path.with_suffix(".npz"), in_x=x, out_0=np.maximum(x, 0) + np.float32(shift))
    record = exported.check_one(path)
    assert record["outcome"] == outcome
    assert f"| m | {outcome} |" in exported.table([record])


def test_an_unknown_operator_is_the_outcome(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(TEXT.replace("Relu", "Unheard")).SerializeToString())
    np.savez(path.with_suffix(".npz"), in_x=np.zeros(3, np.float32), out_0=np.zeros(3, np.float32))
    assert "Unheard" in exported.check_one(path)["outcome"]


def test_outputs_that_do_not_depend_on_the_inputs_are_marked(tmp_path):
    path = tmp_path / "m.onnx"
    text = TEXT.replace("y = Relu(x)", "z = Mul(x, small) y = Add(z, one)")
    text = text.replace("(float[3] y) {", "(float[3] y) <float small = {1e-9}, float one = {1}> {")
    path.write_bytes(parser.parse_model(text).SerializeToString())
    x = np.float32([-1, 0, 2])
    np.savez(path.with_suffix(".npz"), in_x=x, out_0=np.ones(3, np.float32))
    assert exported.check_one(path)["outcome"] == "still"
