"""The benchmarks: generated models, alternating peers, tables and JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import onnx.parser
import pytest
from dlc_backend_c import boards
from dlc_backend_c.boards.measure import measure_cycles
from dlc_backend_llvm.wasm.linking import find_linker

import dlc_core as dlc
from benchmarks import cold, exact, gpu, micro, micro_cycles, numerics, wasm
from benchmarks.chart import check_chart, write_chart
from benchmarks.environment import environment
from benchmarks.measure import Result, measure_case
from benchmarks.models import Case, folder_cases
from benchmarks.peers import OURS, Peer, Session
from benchmarks.report import geomeans, print_report, remarks
from dlc_core.diag import UnsupportedError
from dlc_core.runtime.measure.timing import Spread

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, cache: Path, code: int = 0, module: str = "benchmarks") -> str:
    environment = {**os.environ, "DLC_CACHE_DIR": str(cache), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one model that has inputs and outputs, and one that has none."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> twice (float[2, 3] x) => (float[2, 3] y) { y = Add(x, x) }'
    )
    folder = tmp_path / "models"
    folder.mkdir()
    onnx.save(model, folder / "twice.onnx")
    onnx.save(model, folder / "alone.onnx")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(folder / "twice.npz", in_x=x, out_0=x + x)
    return folder


def test_models_of_a_folder_are_measured(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ("--models", str(models), "--threads", "1", "--seconds", "0.05", "--json", str(out))
    text = run(*arguments, cache=tmp_path / "cache")
    assert "twice" in text
    assert "alone" not in text
    record = json.loads(out.read_text())
    (result,) = record["results"]
    assert result["model"] == "twice"
    assert result["reference"] == "stored"
    assert result["errors"]["dlc"] == 0
    assert result["first_seconds"]["dlc"] > result["load_seconds"]["dlc"]
    assert result["milliseconds"]["dlc"]["median"] > 0
    assert result["memory_bytes"]["dlc"] > 1 << 20
    for name in set(record["peers"]) - {"dlc"}:
        ratio = result["milliseconds"]["dlc"]["median"] / result["milliseconds"][name]["median"]
        assert record["geometric_means"][f"{name}, threads 1"] == pytest.approx(ratio)


def test_wrong_results_are_named(models: Path, tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    np.savez(models / "twice.npz", in_x=x, out_0=3 * x)
    arguments = ("--models", str(models), "--threads", "1", "--seconds", "0.01", "--no-memory", "--markdown")
    text = run(*arguments, cache=tmp_path / "cache", code=1)
    assert "twice, threads 1: results differ from stored" in text
    assert "| model |" in text


def test_a_generated_model_is_measured(tmp_path: Path) -> None:
    arguments = ("perceptron", "--threads", "1", "--seconds", "0.05", "--no-memory")
    assert "perceptron" in run(*arguments, cache=tmp_path / "cache")
    assert "no model nothing" in run("nothing", cache=tmp_path / "cache", code=2)


def doubled(path: Path, threads: int) -> Session:
    return lambda feeds: {"y": 2 * feeds["x"]}


def tripled(path: Path, threads: int) -> Session:
    return lambda feeds: {"y": 3 * feeds["x"]}


def unwilling(path: Path, threads: int) -> Session:
    raise NotImplementedError("no Add here\nand more")


def failing(path: Path, threads: int) -> Session:
    calls = iter(range(3))

    def session(feeds: object) -> dict[str, np.ndarray]:
        if next(calls) == 2:
            raise RuntimeError("out of breath")
        return {"y": np.zeros((2, 3), np.float32)}

    return session


def peer(load: object) -> Peer:
    return Peer(load.__name__, ("numpy",), ("numpy",), load)


def crashing(path: Path, threads: int) -> Session:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def measured(case: Case, *loads: object) -> Result:
    peers = [OURS, *map(peer, loads)]
    (result,) = measure_case(case, peers, [1], seconds=0.01, memory=False, limit=10)
    return result


def test_absent_peers_are_not_used() -> None:
    assert peer(doubled).installed
    assert not Peer("nobody", ("no-such-distribution",), ("numpy",), doubled).installed
    assert not Peer("nobody", ("numpy",), ("no_such_module.inside",), doubled).installed


def test_a_peer_that_fails_has_dashes_and_a_reason(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (case,) = folder_cases(models)
    loads = doubled, tripled, unwilling, failing, crashing
    result = measured(case, *loads)
    assert set(result.times) == {"dlc", "doubled", "tripled"}
    assert result.best == "doubled", "a peer whose results are wrong is not the best"
    assert not result.problem
    said = "\n".join(remarks([result]))
    assert "unwilling did not run it: no Add here" in said
    assert "and more" not in said
    assert "failing did not run it: out of breath" in said
    assert "crashing did not run it: crashed: signal 9" in said
    assert "tripled's results differ from stored" in said
    peers = [OURS, *map(peer, loads)]
    means = geomeans([result], peers)
    assert means["the best, threads 1"] == means["doubled, threads 1"]
    assert means["doubled, threads 1"] == pytest.approx(result.ratio("doubled"))
    print_report([result], peers, markdown=True)
    speed = capsys.readouterr().out.splitlines()[2]
    assert speed.count("–") - speed.count("[") == 5, "two times and the ratios of three"
    assert "| crashed |" in speed


def test_without_stored_outputs_float64_is_the_reference(models: Path) -> None:
    (case,) = folder_cases(models)
    result = measured(Case(case.name, case.make, case.feeds), tripled)
    assert result.reference == "float64"
    assert result.errors["dlc"] == 0
    assert result.errors["tripled"] > 1


def test_a_precision_is_passed_to_peers_that_support_it(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    few = ("--threads", "1", "--seconds", "0.01", "--no-memory", "--precision", "bfloat16")
    text = run("--models", str(models), *few, "--json", str(out), cache=tmp_path / "cache")
    assert "in bfloat16" in text
    told = json.loads(out.read_text())
    assert told["machine"]["precision"] == "bfloat16"
    assert "dlc" not in told["machine"]["in_float32"]


def test_kernels_are_measured_against_the_peak(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    names = "matmul 1×768×768", "256→1024 14²", "softmax 1536"
    arguments = (*names, "--threads", "1", "--runs", "1", "--json", str(out))
    text = run(*arguments, cache=tmp_path / "cache", module="benchmarks.kernels")
    assert "cpu.rows" in text
    record = json.loads(out.read_text())
    product, conv, softmax = record["kernels"]
    peak = record["peaks"]["1"]
    assert peak > 0
    assert product["gflops"] == pytest.approx(2 * 768 * 768 / product["milliseconds"] / 1e6)
    assert conv["gflops"] == pytest.approx(2 * 14 * 14 * 256 * 1024 / conv["milliseconds"] / 1e6)
    assert conv["percent"] == pytest.approx(100 * conv["gflops"] / peak)
    assert softmax["gflops"] is None
    assert softmax["gbytes"] > 0
    assert conv["bound"] == "compute"
    assert product["bound"] != "compute"
    assert product["of_limit"] > product["percent"]
    assert "no kernel nothing" in run("nothing", cache=tmp_path, code=2, module="benchmarks.kernels")


def test_overheads_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ("--calls", "20", "--starts", "1", "--json", str(out))
    run(*arguments, cache=tmp_path / "cache", module="benchmarks.overhead")
    figures = json.loads(out.read_text())["figures"]
    assert figures["bound call"]["least"] < figures["call by name"]["least"]
    assert figures["start: python"]["least"] < figures["start: first result of a .dlc file"]["least"]


def test_a_chart_has_a_bar_for_each_peer(tmp_path: Path) -> None:
    ours, theirs = (Spread(ms, ms, ms, ms, ms, 1) for ms in (1.0, 4.0))
    result = Result("a<b", 2, times={"dlc": ours, "doubled": theirs})
    path = tmp_path / "chart.html"
    write_chart(path, [result], [OURS, peer(doubled), peer(tripled)], "machine & versions")
    page = path.read_text(encoding="utf-8")
    for text in ("a&lt;b, 2 T", ">0.25<", ">–<", "doubled", "tripled", "machine &amp; versions"):
        assert text in page
    drawing = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    widths = [float(each.get("width")) for each in drawing.findall("{*}rect") if each.get("x") == "220"][1:]
    assert widths == [100.0, 0.0]
    assert "not chart.gif" in check_chart(Path("chart.gif"))
    assert not check_chart(path)


def test_a_chart_as_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "chart.png"
    ours, theirs = (Spread(ms, ms, ms, ms, ms, 1) for ms in (1.0, 4.0))
    write_chart(path, [Result("m", 1, times={"dlc": ours, "doubled": theirs})], [OURS, peer(doubled)], "")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_old_operator_sets_are_not_evaluated(tmp_path):
    """Softmax was defined on several axes at once, which the evaluator does not support."""
    old = onnx.parser.parse_model(
        '<ir_version: 7, opset_import: ["" : 9]>'
        "old (float[1, 4, 1, 1] x) => (float[1, 4, 1, 1] y) { y = Softmax (x) }"
    )
    onnx.save(old, tmp_path / "old.onnx")
    with pytest.raises(ValueError, match="operator set 9"):
        exact.outputs(tmp_path / "old.onnx", {"x": np.zeros((1, 4, 1, 1), np.float32)})


def test_operators_are_measured_against_onnxruntime(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    text = run("relu", "softmax 512×128", cache=tmp_path, module="benchmarks.operators")
    assert "geometric mean of the ratios" in text
    assert "differ" not in text


def test_models_of_operators_compile() -> None:
    """Every row of the table is a model that the importer reads."""
    operators = pytest.importorskip("benchmarks.operators")
    pytest.importorskip("onnx")
    for each in [*operators.rows(), *operators.moves(), *operators.maps()]:
        assert dlc.load(each.model()).entry == "main", each.name


def test_own_targets_are_compared(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    few = ("--models", str(models), "--threads", "1", "--seconds", "0.01", "--peers", "", "--json", str(out))
    targets = ("--targets", "reference -level=tir", "reference")
    text = run(*few, *targets, "--at-most", "0.0001", cache=tmp_path / "cache", code=1)
    assert "dlc for reference -level=tir, beside reference" in text
    assert "/ reference" in text
    assert "reference compile s" in text
    (result,) = json.loads(out.read_text())["results"]
    assert set(result["milliseconds"]) == {"dlc", "reference"}
    assert set(result["memory_bytes"]) == {"dlc", "reference"}
    assert all(result["serving_peak_bytes"][name] >= size for name, size in result["memory_bytes"].items())
    assert "dlc serving peak MiB" in text
    assert "geometric mean of the ratios to reference, serving peak MiB: " in text
    assert result["errors"] == {"dlc": 0.0, "reference": 0.0}
    assert "twice, threads 1: " in text
    assert "times the time for reference" in text


def test_generated_models_and_models_of_a_folder(models: Path, tmp_path: Path) -> None:
    text = run("nothing", "--models", str(models), "--generated", cache=tmp_path / "cache", code=2)
    assert "twice, bvlc_alexnet" in text


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="arm-none-eabi-gcc is not installed")
def test_flash_and_memory_of_a_perceptron(tmp_path: Path) -> None:
    module = micro.MODELS["mlp"]()
    sizes = {}
    for tool, build in micro.TOOLS.items():
        if tool.startswith("dlc"):
            folder = tmp_path / str(len(sizes))
            folder.mkdir()
            source = build("mlp", module, folder)
            assert source is not None
            sizes[tool] = [micro.compiled(source, level) for level in micro.LEVELS]
    constants = (64 * 32 + 32 + 32 * 10 + 10) * 4
    small, fast = sizes["dlc"]
    assert constants < small.flash <= fast.flash < constants + 4000
    assert 32 * 4 <= small.memory <= 512
    assert sizes["dlc `-opt-for=size`"][0].flash < small.flash


@pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))
def test_cycles_of_microcontrollers() -> None:
    floats, quantized = (micro_cycles.model_cycles("mlp", "mps2-an386", given) for given in (False, True))
    assert 0 < quantized < floats
    layer = micro_cycles.LAYERS[-1]
    data = micro_cycles.data_of(layer)
    exe = dlc.compile(micro_cycles.module_of(layer, data), "c -mcpu=cortex-m4", cache=False)
    sums = (data.x.astype(np.int32) - layer.zero) @ data.weights.astype(np.int32) + data.bias
    scaled = np.rint(sums.astype(np.float32) * data.factors) - 128
    _, (found,) = measure_cycles(exe, [data.x], "mps2-an386", timeout=60)
    np.testing.assert_array_equal(found, np.clip(scaled, -128, 127).astype(np.int8))
    assert "arm_fully_connected_s8(" in micro_cycles.call_text(layer, data)


def test_gpus_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("dlc_backend_cuda")
    arguments = ["product 32", "--target", "cuda_simulated", "--scale", "128", "--runs", "1"]
    text = run(*arguments, "--json", str(tmp_path / "gpu.json"), cache=tmp_path, module="benchmarks.gpu")
    assert "| product 32 float16 |" in text
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert all(case["milliseconds"]["ours"] > 0 and not case["problems"] for case in record["cases"])
    assert len(record["cases"]) == 4


def test_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = pytest.importorskip("dlc_backend_cuda.kind").KIND
    monkeypatch.setitem(kind.__dict__, "problem", lambda: "there is none")
    assert gpu.main([]) == 2
    assert "no device for 'cuda', so that nothing is measured: there is none" in capsys.readouterr().err


def test_errors_of_hard_inputs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    product = replace(numerics.WORK[0], x=(8, 32), w=(32, 48), terms=32)
    convolution = replace(numerics.WORK[1], x=(2, 8, 6, 6), w=(4, 8, 3, 3), terms=72)
    monkeypatch.setattr(numerics, "WORK", (product, convolution))
    assert numerics.main(["--peers", "", "--markdown"]) == 0
    table = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if " | " in line]
    assert table[0] == ["inputs", "dlc", "dlc fast"]
    assert len(table) == 2 + 2 * 11
    for name, *cells in table[2:]:
        for text in cells:
            assert float(text) < 72, name  # and nothing is wrong


def test_wrong_results_are_counted() -> None:
    exact = np.array([1.0, 0.0, 2.0, np.nan, 3.0])
    sizes = np.array([1.0, 0.0, 2.0, np.nan, 3.0])
    assert numerics.cell(exact.astype(np.float32), exact, sizes, 1) == "0.0"
    found = np.array([1.0, 1e-9, np.inf, 5.0, 3.000001], np.float32)
    assert numerics.cell(found, exact, sizes, 1) == "2.7, 3 wrong"


def test_the_machine_is_compared_with_its_description(tmp_path):
    out = tmp_path / "fit.json"
    text = run("--json", str(out), cache=tmp_path / "cache", module="benchmarks.fit")
    assert "described" in text
    found = {each["name"]: each for each in json.loads(out.read_text())}
    assert {"arithmetic", "L1", "memory"} <= found.keys()
    assert all(each["measured"] > 0 for name, each in found.items() if name != "memory_scaling")


def test_times_of_compiles_with_and_without_the_cache(models: Path) -> None:
    case = next(case for case in folder_cases(models) if case.name == "twice")
    times = cold.measure(case, rounds=1)
    assert set(times) == set(cold.STARTS)
    assert all(0 < seconds < first for seconds, _, first in times.values())
    assert times["same"][1] < times["cold"][1]  # neither imports nor calls the compiler
    assert len(cold.report("twice", times)) == 1 + len(cold.STARTS)


def test_measured_starts_have_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KEPT", "yes")
    found = environment(DLC_CACHE="0")
    assert "PYTHONDONTWRITEBYTECODE" not in found
    assert (found["KEPT"], found["DLC_CACHE"]) == ("yes", "0")


def test_webassembly_is_compared_with_native_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        find_linker()
    except UnsupportedError as error:
        pytest.skip(error.what)
    monkeypatch.setattr(wasm, "RUNS", 1)
    monkeypatch.setattr(wasm, "ROUNDS", 1)
    wasm.main(["shufflenet"])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.startswith("| model | native, ms |")
    cells = row.strip("| ").split(" | ")
    assert cells[0] == "shufflenet"
    assert len(cells) == head.count("|") - 1
    assert all(float(cell) > 0 for cell in cells[1:])


def test_sketches_are_compared_with_rules(tmp_path: Path) -> None:
    pytest.importorskip("dlc_tune", reason="the tuner is not installed")
    out = tmp_path / "sketches.json"
    arguments = ("--tiny", "--threads", "1", "--trials", "3", "--json", str(out))
    text = run(*arguments, cache=tmp_path / "cache", module="benchmarks.sketches")
    assert "sketches / rule: geometric mean" in text
    for row in json.loads(out.read_text())["programs"]:
        assert row["trials"] == 3
        assert min(row["rule"], row["model"], row["default"], row["sketches"]) > 0
        assert row["ratio"] == pytest.approx(row["sketches"] / row["rule"])
        assert row["point"]


def test_the_gain_of_tuning(tmp_path):
    pytest.importorskip("dlc_tune", reason="the tuner is a plugin")
    out = run(
        "perceptron",
        "--seconds",
        "2",
        "--space",
        "decisions",
        "-v",
        cache=tmp_path,
        module="benchmarks.tuning",
    )
    assert re.search(r"perceptron +[\d.]+ +[\d.]+ +\d\.\d{3} +\d\.\d{3} +\d+", out)
    assert "geometric mean of the ratios of 1 models" in out
    assert "known: " in run("nothing", cache=tmp_path, code=2, module="benchmarks.tuning")
