"""Suites of models: gathering them, and the outcomes of a folder in worker processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper, parser

pytest.importorskip("onnxruntime", reason="the outcomes are compared with it")

from benchmarks.suites import comparing, gathering, judging, workers
from benchmarks.suites.__main__ import main
from benchmarks.suites.comparing import Features
from benchmarks.suites.drawing import drawn
from benchmarks.suites.storage import save, stored
from benchmarks.suites.table import details, rows, stored_rows

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
RELU = HEAD + "g (float[n] x) => (float[n] y) { y = Relu(x) }"
X = np.float32([-1, 0, 2])


def model_of(text):
    return parser.parse_model(text).SerializeToString()


def outcome_of(path):
    return judging.judge(path, "reference", lambda *stage: None)


def test_outcomes_of_a_folder(tmp_path, capsys):
    save(tmp_path / "one/relu", model_of(RELU), {"x": X}, [np.maximum(X, 0)])
    (tmp_path / "two").mkdir()
    (tmp_path / "two/unknown.onnx").write_bytes(model_of(RELU.replace("Relu", "Unheard")))
    (tmp_path / "two/damaged.onnx").write_bytes(b"nothing")
    file = tmp_path / "outcomes.json"
    assert main(["compare", str(tmp_path), "--json", str(file), "--target", "reference"]) == 0
    records = json.loads(file.read_text())
    assert records["one/relu/model"] == {
        "outcome": "right",
        "peer": "runs",
        "reason": "",
        "stored": "right",
    }
    assert records["two/unknown"]["outcome"] == "refused"
    assert "Unheard" in records["two/unknown"]["peer"]
    assert records["two/damaged"]["outcome"] == "skipped"
    capsys.readouterr()
    records["one/relu/model"].update(outcome="differs", reason="kept")
    file.write_text(json.dumps(records))
    assert main(["compare", str(tmp_path), "--json", str(file)]) == 1, "kept outcomes are not found again"
    assert "one/relu/model: differs: kept" in capsys.readouterr().out
    assert main(["compare", str(tmp_path), "--json", str(file), "--again", "differs"]) == 0
    assert main(["show", str(file), "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| one | 1 | 1 | 1 | 0 | 0 | 0 | 100.0% | 0 |" in printed
    assert "| one | 1 | 1 | 0 | 0 | 0 | 100.0% |" in printed


def test_stored_outputs_are_counted_apart(tmp_path):
    save(tmp_path / "relu", model_of(RELU), {"x": X}, [X + 1])
    record = outcome_of(tmp_path / "relu/model.onnx")
    assert record["outcome"] == "right", "as onnxruntime"
    assert "off by" in record["stored"]
    records = {
        "s/relu": record,
        "s/ended": workers._ended(["dlc", {"peer": "runs", "stored": "refused"}], ""),
    }
    assert list(stored_rows(records)) == [("s", "2", "0", "0", "1", "1", "0.0%")]
    assert "s/relu: as onnxruntime, unlike the stored outputs: output 0" in "".join(details(records))


def test_a_model_that_onnxruntime_refuses_has_the_stored_outputs(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 22]> g (bfloat16[3] x) => (bfloat16[3] y) { y = Sin(x) }'
    x = numpy_helper.to_array(helper.make_tensor("x", TensorProto.BFLOAT16, [3], [0.5, 1, 2]))
    wanted = np.sin(x.astype(np.float32))
    save(tmp_path / "right", model_of(text), {"x": x}, [wanted.astype(x.dtype)])
    record = outcome_of(tmp_path / "right/model.onnx")
    assert record["peer"] != "runs"
    assert record["outcome"] == "right"
    save(tmp_path / "wrong", model_of(text), {"x": x}, [(wanted + 1).astype(x.dtype)])
    assert outcome_of(tmp_path / "wrong/model.onnx")["outcome"] == "differs"
    save(tmp_path / "alone", model_of(text), {"x": x})
    assert outcome_of(tmp_path / "alone/model.onnx")["outcome"] == "runs"


def test_outputs_that_only_the_optimisations_change_are_right(tmp_path, monkeypatch):
    class Inexact(judging.Session):
        def __init__(self, path, model, optimised=True):
            super().__init__(path, model, optimised)
            self.error = 0.5 if optimised else 0.0

        def __call__(self, feeds):
            return [each + np.float32(self.error) for each in super().__call__(feeds)]

    monkeypatch.setattr(judging, "Session", Inexact)
    save(tmp_path / "relu", model_of(RELU), {"x": X})
    record = outcome_of(tmp_path / "relu/model.onnx")
    assert record == {"outcome": "right", "peer": "runs", "reason": judging.UNOPTIMISED}
    monkeypatch.setattr(judging, "difference", lambda *arguments: "other values")
    assert outcome_of(tmp_path / "relu/model.onnx")["outcome"] == "differs"


class Crashing(workers.Worker):
    def _started(self):
        process = super()._started()
        os.kill(process.pid, signal.SIGKILL)
        return process


def test_an_end_of_the_process_is_an_outcome(tmp_path, monkeypatch):
    save(tmp_path / "a", model_of(RELU), {"x": X})
    monkeypatch.setattr(workers, "Worker", Crashing)
    ((_, record),) = workers.outcomes([tmp_path / "a/model.onnx"], None, 60, guard=False)
    assert record["peer"] == "crashed: signal 9"
    assert workers._ended(["dlc", {"peer": "runs"}], "signal 11") == {
        "outcome": "crashed",
        "reason": "signal 11",
        "peer": "runs",
    }
    summed = list(rows({"s/m": workers._ended(["dlc", {"peer": "runs"}], "signal 11")}))
    assert summed == [("s", "1", "1", "0", "0", "0", "1", "0.0%", "0")]


def test_values_are_stored(tmp_path):
    text = HEAD + "g (seq(float[n]) s, string[n] t, int64[1] k) => (seq(float[n]) s) { }"
    feeds = {"k": np.int64([3]), "s": [X, X[:1]], "t": np.array(["a", "bb"], object)}
    save(tmp_path, model_of(text), feeds, [[X]])
    found, outputs = stored(tmp_path / "model.onnx", onnx.load(tmp_path / "model.onnx"))
    assert found.keys() == feeds.keys()
    assert [a.tolist() for a in found["s"]] == [X.tolist(), X[:1].tolist()]
    assert found["t"].tolist() == ["a", "bb"]
    assert outputs[0][0].tolist() == X.tolist()


def test_optional_values_are_stored(tmp_path):
    inputs = "optional(seq(float[n])) s, optional(float[n]) t, seq(float[n]) e"
    save(
        tmp_path,
        model_of(f"{HEAD} g ({inputs}) => (optional(float[n]) t) {{ }}"),
        {"s": [X], "t": X, "e": []},
        [X],
    )
    found, outputs = stored(tmp_path / "model.onnx", onnx.load(tmp_path / "model.onnx"))
    assert [each.tolist() for each in found["s"]] == [X.tolist()]
    assert found["e"] == []
    assert found["t"].tolist() == outputs[0].tolist() == X.tolist()


def test_inputs_are_drawn(tmp_path):
    text = HEAD + 'g (float[n, "n + 1"] x, int64[4] k, bool[2] b) => (float[n, m] x) { }'
    choices = list(drawn(parser.parse_model(text)))
    assert choices[0]["x"].shape == (2, 3)
    assert choices[2]["x"].shape == (3, 4)
    assert all(choice["k"].max() < 4 for choice in choices)
    again = list(drawn(parser.parse_model(text)))
    assert np.array_equal(again[3]["x"], choices[3]["x"])


@pytest.mark.parametrize(
    ("found", "wanted", "rounds", "problem"),
    [
        (X, X * np.float32(1 + 1e-6), False, ""),
        (X, X * np.float32(1.01), False, "off by 0.02"),
        (X, X * np.float32(1.005), True, ""),
        (X, X.astype(np.float64), False, "float32 instead of float64"),
        (X, X[None], False, "shape [3] instead of [1, 3]"),
        (np.uint8([1, 2]), np.uint8([1, 3]), False, "1 of 2 elements"),
        (np.uint8([1, 2]), np.uint8([1, 3]), True, ""),
        (np.uint8([1, 2]), np.uint8([1, 4]), True, "off by 2"),
        ([X], [X, X], False, "1 outputs instead of 2"),
        (None, X, False, "empty, not as wanted"),
        ({"a": X}, {"b": X}, False, "other keys"),
    ],
)
def test_differences(found, wanted, rounds, problem):
    said = comparing.difference([found], [wanted], Features(rounds=rounds))
    assert problem in said
    assert bool(problem) == bool(said)


def test_features_of_models():
    branches = """then_branch = t () => (float[3] a) { a = RandomUniformLike(x) },
    else_branch = e () => (float[3] b) { b = Relu(x) }"""
    inner = f"{HEAD} g (bool c, float[3] x) => (float[3] y) {{ y = If(c) <{branches}> }}"
    assert comparing.features(parser.parse_model(inner)) == Features(random=True)
    assert comparing.features(parser.parse_model(RELU)) == Features()
    text = RELU.replace(
        "y = Relu(x)", "s = Constant<value_float = 0.5>() q = QuantizeLinear(x, s) y = Cast<to=1>(q)"
    )
    assert comparing.features(parser.parse_model(text)) == Features(rounds=True)
    half = comparing.features(parser.parse_model(text.replace("to=1>", "to=10>")))
    assert half == Features("float16", rounds=True)


# --- Gathering ---


def test_files_of_a_folder_and_of_a_git_folder(tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/text.prototxt").write_text(text_format.MessageToString(parser.parse_model(RELU)))
    (source / "deep/other.prototxt").write_text("layer { }")
    (source / "weights.data").write_bytes(b"data")
    (source / "own.onnx").write_bytes(model_of(RELU))
    assert main(["files", str(tmp_path / "a"), str(source)]) == 0
    assert onnx.load(tmp_path / "a/deep/text.onnx") == parser.parse_model(RELU)
    assert not (tmp_path / "a/deep/other.onnx").exists()
    assert (tmp_path / "a/weights.data").read_bytes() == b"data"
    git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], check=True)
    assert main(["files", str(tmp_path / "b"), str(source / ".git"), "--under", "deep"]) == 0
    assert onnx.load(tmp_path / "b/deep/text.onnx") == parser.parse_model(RELU)
    assert not (tmp_path / "b/own.onnx").exists()


TESTS = """
import absent
import numpy as np
import onnxruntime
from absent.importer import load
from onnx import parser

