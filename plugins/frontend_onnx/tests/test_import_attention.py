"""The Attention operators of ONNX and com.microsoft become one kernel on CPUs."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")
pytest.importorskip("dlc_backend_llvm")

SHARED = "float[1,6,5,8] q, float[1,2,7,8] k, float[1,2,7,8] v"
CASES = {
    "plain": ("float[2,3,5,8] q, float[2,3,7,8] k, float[2,3,7,8] v", "float[2,3,5,8] y", "", "q,k,v"),
    "heads share keys": (SHARED, "float[1,6,5,8] y", "scale=0.1", "q,k,v"),
    "causal": (SHARED, "float[1,6,5,8] y", "is_causal=1", "q,k,v"),
    "a mask of bools": (SHARED + ", bool[5,7] m", "float[1,6,5,8] y", "is_causal=1", "q,k,v,m"),
    "an added mask": (SHARED + ", float[1,6,5,7] m", "float[1,6,5,8] y", "", "q,k,v,m"),
    "joined heads": (
        "float[1,5,48] q, float[1,7,16] k, float[1,7,16] v",
        "float[1,5,48] y",
        "q_num_heads=6, kv_num_heads=2",
        "q,k,v",
    ),
}


@pytest.mark.parametrize(("inputs", "outputs", "attrs", "names"), CASES.values(), ids=CASES)
def test_attention_is_one_kernel(inputs, outputs, attrs, names):
    attrs = f"<{attrs}>" if attrs else ""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 23]>'
        f" g ({inputs}) => ({outputs}) {{ y = Attention {attrs} ({names}) }}"
    )
    rng = np.random.default_rng(3)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        drawn = rng.standard_normal(shape).astype(np.float32)
        is_float = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[value.name] = drawn if is_float else drawn < 0.4
    exe = dlc.compile(model, "llvm -num-threads=1", cache=False)
    assert "cpu.attention" in str(exe.explain())
    (expected,) = reference.ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=1e-5, atol=1e-5)
