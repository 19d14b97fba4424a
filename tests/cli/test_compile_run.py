"""`dlc compile`, `dlc run`, `dlc bench`."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from dlc_core import driver
from dlc_core.cli.arrays import compare
from dlc_core.cli.main import main
from dlc_core.cli.options import parse_shapes
from dlc_core.diag import UsageError, bytes_text
from dlc_core.runtime.measure.timing import measure, spread_of


def test_compile_writes_a_file_that_runs(dlc, folder, case):
    text = dlc("compile", "model.onnx")
    assert "model.dlc" in text
    assert "x: float32[batch, 4]" in text
    assert (folder / "model.dlc").is_file()
    np.savez(folder / "case.npz", in_x=case["x"], out_0=case["y"])
    text = dlc("run", "model.dlc", "--inputs", "case.npz", "--expect", "case.npz")
    assert "y: fits" in text


def test_compile_reports_as_json(dlc_json):
    record = dlc_json("compile", "model.onnx", "-o", "small.dlc", "--shape", "batch=2", "--no-cache")
    assert record["inputs"] == ["x: float32[2, 4]"]
    assert list(record["files"]) == ["small.dlc"]
    assert record["cache"] == "off"
    assert {"load", "graph", "codegen"} <= record["seconds"].keys()


def test_compile_says_how_many_kernels_were_in_the_cache(dlc, dlc_json, folder, monkeypatch):
    pytest.importorskip("dlc_backend_llvm", reason="other code generators keep no kernels")
    monkeypatch.setenv("DLC_CACHE_DIR", str(folder / "kept"))
    assert dlc_json("compile", "model.onnx", "-t", "llvm")["cached_kernels"] == 0
    for name in ("second", "third"):
        model = onnx.load("model.onnx")
        model.graph.name = name
        onnx.save(model, f"{name}.onnx")
    assert dlc_json("compile", "second.onnx", "-t", "llvm")["cached_kernels"] == 1
    assert ", 1 kernel from the cache" in dlc("compile", "third.onnx", "-t", "llvm")


def test_refuses_to_compile_an_artefact(dlc):
    dlc("compile", "model.onnx")
    assert "compiled already" in dlc("compile", "model.dlc", code=2)
    assert "compiled already" in dlc("run", "model.dlc", "--random", "-t", "reference", code=2)


BOTH = ("-t", "reference -level=tir", "-t", "reference")


def test_models_for_several_targets(dlc, dlc_json, folder, case):
    np.savez(folder / "case.npz", in_x=case["x"], out_0=case["y"])
    record = dlc_json("compile", "model.onnx", *BOTH, "-o", "two.dlc")
    assert record["target"] == "reference -level=tir, reference"
    assert "y: fits" in dlc("run", "two.dlc", "--inputs", "case.npz", "--expect", "case.npz")
    assert "y: fits" in dlc("run", "model.onnx", *BOTH, "--inputs", "case.npz", "--expect", "case.npz")
    text = dlc("explain", "two.dlc")
    assert "region_0" in text
    placed = dlc_json("explain", "model.onnx", *BOTH, "--place", "matmul=reference")
    assert not any("matmul" in one["ops"] for one in placed["segments"])
    assert placed["refused"][0]["reasons"] == ["it is placed on reference"]
    assert "reference -level=tir, reference" in dlc(
        "bench", "model.onnx", *BOTH, "--repeat", "2", "--warmup", "0"
    )


def test_refuses_placements_without_a_target(dlc):
    assert "has no target" in dlc("compile", "model.onnx", *BOTH, "--place", "matmul", code=2)
    assert "no op and no pattern" in dlc(
        "compile", "model.onnx", *BOTH, "--place", "nowhere/*=reference", code=2
    )
    dlc("compile", "model.onnx", *BOTH, "-o", "m.dlc")
    assert "compiled already" in dlc("run", "m.dlc", "--random", "--place", "matmul=reference", code=2)


def test_compile_shows_progress_only_if_enabled(capsys, dlc):
    dlc("compile", "model.onnx", "--no-cache")
    assert not capsys.readouterr().err
    assert main(["compile", "model.onnx", "--no-cache", "--progress"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[1/")
    assert any("graph: simplify" in line for line in lines)


def test_run_takes_inputs_by_name_and_writes_outputs(dlc, folder, case):
    np.save(folder / "x.npy", case["x"])
    dlc("run", "model.onnx", "--input", "x=x.npy", "-o", "out.npz")
    with np.load(folder / "out.npz") as out:
        np.testing.assert_allclose(out["y"], case["y"], rtol=1e-5, atol=1e-6)
    assert dlc("run", "model.onnx", "--input", "x.npy", "--top", "2").count("row") == 5


def test_run_fails_if_outputs_differ(dlc, dlc_json, folder, case):
    wrong = case["y"].copy()
    wrong[1, 2] += 1
    np.savez(folder / "case.npz", x=case["x"], y=wrong)
    command = ("run", "model.onnx", "--inputs", "case.npz", "--expect", "case.npz")
    record = dlc_json(*command, code=1)["expected"]["y"]
    assert (record["fits"], record["wrong"], record["elements"]) == (False, 1, 15)
    assert record["max_abs"] == pytest.approx(1)
    assert "y: fits" in dlc(*command, "--atol", "2")


def test_random_inputs_are_the_same_for_a_seed(dlc_json):
    first = dlc_json("run", "model.onnx", "--random", "--seed", "7", "--shape", "batch=4")
    again = dlc_json("run", "model.onnx", "--random", "--seed", "7", "--shape", "batch=4", "-t", "reference")
    other = dlc_json("run", "model.onnx", "--random", "--seed", "8", "--shape", "batch=4")
    assert first["outputs"]["y"]["shape"] == [4, 3]
    assert first["outputs"]["y"]["mean"] == pytest.approx(again["outputs"]["y"]["mean"], rel=1e-5)
    assert first["outputs"]["y"]["mean"] != other["outputs"]["y"]["mean"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "model.onnx"], "input 'x' is not given"),
        (["run", "model.onnx", "--input", "z=z.npy"], "names no input"),
        (["run", "model.onnx", "--input", "x=none.npy"], "cannot be read"),
        (["run", "model.onnx", "--random", "--shape", "batch"], "is not a shape"),
        (["run", "model.onnx", "--random", "--expect", "model.onnx"], "cannot be read"),
        (["run", "model.onnx", "--random", "-t", "nothing"], "there is no target 'nothing'"),
        (["run", "other.onnx", "--random"], "other.onnx"),
        (["run", "model.txt", "--random"], "no frontend reads .txt"),
        (["bench", "model.onnx", "--threads", "0"], "--threads '0'"),
        (["bench", "model.onnx", "--threads", "two"], "--threads 'two'"),
    ],
)
def test_mistakes_are_reported(arguments, said, capsys):
    assert main(arguments) in (1, 2)
    assert said in capsys.readouterr().err


def test_pickles_are_not_read(dlc, folder):
    np.save(folder / "x.npy", np.array([{}], object), allow_pickle=True)
    assert "cannot be read" in dlc("run", "model.onnx", "--input", "x=x.npy", code=2)


def test_bench_profiles_several_targets(dlc, dlc_json, folder):
    both = "-t", "llvm", "-t", "reference", "--place", "relu=reference", "--shape", "batch=8"
    arguments = "bench", "model.onnx", *both, "--repeat", "2", "--threads", "1", "--trace", "t.json"
    text = dlc(*arguments, "--profile")
    assert "a clock in the code, around each kernel" in text
    assert "region_0" in text
    trace = json.loads((folder / "t.json").read_text(encoding="utf-8"))
    assert {e["name"] for e in trace["traceEvents"] if e["ph"] == "X"} == {"region_0", "relu"}
    report = dlc_json(*arguments, "--profile")["profile"]["1"]
    assert {one["target"]: one["multiply_adds"] for one in report["targets"]} == {"llvm": 96, "reference": 0}
    assert len(report["timeline"]) == 2
    assert "region_0" not in dlc(*arguments)
    measured = dlc_json("explain", "model.onnx", *both, "--measure")
    assert all(kernel["seconds"] > 0 for kernel in measured["kernels"])


def test_bench_measures_each_thread_count(dlc, dlc_json):
    text = dlc("bench", "model.onnx", "--threads", "1,2", "--repeat", "5", "--profile", "--shape", "batch=8")
    assert "median ms" in text
    assert "fused_matmul_add_relu" in text
    record = dlc_json("bench", "model.onnx", "--threads", "1,2", "--repeat", "5")
    assert set(record["milliseconds"]) == {"1", "2"}
    spread = record["milliseconds"]["1"]
    assert spread["runs"] == 5
    assert 0 < spread["min"] <= spread["p10"] <= spread["median"] <= spread["p90"] <= spread["max"]


def test_scripts_run(dlc, folder):
    dlc("opt", "infer", "model.onnx", "-o", "m.py")
    assert "y: float32[1, 3]" in dlc("run", "m.py", "--random")


def test_measure_repeats_and_spreads():
    calls = []
    spread = measure(lambda: calls.append(1), repeat=7, warmup=3)
    assert (len(calls), spread.runs) == (10, 7)
    assert measure(lambda: None, seconds=0).runs == 5
    one = spread_of([0.002])
    assert (one.median, one.p10, one.p90, one.runs) == (2, 2, 2, 1)
    eleven = spread_of([k / 1000 for k in range(11)])
    assert (eleven.median, eleven.p10, eleven.p90) == (5, 1, 9)


def test_shapes_and_sizes():
    assert parse_shapes(["x=1,3,?", "batch=4", "v=7,", "a=b=2"]) == {
        "x": (1, 3, None),
        "batch": 4,
        "v": (7,),
        "a=b": 2,
    }
    assert parse_shapes(["n=1..512", "m=2..", "k=..9", "x=n,3,64..512,?"]) == {
        "n": (1, 512),
        "m": (2, None),
        "k": (None, 9),
        "x": ("n", 3, (64, 512), None),
    }
    for text in (
        "x",
        "x=",
        "=4",
        "x=-1",
        "x=1,2b",
        "x=b",
        "n=..",
        "n=1..2..3",
        "n=-1..3",
        "x=1..b,2",
        "n=1.5",
    ):
        with pytest.raises(UsageError, match="is not a shape"):
            parse_shapes([text])
    assert [bytes_text(n) for n in (0, 1023, 1536, 5 << 20, 3 << 30, 1234567)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "5 MiB",
        "3 GiB",
        "1.177 MiB",
    ]


def test_comparison_of_special_values():
    nan, inf = np.nan, np.inf
    a = np.array([1, nan, inf, -inf, 0], np.float32)
    assert compare("y", a, a, 0, 0).fits
    for index, value in ((1, 1), (2, -inf), (2, nan), (3, 0)):
        b = a.copy()
        b[index] = value
        found = compare("y", a, b, 1e-3, 1e-3)
        assert found.wrong == 1, (index, value)
        assert not found.fits
    assert "shape" in compare("y", a, a[:2], 0, 0).problem
    assert compare("y", np.zeros((0, 3)), np.zeros((0, 3)), 0, 0).fits
    assert "proves little" not in str(compare("y", a, a, 1e-5, 0))
    same = np.full(1000, 0.001, np.float32)
    assert "proves little" in str(compare("y", same, same, 1e-5, 0))
    assert "proves little" not in str(compare("y", same[:1], same[:1], 1e-5, 0))


def test_checks_bounds_if_the_option_is_set(dlc, folder):
    dlc("run", "model.onnx", "--random", "--check-bounds", "--no-cache")
    (folder / "outside.py").write_text(
        """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int64"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = A[I[i] + 8]
"""
    )
    said = dlc("run", "outside.py", "--random", "--check-bounds", code=1)
    assert "f loads A[I[i] + 8] of A: float32[8]" in said


@pytest.mark.parametrize("command", [["compile"], ["run", "--random"], ["bench", "-n", "1"], ["explain"]])
def test_the_precision_reaches_the_compile(command, dlc, monkeypatch):
    precisions = []
    compiled = driver.compile

    def recorded(*args, **options):
        precisions.append(options["precision"])
        return compiled(*args, **options)

    monkeypatch.setattr(driver, "compile", recorded)
    for precision in ("bf16", "fast"):
        dlc(command[0], "model.onnx", *command[1:], "--precision", precision)
    assert precisions == ["bf16", "fast"]