MODEL = parser.parse_model({text!r})

@absent.testing.needs("a device")
def test_runs():
    session = onnxruntime.InferenceSession(MODEL.SerializeToString())
    found = session.run(None, {{"x": np.float32([1, -1])}})
    absent.testing.assert_equal(load(MODEL).run(), found)
    assert len(load(MODEL)) == 3

@absent.testing.plain
def test_loads():
    MODEL.graph.name = "other"
    with absent.context(level=3):
        load(MODEL)
"""


def test_models_of_tests(tmp_path):
    (tmp_path / "test_of_a_peer.py").write_text(TESTS.format(text=RELU))
    folder = tmp_path / "out"
    command = ["tests", str(folder), str(tmp_path / "test_of_a_peer.py"), "--stub", "absent"]
    assert main(command) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["test_loads-0", "test_runs-0"]
    feeds, _ = stored(folder / "test_runs-0/model.onnx", parser.parse_model(RELU))
    assert feeds["x"].tolist() == [1, -1]
    assert outcome_of(folder / "test_runs-0/model.onnx")["outcome"] == "right"
    assert outcome_of(folder / "test_loads-0/model.onnx")["outcome"] == "right", "its inputs are drawn"


@pytest.mark.slow
def test_backend_tests_of_the_package(tmp_path):
    assert gathering.from_backend(tmp_path) > 1500
    assert outcome_of(tmp_path / "node/test_abs/model.onnx")["outcome"] == "right"
