"""Rules, decisions and passes are overridden by config, PassContext, environment and command line."""

from __future__ import annotations

import pytest

from dlc_core import PassContext, driver
from dlc_core.diag import UsageError

SHAPE = ("--shape", "batch=8")


def only(found):
    return found["kernels"][0]


def test_a_rule_is_forced_for_all_kernels_or_for_one(dlc, dlc_json):
    plain = only(dlc_json("explain", "model.onnx", *SHAPE))
    assert plain["rule"] != "cpu.loops"
    forced = only(dlc_json("explain", "model.onnx", *SHAPE, "--rule", "cpu.loops"))
    assert forced["rule"] == "cpu.loops"
    assert forced["why"].startswith("schedule.rule=cpu.loops: forced; preferred ")
    one = only(dlc_json("explain", "model.onnx", *SHAPE, "--rule", f"{plain['name']}=cpu.loops"))
    assert one["rule"] == "cpu.loops"
    output = dlc("explain", "model.onnx", *SHAPE, "--rule", f"{plain['name']}x=cpu.loops", code=2)
    assert f"there is no kernel '{plain['name']}x'" in output
    assert f"did you mean '{plain['name']}'" in output


def test_a_decision_is_set(dlc_json, monkeypatch):
    def threads():
        return {text for text in only(dlc_json(*command))["decisions"] if text.startswith("loops.threads")}

    command = ["explain", "model.onnx", *SHAPE]
    assert threads() == {"loops.threads=one"}
    monkeypatch.setenv("DLC_DECISIONS", "loops.threads=all")
    assert threads() == {"loops.threads=all (forced; preferred one)"}
    command += ["--set", "loops.threads=one"]
    assert threads() == {"loops.threads=one"}


def test_refuses_forced_values_that_no_kernel_has(dlc):
    output = dlc("explain", "model.onnx", *SHAPE, "--set", "gemm.tile=99x9", code=2)
    assert "gemm.tile=99x9 is no candidate of any kernel" in output
    assert "candidates: " in output
    output = dlc("explain", "model.onnx", *SHAPE, "--set", "winograd.group=1", code=2)
    assert "winograd.group=1 forces nothing" in output


def test_ignores_forced_values_of_the_environment_that_no_kernel_has(dlc_json, monkeypatch):
    monkeypatch.setenv("DLC_DECISIONS", "gemm.tile=99x9,winograd.group=1")
    kernel = only(dlc_json("explain", "model.onnx", *SHAPE))
    assert [one["missing"] for one in kernel["choices"] if one["decision"] == "gemm.tile"] == ["99x9"]


def test_a_number_of_a_heuristic_is_set(dlc, dlc_json, monkeypatch):
    def kernels():
        return len(dlc_json("explain", "model.onnx", *SHAPE, *options)["kernels"])

    options: list[str] = []
    plain = kernels()
    monkeypatch.setenv("DLC_HEURISTICS", "fusion.max_ops=1")
    assert kernels() > plain
    options = ["--set", "heuristics.fusion.max_ops=48"]
    assert kernels() == plain
    monkeypatch.delenv("DLC_HEURISTICS")
    options = ["--set", "heuristics.fusion.max_ops=1", "--set", "heuristics.gpu.tiles.depths=8,16"]
    assert kernels() > plain
    output = dlc("explain", "model.onnx", *SHAPE, "--set", "heuristics.fusion.most=1", code=2)
    assert "there is no heuristic 'fusion.most'" in output
    assert "did you mean 'fusion.max_ops'" in output
    (number,) = [one for one in dlc_json("rules", "--heuristics") if one["heuristic"] == "fusion.max_ops"]
    assert number["value"] == "48"
    assert number["what"].startswith("The most operations of a kernel.")


def test_a_schedule_rule_is_disabled(dlc_json, monkeypatch):
    rule = only(dlc_json("explain", "model.onnx", *SHAPE))["rule"]
    assert only(dlc_json("explain", "model.onnx", *SHAPE, "--disable", rule))["rule"] != rule
    with PassContext(disabled=(rule,)):
        kernels = driver.compile("model.onnx", shapes={"batch": 8}).explain().kernels
    assert kernels[0].rule != rule
    config = {"disabled": (rule,)}
    assert driver.compile("model.onnx", shapes={"batch": 8}, config=config).explain().kernels[0].rule != rule
    monkeypatch.setenv("DLC_DISABLED", rule)
    assert only(dlc_json("explain", "model.onnx", *SHAPE))["rule"] != rule


def test_a_pass_is_disabled_in_every_command(dlc):
    assert "fused_matmul_add" in dlc("inspect", "model.onnx", "--stage", "tir")
    assert "fused_matmul_add" not in dlc("inspect", "model.onnx", "--stage", "tir", "--disable", "fuse")
    for command in (("compile", "model.onnx"), ("run", "model.onnx", "--random"), ("bench", "model.onnx")):
        output = dlc(*command, *SHAPE, "--disable", "fuze", code=2)
        assert "there is no pass or rule 'fuze'" in output
        assert "'fuse'" in output


@pytest.mark.parametrize(
    ("options", "words", "hint"),
    [
        (("--rule", "cpu.lops"), "there is no schedule rule 'cpu.lops'", "'cpu.loops'"),
        (("--rule", "kernel=cpu.lops"), "there is no schedule rule 'cpu.lops'", "'cpu.loops'"),
        (("--set", "gemm.tyle=6x2"), "there is no decision 'gemm.tyle'", "'gemm.tile'"),
        (("--set", "gemm.tile"), "'gemm.tile' forces no decision", "name=alternative"),
    ],
)
def test_suggests_names_similar_to_unknown_ones(dlc, options, words, hint):
    output = dlc("explain", "model.onnx", *SHAPE, *options, code=2)
    assert words in output
    assert hint in output


def test_unknown_names_in_a_pass_context_are_refused(folder):
    with PassContext(disabled=("winogrand",)), pytest.raises(UsageError, match="winogrand") as caught:
        driver.compile("model.onnx", shapes={"batch": 8})
    assert "'winograd'" in str(caught.value)


def test_a_compiled_file_cannot_be_overridden(dlc):
    dlc("compile", "model.onnx", *SHAPE, "-o", "model.dlc")
    assert "--rule, --disable and --set are for models" in dlc(
        "explain", "model.dlc", "--rule", "cpu.loops", code=2
    )


def test_numbers_of_the_description_are_set(dlc, dlc_json):
    output = dlc(
        "explain", "model.onnx", *SHAPE, "--set", "target.fma_latency=40", "--set", "target.l2_bytes=65536"
    )
    assert "-target.fma_latency=40.0 -target.l2_bytes=65536" in output
    exe = driver.compile("model.onnx", shapes={"batch": 8}, config={"target": {"fma_latency": 40}})
    assert exe.target.describe().fma_latency == 40.0
    output = dlc("targets", "llvm", "-v", "--set", "target.l2_bytes=65536")
    line = next(line for line in output.splitlines() if line.startswith("caches"))
    assert "65536" in line
    assert "set by the user" in line


@pytest.mark.parametrize("text", ["target.l2_byte=1", "target.frequency=fast", "target.value_align=1"])
def test_numbers_that_cannot_be_set_are_refused(dlc, text):
    assert text.partition("=")[0] in dlc("explain", "model.onnx", *SHAPE, "--set", text, code=1)
