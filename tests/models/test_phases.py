"""Parts of published networks, as exporters write them, through the phases of `benchmarks.corpus.phases`.

The whole networks at their published sizes are in test_sizes.py.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dlc_core.config import config

phases = pytest.importorskip("benchmarks.corpus.phases", reason="only the repository has the benchmarks")
pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

HEAD = '<ir_version: 10, opset_import: ["" : 18]> g '
WINDOWS = """(float[1, 16, 15, 15] x, float[16, 48] w1, float[16, 16] w2) => (float[1, 16, 15, 15] y) {
    p = Constant <value_ints = [0, 0, 0, 0, 0, 0, 6, 6]> ()
    a = Constant <value_ints = [1, 16, 3, 7, 3, 7]> ()
    b = Constant <value_ints = [9, 49, 3, 2, 8]> ()
    c = Constant <value_ints = [9, 49, 16]> ()
    d = Constant <value_ints = [1, 3, 3, 7, 7, 16]> ()
    e = Constant <value_ints = [1, 16, 21, 21]> ()
    s = Constant <value_ints = [0, 0]> () t = Constant <value_ints = [15, 15]> ()
    axes = Constant <value_ints = [2, 3]> ()
    padded = Pad (x, p) parted = Reshape (padded, a)
    windows = Transpose <perm = [0, 2, 4, 3, 5, 1]> (parted)
    flat = Reshape (windows, c) qkv = MatMul (flat, w1) heads = Reshape (qkv, b)
    turned = Transpose <perm = [2, 0, 3, 1, 4]> (heads)
    q, k, v = Split <axis = 0, num_outputs = 3> (turned)
    kt = Transpose <perm = [0, 1, 2, 4, 3]> (k) scores = MatMul (q, kt) share = Softmax <axis = -1> (scores)
    found = MatMul (share, v) back = Transpose <perm = [0, 1, 3, 2, 4]> (found)
    joined = Reshape (back, c) out = MatMul (joined, w2) again = Reshape (out, d)
    rows = Transpose <perm = [0, 5, 1, 3, 2, 4]> (again) whole = Reshape (rows, e)
    cut = Slice (whole, s, t, axes) y = Add (cut, x) }"""
DISTANCES = """(float[1, 24, 8, 8] x, float[1, 24, 4, 4] z, float[36, 24, 1, 1] w1, float[36, 24, 1, 1] w2)
        => (float[1, 4, 80] boxes, float[1, 4, 80] scores) {
    a = Constant <value_ints = [1, 36, -1]> () b = Constant <value_ints = [1, 4, 8, 80]> ()
    sizes = Constant <value_ints = [32, 4]> ()
    bins = Constant <value_floats = [0., 1., 2., 3., 4., 5., 6., 7.]> ()
    c = Constant <value_ints = [1, 8, 1, 1]> () kernel = Reshape (bins, c)
    axis = Constant <value_ints = [1]> ()
    first = Conv (x, w1) second = Conv (z, w2) f = Reshape (first, a) s = Reshape (second, a)
    both = Concat <axis = 2> (f, s) box, score = Split <axis = 1> (both, sizes)
    shaped = Reshape (box, b) turned = Transpose <perm = [0, 2, 1, 3]> (shaped)
    share = Softmax <axis = 1> (turned) weighted = Mul (share, kernel)
    boxes = ReduceSum <keepdims = 0> (weighted, axis) scores = Sigmoid (score) }"""
STEP = """(float[1, 1, 20] x, float[1, 2, 13, 10] pastk, float[1, 2, 13, 10] pastv, float[20, 20] w1,
        float[20, 20] w2, float[20, 20] w3, float[20, 37] w4) => (float[1, 1, 37] y, float[1, 2, 14, 10] k,
        float[1, 2, 14, 10] v) {
    a = Constant <value_ints = [1, 1, 2, 10]> () b = Constant <value_ints = [1, 1, 20]> ()
    q0 = MatMul (x, w1) k0 = MatMul (x, w2) v0 = MatMul (x, w3)
    q1 = Reshape (q0, a) k1 = Reshape (k0, a) v1 = Reshape (v0, a)
    q = Transpose <perm = [0, 2, 1, 3]> (q1) k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
    v2 = Transpose <perm = [0, 2, 1, 3]> (v1) k = Concat <axis = 2> (pastk, k2)
    v = Concat <axis = 2> (pastv, v2)
    kt = Transpose <perm = [0, 1, 3, 2]> (k) scores = MatMul (q, kt) share = Softmax <axis = -1> (scores)
    found = MatMul (share, v) back = Transpose <perm = [0, 2, 1, 3]> (found) flat = Reshape (back, b)
    y = MatMul (flat, w4) }"""
LADDER = """(float[1, 3, 21, 21] x, float[10, 3, 3, 3] w1, float[12, 10, 3, 3] w2, float[12, 10, 2, 2] w3,
        float[2, 20, 1, 1] w4) => (float[1, 2, 20, 20] y) {
    one = Conv <pads = [1, 1, 1, 1]> (x, w1) first = Relu (one)
    half = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (first)
    two = Conv <pads = [1, 1, 1, 1]> (half, w2) second = Relu (two)
    up = ConvTranspose <strides = [2, 2]> (second, w3)
    s = Constant <value_ints = [0, 1]> () t = Constant <value_ints = [20, 21]> ()
    axes = Constant <value_ints = [2, 3]> () cut = Slice (first, s, t, axes)
    both = Concat <axis = 1> (cut, up) y = Conv (both, w4) }"""
SOUND = """(float[1, 5, 61] x, float[12, 5, 3] w1, float[12, 12, 3] w2, float[12, 1, 5] w3) => (float[1,
31, 12] y) {
    one = Conv <pads = [1, 1]> (x, w1) first = Elu (one)
    two = Conv <pads = [1, 1], strides = [2]> (first, w2) second = Elu (two)
    third = Conv <group = 12, pads = [2, 2]> (second, w3) near = Add (second, third)
    y = Transpose <perm = [0, 2, 1]> (near) }"""
MODELS = {
    "attention in windows with a tail": WINDOWS,
    "boxes as distances": DISTANCES,
    "a step with a cache": STEP,
    "a ladder of an odd size": LADDER,
    "sound": SOUND,
}


def written(folder, text):
    """Write a model with its weights, inputs and expected outputs."""
    model = onnx.parser.parse_model(HEAD + text)
    rng = np.random.default_rng(0)
    feeds = {}
    for given in list(model.graph.input):
        shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape).astype(np.float32)
        if given.name.startswith("w"):
            scale = np.float32(np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0]))
            model.graph.initializer.append(onnx.numpy_helper.from_array(array / scale, given.name))
            model.graph.input.remove(given)
        else:
            feeds[given.name] = array
    onnx.checker.check_model(model, full_check=True)
    expected = ReferenceEvaluator(model).run(None, feeds)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    arrays = {f"in_{name}": array for name, array in feeds.items()}
    np.savez(path.with_suffix(".npz"), **arrays, **{f"out_{i}": array for i, array in enumerate(expected)})
    return path


@pytest.mark.parametrize("name", MODELS)
def test_parts_of_networks(tmp_path, name):
    path = written(tmp_path, MODELS[name])
    with config.override(cache_dir=tmp_path / "cache"):
        found = {phase: phases.run_phase(path, phase)["outcome"] for phase in phases.PHASES}
    assert found == dict.fromkeys(phases.PHASES, "right")


def test_each_phase_has_a_process_whose_death_is_an_outcome(tmp_path, monkeypatch):
    path = written(tmp_path, STEP)
    found = phases.outcomes(path, ("2 threads", "cached"))
    assert phases.all_right(found)
    assert "1 of 1 right" in phases.rows({"m": found})
    path.write_bytes(b"no model")
    found = phases.outcomes(path, ("1 thread",))
    assert found["1 thread"]["outcome"].startswith("ended with 1")
    dies = tmp_path / "dies"
    dies.write_text("#!/bin/sh\nkill -SEGV $$\n")
    dies.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dies))
    found = phases.outcomes(path, ("1 thread",))
    assert found["1 thread"]["outcome"].startswith("ended with -11")
    assert "0 of 1 right" in phases.rows({"m": found})


def test_wrong_values_are_reported(tmp_path):
    path = written(tmp_path, STEP)
    with np.load(path.with_suffix(".npz")) as saved:
        arrays = dict(saved)
    arrays["out_0"] = arrays["out_0"] + np.float32(1e-2)
    np.savez(path.with_suffix(".npz"), **arrays)
    record = phases.run_phase(path, "1 thread")
    assert "output 0 is off by" in record["outcome"]
    assert "output 1" not in record["outcome"]
    assert json.loads(json.dumps(record)) == record
