"""Intermediate values as outputs, at any depth of a model."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import parse
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc
from dlc_core.cli.main import main
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.runtime.measure.explain import regrouped

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
CHAIN = """g (float[n, 4] x) => (float[n, 4] y) {
    [first] a = Mul(x, x)
    [second] b = Sigmoid(a)
    [pair] left, right = Split <axis = 1, num_outputs = 2> (b)
    [last] y = Concat <axis = 1> (right, left)
    [dead] z = Neg(a)
}"""


def tapped(model, *taps, x=X, target=None):
    exe = dlc.compile(model, target, taps=taps)
    return exe.run({"x": x})


def test_taps_are_outputs_after_the_others():
    model = parse(CHAIN)
    found = tapped(model, "second", "a", "pair", "z")
    assert list(found) == ["y", "a", "b", "left", "right", "z"]
    names = list(found)
    model.graph.ClearField("output")
    model.graph.output.extend(parse(CHAIN).graph.output)
    model.graph.output.extend([type(model.graph.output[0])(name=name) for name in names[1:]])
    expected = ReferenceEvaluator(model).run(None, {"x": X})
    for name, array in zip(names, expected):
        np.testing.assert_allclose(found[name], array, rtol=1e-5)
    assert found["a"].shape == (3, 4)


def test_tapping_an_output_changes_nothing():
    assert list(tapped(parse(CHAIN), "last")) == ["y"]


def test_taps_limit_fusion():
    plain, cut = dlc.compile(parse(CHAIN)), dlc.compile(parse(CHAIN), taps=["first"])
    changed = regrouped(plain.explain(), cut.explain())
    assert any("first" in nodes for nodes, _ in changed)
    assert regrouped(plain.explain(), plain.explain()) == []


FUNCTION = """
<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
g (float[n, 4] x) => (float[n, 4] y) { h = local.twice(x) y = local.twice(h) }
<domain: "local", opset_import: ["" : 18]> twice (p) => (q) { [inner] t = Add(p, p) q = Identity(t) }
"""


def test_values_of_functions_are_tapped_for_each_call():
    import onnx.parser

    found = tapped(onnx.parser.parse_model(FUNCTION), "inner")
    np.testing.assert_allclose(found["t"], 2 * X)
    np.testing.assert_allclose(found["y"], 4 * X)
    assert list(found) == ["y", "t"] or list(found) == ["y", "t", "t@1"]


BRANCH = """g (float[n, 4] x, bool c) => (float[n, 4] y) {
    y = If (c) <then_branch = t () => (float[n, 4] ty) { [inside] m = Mul(x, x) ty = Neg(m) },
                else_branch = e () => (float[n, 4] ey) { ey = Identity(x) }>
}"""
LOOP = """g (float[4] x, int64 trips) => (float[4] y) {
    cond = Constant <value_int = 1> ()
    go = Cast <to = 9> (cond)
    y = Loop (trips, go, x) <body = b (int64 i, bool more, float[4] s) => (bool on, float[4] out)
        { on = Identity(more) [inside] m = Mul(s, s) out = Tanh(m) }>
}"""


def test_values_of_branches_are_tapped():
    exe = dlc.compile(parse(BRANCH), "reference", taps=["inside"])
    found = exe.run({"x": X, "c": np.asarray(True)})
    np.testing.assert_allclose(found["m"], X * X)
    np.testing.assert_allclose(found["y"], -X * X)


def test_values_of_loops_are_refused():
    with pytest.raises(UnsupportedError, match="in the body of a loop"):
        dlc.compile(parse(LOOP), "reference", taps=["inside"])


def test_invalid_names():
    with pytest.raises(UsageError, match="no node or value 'frist'") as caught:
        dlc.load(parse(CHAIN), taps=["frist"])
    assert "'first'" in str(caught.value)
    with pytest.raises(UsageError, match="taps need a model"):
        dlc.compile(dlc.load(parse(CHAIN)), taps=["first"])


def test_the_command_passes_taps(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(parse(CHAIN).SerializeToString())
    saved = tmp_path / "out.npz"
    assert main(["run", str(path), "--random", "--shape", "n=3", "--tap", "a", "-o", str(saved)]) == 0
    said = capsys.readouterr()
    assert "a: float32[3, 4]" in said.out
    assert "taps:" in said.err
    with np.load(saved) as arrays:
        assert set(arrays) == {"y", "a"}
    assert main(["run", str(tmp_path / "m.py"), "--tap", "a"]) == 2
