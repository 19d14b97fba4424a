"""GroupQueryAttention and related operators, compared with ONNX Runtime if it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check_runtime, model_of, run

from dlc_core.diag import UnsupportedError

pytest.importorskip("onnxruntime")
R = np.random.default_rng(0)
HEADS = {"num_heads": 4, "kv_num_heads": 2}


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def i(*values):
    return np.array(values, np.int32)


def total(value):
    return np.array(value, np.int32)


def prompt(batch=2, steps=5, size=16):
    return [f(batch, steps, 4 * size), f(batch, steps, 2 * size), f(batch, steps, 2 * size), None, None]


def step(batch=2, past=6, steps=1, size=16):
    caches = [f(batch, 2, past, size), f(batch, 2, past, size)]
    return [f(batch, steps, 4 * size), f(batch, steps, 2 * size), f(batch, steps, 2 * size), *caches]


TABLES = [np.cos(f(16, 8)), np.sin(f(16, 8))]

CASES = {
    "prompt": ([*prompt(), i(4, 4), total(5)], {}),
    "step": ([*step(), i(6, 6), total(7)], {}),
    "several steps": ([*step(1, 6, 3), i(8), total(9)], {}),
    # Cache rows after the last one are undefined.
    "step in place": ([*step(2, 12), i(6, 9), total(10)], {"compared": (0,)}),
    "turned prompt": ([*prompt(), i(4, 4), total(5), *TABLES], {"do_rotary": 1}),
    "turned step": ([*step(), i(6, 6), total(7), *TABLES], {"do_rotary": 1, "rotary_interleaved": 1}),
    "half turned": ([*step(size=32), i(6, 6), total(7), *TABLES], {"do_rotary": 1}),
    "packed": ([f(2, 5, 128), None, None, None, None, i(4, 4), total(5), *TABLES], {"do_rotary": 1}),
    "window": ([*prompt(), i(4, 4), total(5)], {"local_window_size": 3}),
    "window step": ([*step(), i(6, 6), total(7)], {"local_window_size": 4}),
    "cap": ([*step(), i(6, 6), total(7)], {"softcap": 0.5, "scale": 0.7}),
    "smooth": ([*step(), i(6, 6), total(7)], {"smooth_softmax": 1}),
    "sink": ([*prompt(), i(4, 4), total(5), None, None, None, None, f(4)], {}),
    "bias": ([*step(), i(6, 6), total(7), None, None, None, f(1, 4, 1, 7)], {}),
    "both ways": ([*prompt(), i(4, 4), total(5)], {"causal": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_group_query_attention(name):
    inputs, attributes = CASES[name]
    check_runtime("GroupQueryAttention", inputs, 3, **HEADS, **attributes)


def test_prompts_of_several_lengths_are_padded_at_their_ends():
    found, expected = check_runtime(
        "GroupQueryAttention", [*prompt(), i(4, 2), total(5), *TABLES], 3, compared=(), **HEADS, do_rotary=1
    )
    np.testing.assert_allclose(found[0][0], expected[0][0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0][1, :3], expected[0][1, :3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1][1, :, :3], expected[1][1, :, :3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attributes", [{"qk_output": 1}, {"k_quant_type": "PER_TENSOR"}])
def test_unsupported_attributes_are_errors(attributes):
    with pytest.raises(UnsupportedError, match="GroupQueryAttention with"):
        check_runtime("GroupQueryAttention", CASES["prompt"][0], 3, **HEADS, **attributes)


def test_gemma_rotary_embedding():
    angles, q, k = f(2, 3, 8), f(2, 4, 3, 8), f(2, 1, 3, 8)
    q_half, k_half = f(2, 4, 3, 8), f(2, 1, 3, 8)
    found = run(*model_of("GemmaRotaryEmbedding", [angles, q, q_half, k, k_half], 2))
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    np.testing.assert_allclose(found[0], q * cos + q_half * sin, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], k * cos + k_half * sin, rtol=1e-5, atol=1e-6)
