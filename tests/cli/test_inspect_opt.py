"""`dlc inspect`, `dlc opt`, `dlc explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlc_core.cli.main import main
from dlc_core.cli.stages import read_module, run_until
from dlc_core.driver import compile as compile_
from dlc_core.driver import context_for, find_target
from dlc_core.graph.node import Function
from dlc_core.ir.structural import first_difference
from dlc_core.schedule import Schedule
from dlc_core.script import from_json, parse


def test_every_stage_is_shown_as_script_that_parses(dlc):
    texts = {stage: dlc("inspect", "model.onnx", "--stage", stage) for stage in ("load", "graph", "lower")}
    for text in texts.values():
        assert text.startswith("@ir_module")
    assert "G.matmul" in texts["load"]
    assert "fused_matmul_add_relu" in texts["graph"]
    assert "T.block" in texts["lower"]
    assert dlc("inspect", "model.onnx") == texts["graph"]
    assert "T.call_kernel" in dlc("inspect", "model.onnx", "--stage", "main", "--function", "main")


def test_one_function_in_other_forms(dlc):
    text = dlc("inspect", "model.onnx", "-s", "lower", "-f", "fused_matmul_add_relu")
    assert parse(text).name == "fused_matmul_add_relu"
    data = json.loads(dlc("inspect", "model.onnx", "-s", "lower", "-f", "main", "--form", "json"))
    assert isinstance(from_json(data), Function)
    code = dlc("inspect", "model.onnx", "--form", "llvm", "-f", "fused_matmul_add_relu")
    assert "@fused_matmul_add_relu" in code
    assert "@main" not in code


def test_after_a_pass(dlc):
    assert "fused_" not in dlc("inspect", "model.onnx", "--after", "simplify")
    assert "fused_" in dlc("inspect", "model.onnx", "--after", "fuse")
    assert "T.block" in dlc("inspect", "model.onnx", "--after", "lower_groups")


def test_list_names_passes_and_functions(dlc, dlc_json):
    text = dlc("inspect", "model.onnx", "--list")
    assert "infer | simplify" in text
    assert "cpu.contraction" in text
    record = dlc_json("inspect", "model.onnx", "--list", "--stage", "graph")
    assert record["stages"]["load"] == []
    assert "fuse" in record["stages"]["graph"]
    assert [each["level"] for each in record["functions"]] == ["graph"]


def test_traces_are_python_that_makes_the_kernel_again(dlc, dlc_json):
    name = "fused_matmul_add_relu"
    names = {}
    exec(dlc("inspect", "model.onnx", "--traces"), names)  # noqa: S102
    assert names[name].__doc__.startswith("cpu.contraction: ")
    context = context_for(find_target(None))
    before, after = (
        run_until(read_module(Path("model.onnx")), context, stage=stage, after=last)[name]
        for stage, last in (("lower", None), ("tir", "schedule_kernels"))
    )
    schedule = Schedule(before)
    names[name](schedule)
    assert first_difference(schedule.func.body, after.body) is None

    one = dlc_json("inspect", "model.onnx", "--traces", "-f", "fused_matmul_add_relu")
    assert one["fused_matmul_add_relu"]["rule"] == "cpu.contraction"
    assert "no kernel 'none'" in dlc("inspect", "model.onnx", "--traces", "-f", "none", code=2)


def test_artefacts_contain_traces_if_enabled(dlc):
    dlc("compile", "model.onnx", "-o", "bare.dlc")
    assert "has no traces" in dlc("inspect", "bare.dlc", "--traces", code=2)
    compile_("model.onnx", config={"traces": True}).save("m.dlc")
    assert dlc("inspect", "m.dlc", "--traces") == dlc("inspect", "model.onnx", "--traces")


def test_inspect_lists_the_contents_of_a_file(dlc, dlc_json):
    dlc("compile", "model.onnx", "-o", "m.dlc")
    record = dlc_json("inspect", "m.dlc")
    assert record["inputs"] == ["x: float32[batch, 4]"]
    assert record["kernel calls"] == 1
    assert record["weights"] > 0
    assert "x: float32[batch, 4]" in dlc("inspect", "m.dlc")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect", "model.onnx", "--stage", "never"], "there is no stage 'never'"),
        (["inspect", "model.onnx", "--form", "never"], "no code in the form 'never'"),
        (["inspect", "model.onnx", "--stage", "graph", "--form", "never"], "--form 'never'"),
        (["inspect", "model.onnx", "--function", "never"], "no function 'never'"),
        (["inspect", "model.onnx", "--after", "never"], "pass 'never' does not run"),
        (["inspect", "model.onnx", "--after", "simplify:9"], "pass 'simplify:9' does not run"),
        (["inspect", "model.onnx", "--after", "fuse:x"], "--after 'fuse:x'"),
        (["inspect", "none.py"], "none.py cannot be read"),
        (["opt", "never", "model.onnx"], "there is no pass 'never'"),
        (["opt", "infer", "model.onnx", "--verify", "twice"], "--verify 'twice'"),
        (["opt", "infer", "model.onnx", "--form", "xml"], "--form 'xml'"),
    ],
)
def test_mistakes_are_reported(arguments, said, capsys):
    assert main(arguments) in (1, 2)
    assert said in capsys.readouterr().err


def test_opt_runs_a_pipeline_and_reads_its_own_output(dlc, folder):
    printed = dlc("opt", "infer | simplify", "model.onnx", "-o", "m.py").split()
    assert printed == ["m.py", "m.npz"] or printed == ["m.py"]
    text = dlc("opt", "fuse{max_ops=1}", "m.py", "--verify", "each")
    assert "fused_relu" in text
    assert "fused_matmul_add" not in text
    assert "fused_matmul_add_relu" in dlc("opt", "graph", "model.onnx")
    assert "T.block" in dlc("opt", "lower", "m.py", "-f", "fused_matmul_add_relu")


def test_opt_times_dumps_and_bisects(capsys, dlc, folder):
    assert main(["opt", "infer | simplify", "model.onnx", "--time", "--dump", "steps"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0].split() == ["pass", "ms", "%", "nodes"]
    assert captured.out.startswith("@ir_module")
    assert any((folder / "steps").iterdir())
    assert dlc("opt", "graph", "model.onnx", "--bisect") == "no pass changes results\n"


def test_large_arrays_are_in_a_separate_file(dlc, folder, dlc_json):
    import numpy as np
    import onnx
    import onnx.parser

    w = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> m (float[2, 4] x) => (float[2, 40] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(model, folder / "wide.onnx")
    assert dlc("opt", "infer", "wide.onnx", "-o", "wide.py").split() == ["wide.py", "wide.npz"]
    direct = dlc_json("run", "wide.onnx", "--random")
    through = dlc_json("run", "wide.py", "--random")
    assert direct == through


def test_explain_shows_rules_and_work(dlc, dlc_json):
    text = dlc("explain", "model.onnx", "--shape", "batch=8", "--measure")
    assert "cpu.contraction" in text
    assert "GFLOP/s" in text
    record = dlc_json("explain", "model.onnx", "--shape", "batch=8", "--measure")
    kernel = record["kernels"][0]
    assert kernel["flops"] >= 2 * 8 * 4 * 3
    assert kernel["seconds"] > 0
    assert kernel["attained"] == pytest.approx(kernel["estimate"]["limit"] / kernel["seconds"])
    assert record["totals"]["seconds"] >= kernel["seconds"]
    assert record["machine"]["measured"]
    assert len(record["machine"]["bandwidths"]) == 1 + len(record["machine"]["caches"])
    assert "expected over measured" in text or len(record["kernels"]) < 3
    without = dlc_json("explain", "model.onnx")
    assert without["kernels"][0]["seconds"] is None
    assert without["kernels"][0]["estimate"] is None  # the batch is symbolic
    assert not without["machine"]["measured"]


def test_several_targets_are_shown_as_they_are_compiled(dlc, dlc_json):
    both = "-t", "llvm", "-t", "reference"
    text = dlc("inspect", "model.onnx", *both)
    assert "region_0" in text
    assert text == dlc("opt", "graph", "model.onnx", *both)
    listed = dlc_json("inspect", "model.onnx", "--list", *both)
    assert {each["name"]: each["level"] for each in listed["functions"]} == {
        "main": "graph",
        "region_0": "region for llvm",
    }
    assert "define" in dlc("inspect", "model.onnx", *both, "--form", "llvm", "--function", "region_0")
    placed = dlc("inspect", "model.onnx", *both, "--place", "matmul=reference")
    assert "G.matmul" in placed
    assert "--place 'x' has no target" in dlc("opt", "graph", "model.onnx", *both, "--place", "x", code=2)
    assert "no node of the model" in dlc("inspect", "model.onnx", *both, "--place", "nix=llvm", code=2)


@pytest.mark.parametrize("host", ["reference", "reference -level=tir"])
def test_regions_of_several_targets_are_shown_as_tensor_programs(dlc, dlc_json, host):
    both = "--shape", "batch=8", "-t", "llvm", "-t", host, "--place", "relu=" + host
    text = dlc("inspect", "model.onnx", "--stage", "tir", *both)
    assert "# region_0 for llvm" in text
    program = text.partition("# region_0 for llvm")[2]
    assert "@T.prim_func" in program
    assert '"rule": "cpu.contraction"' in program
    assert ("G.relu" in text) == (host == "reference")
    record = dlc_json("inspect", "model.onnx", "--stage", "tir", *both)
    assert record["regions"]["region_0"]["target"] == "llvm"
    only = dlc("inspect", "model.onnx", "--stage", "tir", "--function", "region_0", *both)
    assert only == program.partition("\n")[2]
    kernel = next(line for line in only.splitlines() if "def fused_" in line).split()[1].partition("(")[0]
    assert f"def {kernel}(" in dlc("inspect", "model.onnx", "--stage", "tir", "--function", kernel, *both)
    assert "no stage 'code2'" in dlc("inspect", "model.onnx", "--stage", "code2", *both, code=2)


def test_the_cache_explains_models_for_several_targets(dlc):
    both = "-t", "llvm", "-t", "reference"
    dlc("compile", "model.onnx", *both)
    assert dlc("cache", "explain", "model.onnx", *both).startswith("cache hit")
    assert "others" in dlc("cache", "explain", "model.onnx", "-t", "reference")
    other = dlc("cache", "explain", "model.onnx", *both, "--place", "relu=reference")
    assert "others.place" in other
