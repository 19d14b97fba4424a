"""Bisection finds the first wrong node in graphs, bodies and fused groups."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.bisect import bisect, plain_message, references, search
from dlc_frontend_onnx.testing.compare import parse
from onnx import numpy_helper

from dlc_core.cli.main import main
from dlc_core.diag import UsageError

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
CHAIN = """g (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1, 2, 3, 4}> {
    [first] a = Mul(x, w)
    [second] b = Sigmoid(a)
    [third] c = Add(b, x)
    [fourth] d = Tanh(c)
    [last] y = Mul(d, a)
}"""


def breaking(*ops, together=()):
    """dlc's results, made wrong for some operators: always, or only if they are compiled with others and
    without taps.
    """
    honest = references.run_dlc

    def run(model, feeds, names, types=None, **options):
        options["target"] = "reference"
        present = [node.op_type for node in model.graph.node]
        wrong = {n for node in model.graph.node if node.op_type in ops for n in node.output}
        if together and (names or not all(op in present for op in together)):
            wrong = set()
        graph = onnx.ModelProto.FromString(model.SerializeToString())
        for node in list(graph.graph.node):
            shifted = [n for n in node.output if n in wrong]
            for name in shifted:
                node.output[0] = f"{name}/honest"
                one = numpy_helper.from_array(np.float32(1), f"{name}/one")
                graph.graph.initializer.append(one)
                graph.graph.node.append(onnx.helper.make_node("Add", [node.output[0], one.name], [name]))
        return honest(graph, feeds, names, types, **options)

    return run


@pytest.fixture
def broken(monkeypatch):
    def set_(*ops, together=()):
        monkeypatch.setattr(search, "run_dlc", breaking(*ops, together=together))

    return set_


def test_a_correct_model_has_no_culprit():
    found = bisect(parse(CHAIN), "onnx-reference", {"x": X})
    assert found.culprit is None
    assert found.compared == 5
    assert [each.fits for each in found.outputs] == [True]


def test_the_first_wrong_node_is_found_and_written(broken, tmp_path):
    broken("Sigmoid", "Tanh")
    found = bisect(parse(CHAIN), "onnx-reference", {"x": X})
    own = found.culprit
    assert (own.node, own.op, own.comparison.name) == ("second", "Sigmoid", "b")
    assert own.nodes == ("second",)
    model, arrays = own.write(tmp_path / "repro")
    again = onnx.load(model)
    onnx.checker.check_model(again)
    assert [node.op_type for node in again.graph.node] == ["Sigmoid"]
    with np.load(arrays) as saved:
        np.testing.assert_allclose(saved["in_a"], X * [1, 2, 3, 4], rtol=1e-6)
        np.testing.assert_allclose(saved["out_0"], 1 / (1 + np.exp(-saved["in_a"])), rtol=1e-5)
    assert main(["run", str(model), "--inputs", str(arrays), "--expect", str(arrays)]) == 0


def test_nodes_that_are_wrong_only_together_are_found(broken):
    broken("Tanh", together=("Add", "Tanh"))
    own = bisect(parse(CHAIN), "onnx-reference", {"x": X}).culprit
    assert own.node == "fourth"
    assert own.nodes == ("third", "fourth")


def test_saved_values_may_be_incomplete(broken):
    broken("Add")
    values = references.by_evaluator(parse(CHAIN), {"x": X}, ["a", "d", "y"])
    own = bisect(parse(CHAIN), lambda model, feeds, names: values, {"x": X}).culprit
    assert own.comparison.name == "d"
    assert own.nodes == ("second", "third", "fourth")


def test_values_in_files_and_other_targets(tmp_path):
    values = references.by_evaluator(parse(CHAIN), {"x": X}, ["a", "b", "y"])
    np.savez(tmp_path / "values.npz", **values)
    assert bisect(parse(CHAIN), str(tmp_path / "values.npz"), {"x": X}).compared == 3
    np.savez(tmp_path / "values.npz", **{**values, "b": values["b"] + 1})
    own = bisect(parse(CHAIN), str(tmp_path / "values.npz"), {"x": X}).culprit
    assert own.node == "second"
    assert bisect(parse(CHAIN), "reference", {"x": X}).compared == 5
    with pytest.raises(UsageError, match="is not a reference"):
        bisect(parse(CHAIN), "nobody", {"x": X})


def test_onnxruntime_as_reference():
    pytest.importorskip("onnxruntime")
    assert bisect(parse(CHAIN), "onnxruntime", {"x": X}).compared == 5


BRANCH = """g (float[n, 4] x, bool c) => (float[n, 4] y) {
    [before] h = Neg(x)
    [choose] y = If (c) <then_branch = t () => (float[n, 4] ty) { [inside] m = Sigmoid(h) ty = Neg(m) },
                else_branch = e () => (float[n, 4] ey) { ey = Identity(x) }>
}"""
LOOP = """g (float[4] x) => (float[4] y) <int64 trips = {3}, bool go = {1}> {
    [turn] y = Loop (trips, go, x) <body = b (int64 i, bool more, float[4] s) => (bool on, float[4] out)
        { on = Identity(more) [inside] m = Mul(s, x) out = Tanh(m) }>
}"""


def test_branches_are_entered(broken):
    broken("Sigmoid", "If")
    own = bisect(parse(BRANCH), "onnx-reference", {"x": X, "c": np.asarray(True)}).culprit
    assert (own.node, own.inside) == ("inside", ("choose",))
    assert own.nodes == ("inside",)


def test_loops_are_entered(broken):
    broken("Mul", "Loop")
    own = bisect(parse(LOOP), "onnx-reference", {"x": X[0]}).culprit
    assert (own.node, own.inside) == ("inside", ("turn",))


def test_functions_are_inlined_data_embedded_and_nodes_sorted(tmp_path):
    from dlc_frontend_onnx.testing.compare import parse as read

    model = read(CHAIN)
    weights = model.graph.initializer[0]
    weights.CopyFrom(numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"))
    onnx.external_data_helper.convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    onnx.save(model, tmp_path / "m.onnx")
    plain = plain_message(tmp_path / "m.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(plain.graph.initializer[0]), np.arange(4))
    nodes = list(plain.graph.node)
    plain.graph.ClearField("node")
    plain.graph.node.extend(nodes[::-1])
    assert [node.name for node in plain_message(plain).graph.node] == [node.name for node in nodes]


def test_the_command_reports_and_writes_the_culprit(broken, tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(parse(CHAIN).SerializeToString())
    assert main(["bisect", str(path), "--shape", "n=3"]) == 0
    assert "no difference" in capsys.readouterr().out
    broken("Sigmoid")
    repro = tmp_path / "wrong.onnx"
    assert main(["bisect", str(path), "--shape", "n=3", "-o", str(repro), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["culprit"]["node"] == "second"
    assert repro.exists()
    assert main(["bisect", str(path), "-o", str(repro)]) == 1
    assert "first wrong node: 'second' (Sigmoid)" in capsys.readouterr().out


def test_inputs_that_determine_sizes_must_be_given(broken, tmp_path, capsys):
    path, repro = tmp_path / "m.onnx", str(tmp_path / "wrong.onnx")
    text = "g (float[2, 2] x, int64[1] shape) => (float[n] y) { h = Sigmoid(x) y = Reshape(h, shape) }"
    path.write_bytes(parse(text).SerializeToString())
    np.save(tmp_path / "x.npy", np.ones((2, 2), np.float32))
    np.save(tmp_path / "s.npy", np.array([4]))
    x, shape = (f"{name}={tmp_path / file}" for name, file in (("x", "x.npy"), ("shape", "s.npy")))
    assert main(["bisect", str(path), "-i", x, "-i", shape]) == 0
    assert main(["bisect", str(path), "-i", x]) == 2
    assert "input 'shape' is not given" in capsys.readouterr().err
    assert main(["bisect", str(path), "-i", x, "-i", shape.replace("shape", "shapes")]) == 2
    assert "names no input" in capsys.readouterr().err
    broken("Sigmoid")
    assert main(["bisect", str(path), "-i", x, "-i", shape, "-o", repro]) == 1
