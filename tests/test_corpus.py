"""The corpus: its list of recipes, the check and the measurement of a folder, comparison of runs."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from benchmarks import against, running
from benchmarks.corpus import checking, costs, scaling
from benchmarks.corpus.__main__ import main
from benchmarks.corpus.building import build_one
from benchmarks.corpus.catalog import chosen, first_of_families, recipe_of, recipes
from benchmarks.corpus.recipe import DTYPES, Recipe, add
from benchmarks.measure import Result
from benchmarks.peers import OURS, Peer, Session
from benchmarks.report import above_one, family_means
from dlc_core.decisions import Candidate, Choice
from dlc_core.runtime.measure.explain import Kernel
from dlc_core.runtime.measure.timing import Spread
from dlc_core.target.cost import Machine, Work

TEXT = '<ir_version: 10, opset_import: ["" : 20]> g (float[3] x) => (float[3] y) { y = Relu(x) }'


@pytest.mark.parametrize(("shift", "outcome"), [(0, "right"), (1, "wrong")])
def test_outcomes(tmp_path, shift, outcome):
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    x = np.float32([-1, 0, 2])
    np.savez(path.with_suffix(".npz"), in_x=x, out_0=np.maximum(x, 0) + np.float32(shift))
    record = checking.check_one(path)
    assert record["outcome"] == outcome
    assert f"| m | {outcome} |" in checking.table([record])


def test_an_unknown_operator_is_the_outcome(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(TEXT.replace("Relu", "Unheard")).SerializeToString())
    np.savez(path.with_suffix(".npz"), in_x=np.zeros(3, np.float32), out_0=np.zeros(3, np.float32))
    assert "Unheard" in checking.check_one(path)["outcome"]


def test_outputs_that_do_not_depend_on_the_inputs_are_marked(tmp_path):
    path = tmp_path / "m.onnx"
    text = TEXT.replace("y = Relu(x)", "z = Mul(x, small) y = Add(z, one)")
    text = text.replace("(float[3] y) {", "(float[3] y) <float small = {1e-9}, float one = {1}> {")
    path.write_bytes(parser.parse_model(text).SerializeToString())
    x = np.float32([-1, 0, 2])
    np.savez(path.with_suffix(".npz"), in_x=x, out_0=np.ones(3, np.float32))
    assert checking.check_one(path)["outcome"] == "still"


# --- The list ---


def test_the_list_is_broad():
    found = chosen(small=False)
    models = {re.sub(r"-(b\d+|any|int8|bfloat16)$", "", each.name) for each in found}
    assert len(models) >= 60
    assert len({each.family for each in found}) >= 25
    assert {1, 8} <= {each.batch for each in found}
    assert {"static", "symbolic"} == {each.shapes for each in found}
    assert set(DTYPES) == {each.dtype for each in found}
    assert len({each.stem for each in recipes().values()}) == len(recipes()), "file names differ too"
    assert all(size > 1 for each in found for size in each.dims.values()), "exporters make constants of 1"


def test_names_say_family_and_variant():
    assert all(name == each.name for name, each in recipes().items())
    for each in chosen(small=False):
        assert each.name.startswith(f"{each.family}/")
        ending = "any" if each.dims else f"b{each.batch}" if each.dtype == "float32" else each.dtype
        assert each.name.endswith(f"-{ending}")
    assert {each.family for each in first_of_families()} == {each.family for each in chosen(small=False)}


def test_a_name_is_taken_once():
    (first, *_) = recipes().values()
    with pytest.raises(ValueError, match=f"two recipes are named {first.name}"):
        add(replace(first))


def test_the_list_is_printed(tmp_path, capsys):
    assert main(["list", "--only", "keywords/,tcn/", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(chosen("keywords/", small=False)) + len(chosen("tcn/", small=False))
    assert any("| batch=2 |" in line for line in lines)
    onnx.save(parser.parse_model(TEXT), tmp_path / f"{recipes()['tcn/tcn-400-b1'].stem}.onnx")
    main(["list", str(tmp_path), "--only", "tcn/tcn-400-b1", "--markdown"])
    assert "| 0.00 M | x 3 |" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["b1", "any", "int8"])
def test_recipes_are_built_and_right(tmp_path, variant):
    for package in ("torch", "onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            pytest.skip(f"pip install -e '.[corpus]': no {package} here")
    name = f"keywords/dscnn-49x10-{variant}"
    assert main(["build", str(tmp_path), "--only", name]) == 0
    recipe = recipes()[name]
    graph = onnx.load(tmp_path / f"{recipe.stem}.onnx").graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == ("batch" if variant == "any" else "")
    with np.load(tmp_path / f"{recipe.stem}.npz") as arrays:
        assert arrays[f"in_{graph.input[0].name}"].shape[0] == recipe.batch
    assert any(node.op_type == "QuantizeLinear" for node in graph.node) == (variant == "int8")
    (record,) = checking.check(tmp_path, name)
    assert record["outcome"] == "right"


def test_outputs_of_a_recipe_without_any_are_those_of_onnxruntime(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    recipe = Recipe("made/up", "made", "here", lambda path: onnx.save(parser.parse_model(TEXT), path))
    monkeypatch.setitem(recipes(), recipe.name, recipe)
    build_one("made/up", tmp_path)
    with np.load(tmp_path / "made-up.npz") as arrays:
        assert np.array_equal(arrays["out_0"], np.maximum(arrays["in_x"], 0))
    assert recipe_of("made-up") is recipe


# --- A run over a folder ---


def doubled(path: Path, threads: int) -> Session:
    return lambda feeds: {"y": 2 * feeds["x"]}


def crashing(path: Path, threads: int) -> Session:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def unsteady(path: Path, threads: int) -> Session:
    """dlc runs one model, and crashes for the other."""
    return crashing(path, threads) if "second" in path.name else doubled(path, threads)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two models that double three numbers."""
    made = tmp_path / "models"
    made.mkdir()
    x = np.float32([-1, 0, 2])
    for name in ("first", "second"):
        onnx.save(parser.parse_model(TEXT.replace("Relu(x)", "Add(x, x)")), made / f"{name}.onnx")
        np.savez(made / f"{name}.npz", in_x=x, out_0=x + x)
    return made


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, *peers: Peer, more: tuple[str, ...] = ()) -> int:
    monkeypatch.setattr(running, "installed_peers", lambda: list(peers))
    few = ("--threads", "1", "--seconds", "0.01", "--markdown", "--json", str(folder / "out.json"))
    return main(["measure", str(folder), *few, *more])


def peer(load: Any) -> Peer:
    return Peer(load.__name__, ("numpy",), ("numpy",), load)


def test_a_crash_of_a_peer_is_a_cell(folder, monkeypatch, capsys):
    chart = folder / "chart.html"
    more = ("--only", "first", "--chart", str(chart))
    assert measured(folder, monkeypatch, OURS, peer(doubled), peer(crashing), more=more) == 0
    (result,) = json.loads((folder / "out.json").read_text())["results"]
    assert result["failures"] == {"crashing": "crashed: signal 9"}
    assert set(result["milliseconds"]) == set(result["peak_bytes"]) == {"dlc", "doubled"}
    assert result["peak_bytes"]["dlc"] > 1 << 20
    assert result["best_peer"] == "doubled"
    assert "| crashed |" in capsys.readouterr().out
    assert "doubled" in chart.read_text()


def test_a_crash_of_ours_does_not_end_the_run(folder, monkeypatch, capsys):
    ours = replace(OURS, load=unsteady, precisions=())
    assert measured(folder, monkeypatch, ours, peer(doubled)) == 1
    first, second = json.loads((folder / "out.json").read_text())["results"]
    assert not first["problem"]
    assert second["problem"] == "dlc cannot run it: crashed: signal 9"
    assert "second, threads 1: dlc cannot run it: crashed: signal 9" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_a_row(folder, monkeypatch):
    (folder / "first.npz").write_bytes(b"nothing")
    assert measured(folder, monkeypatch, OURS, peer(doubled)) == 1
    first, second = json.loads((folder / "out.json").read_text())["results"]
    assert first["problem"].startswith("its files cannot be read")
    assert not second["problem"]


def test_a_run_is_compared_with_a_kept_one(folder, monkeypatch, capsys):
    assert measured(folder, monkeypatch, OURS, peer(doubled)) == 0
    kept = folder / "kept.json"
    record = json.loads((folder / "out.json").read_text())
    record["machine"]["processor"] = "another"
    kept.write_text(json.dumps(record))
    capsys.readouterr()
    wide = ("--against", str(kept), "--threshold", "1000")
    assert measured(folder, monkeypatch, OURS, peer(doubled), more=wide) == 0
    said = capsys.readouterr().out
    assert "ANOTHER MACHINE: the processor was another" in said
    assert "compared with the earlier run: 2 same" in said
    (folder / "second.onnx").unlink()
    assert measured(folder, monkeypatch, OURS, peer(doubled), more=wide) == 1
    assert "compared with the earlier run: 1 missing, 1 same" in capsys.readouterr().out
    assert measured(folder, monkeypatch, OURS, peer(doubled), more=(*wide, "--only", "first")) == 0
    assert measured(folder, monkeypatch, OURS, more=("--against", str(folder / "none.json"))) == 2


# --- Runs compared ---


def result(
    ours: float, peer: float = 1.0, width: float = 0.01, problem: str = "", **more: Any
) -> dict[str, Any]:
    """A result whose times are spread by the fraction `width`."""

    def spread(ms: float) -> Mapping[str, float]:
        return {"median": ms, "p10": ms * (1 - width), "p90": ms * (1 + width)}

    times = {"peer": spread(peer)} if problem else {"dlc": spread(ours), "peer": spread(peer)}
    return {"model": "m", "threads": 1, "milliseconds": times, "problem": problem, **more}


@pytest.mark.parametrize(
    ("before", "after", "outcome", "regression"),
    [
        (result(2), result(2.1), "same", False),
        (result(2), result(2.5), "slower", True),
        (result(2), result(1.5), "faster", False),
        (result(2), result(2.5, width=0.4), "same", False),
        (result(2), result(2.5, peer=1.25), "same", False),
        (result(2), result(2, peer=0.5), "slower", True),
        (result(2), result(0, problem="dlc cannot run it: crashed: signal 11"), "failed", True),
        (result(0, problem="wrong"), result(2), "mended", False),
        (result(0, problem="wrong"), result(0, problem="wrong"), "same", False),
        (result(2), result(2, model="n"), "new", False),
    ],
)
def test_changes(before, after, outcome, regression):
    change, *others = against.compared([before], [after], lambda name: True, [1])
    assert change.outcome.partition(":")[0] == outcome
    assert change.regression == regression
    assert [each.outcome for each in others] == (["missing"] if outcome == "new" else [])


def test_only_the_expected_are_missed():
    before = [result(2, model=model, threads=count) for model in "mn" for count in (1, 2)]
    changes = against.compared(before, [before[0]], lambda name: name == "m", [1])
    assert [(each.model, each.threads, each.outcome) for each in changes] == [("m", 1, "same")]
    changes = against.compared(before, [before[0]], lambda name: True, [1, 2])
    assert [each.outcome for each in changes] == ["same", *["missing"] * 3]
    assert all(each.regression for each in changes[1:])


def test_changes_are_printed(capsys):
    machine = {"processor": "p", "cores": 2, "system": "s"}
    changes = against.compared([result(2)], [result(3, peer=1.2)], lambda name: True, [1])
    against.print_changes(machine, machine, changes, markdown=True)
    said = capsys.readouterr().out
    assert "| m | 1 | 2.000 | 3.000 | 1.200 | 1.250 | slower |" in said
    assert "compared with the earlier run: 1 slower" in said
    assert "ANOTHER" not in said


def test_families_and_the_slower_are_summed_up():
    def made(model: str, family: str, ours: float) -> Result:
        times = {name: Spread(ms, ms, ms, ms, ms, 1) for name, ms in (("dlc", ours), ("doubled", 1.0))}
        return Result(model, 1, family, times=times)

    found = [made("a", "x", 0.5), made("b", "x", 2.0), made("c", "y", 3.0)]
    means = family_means(found, [OURS, peer(doubled)])
    assert means["x"]["the best, threads 1"] == pytest.approx(1)
    assert means["y"]["the best, threads 1"] == pytest.approx(3)
    assert above_one(found) == ["c, threads 1: 3.00 of doubled", "b, threads 1: 2.00 of doubled"]


def test_costs_of_a_folder(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    np.savez(path.with_suffix(".npz"), in_x=np.float32([-1, 0, 2]))
    file = tmp_path / "costs.json"
    code = main(["costs", str(tmp_path), "--seconds", "0", "--json", str(file), "--markdown"])
    assert code in (0, 1)  # the time of so small a kernel is mostly that of a call
    (found,) = json.loads(file.read_text())
    assert (found["model"], found["rule"], found["share"]) == ("m", "cpu.map", 1.0)
    assert found["predicted"] > found["roofline"] > 0
    assert "| cpu.map | 1 |" in capsys.readouterr().out


def test_speedups_of_a_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scaling, "SHORT", 0.0)
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    np.savez(path.with_suffix(".npz"), in_x=np.float32([-1, 0, 2]))
    file = tmp_path / "speedups.json"
    assert main(["scaling", str(tmp_path), "--seconds", "0", "--json", str(file), "--markdown"]) in (0, 1)
    (found,) = json.loads(file.read_text())
    assert (found["model"], found["rule"], found["share"]) == ("m", "cpu.map", 1.0)
    assert found["serial"] > 0
    assert found["parallel"] > 0
    assert "| cpu.map |" in capsys.readouterr().out


def test_slow_kernels_are_bound_by_arithmetic_and_matter():
    def speedup(kernel: str, factor: float, share: float = 0.5, bound: str = "compute") -> scaling.Speedup:
        return scaling.Speedup("m", kernel, "cpu.contraction", "", bound, factor, 1.0, share)

    found = [speedup("a", 1.6), speedup("b", 1.8), speedup("c", 1.2), speedup("d", 1.1, share=0.01)]
    found.append(speedup("e", 1.0, bound="memory"))
    assert [row[1] for row in scaling.slow(found, 2)] == ["c", "a"]
    rows = list(scaling.distribution(found, 2))
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("cpu.contraction", "compute", "4", "75.0%"),
        ("cpu.contraction", "memory", "1", "100.0%"),
        ("all", "", "5", "80.0%"),
    ]


def cost(measured: float, predicted: float | None = 1.0, *, share: float = 0.5, why: str = "") -> costs.Cost:
    work = Work(0, 0, 0, 0, 0)
    return costs.Cost("m", f"k{measured}", "cpu.map", (), measured, share, predicted, 0.5, why, work)


def test_the_distribution_of_predictions():
    found = [cost(1.0), cost(1.2), cost(4.0), cost(9.0, None)]
    (rule, every) = costs.distribution(found)
    assert (rule[0], every[0]) == ("cpu.map", "all")
    assert every[1:] == ["3", "0.31", "0.54", "0.83", "0.92", "0.98", "66.7%", "33.3%"]
    assert not costs.met(found)
    assert costs.met(found[:2])
    assert costs.met([])


def test_outliers_are_far_from_their_prediction_or_matter():
    found = [cost(1.0), cost(1.1, why="gathers"), cost(1.2, share=0.01, why="gathers"), cost(4.0, share=0.2)]
    assert [(row[1], row[-1]) for row in costs.outliers(found)] == [("k1.1", "gathers"), ("k4.0", "–")]


@pytest.mark.parametrize(
    ("measured", "given", "word"),
    [
        (1.4e-3, {"steps": 10**8}, ""),
        (4e-3, {"steps": 10**8}, "arithmetic: 50 of 200 GFLOP/s"),
        (4e-3, {"steps": 10**8, "cycles": 9e6}, "register tile"),
        (4e-3, {"functions": 4 * 10**6}, "functions: 4000000 evaluations, 100%"),
        (4e-3, {"bytes": 10**7}, "bytes from memory: 2 GB/s"),
        (4e-3, {"bytes": 10**7, "gathers": 7}, "gathers: 7 accesses"),
        (4e-3, {"bytes": 10**7, "rule": "none"}, "plain loops"),
        (2e-7, {"bytes": 100}, "short: a call takes 0.2"),
    ],
)
def test_reasons(measured, given, word):
    machine = Machine(200e9, (100e9, 10e9), (1 << 15,), 10e9, call_seconds=2e-7, frequency=3e9)
    keys = ("flops", "steps", "functions", "bytes", "constants", "gathers")
    work = Work(*(given.get(key, 0) for key in keys))
    cycles = given.get("cycles", 0)
    tile = Choice("gemm.tile", "MxN", "6x2", candidates=(Candidate("MxN", "6x2", cycles),))
    rule, estimate = given.get("rule", "cpu.map"), machine.estimate(work, cycles=cycles)
    kernel = Kernel("k", (), rule, (), (), (tile,), work, estimate)
    assert costs.reason(kernel, machine, measured).startswith(word)
    assert bool(costs.reason(kernel, machine, measured)) == bool(word)


def kept_run(path, threads, *results, cores=2):
    """Write the record of a run: of each model its name, dlc's milliseconds and those of two peers."""
    records = [
        {
            "model": model,
            "threads": threads,
            "milliseconds": {name: {"median": value} for name, value in times.items()},
            "best_peer": min((n for n in times if n != "dlc"), key=lambda n: times[n], default=None),
        }
        for model, times in results
    ]
    record = {"machine": {"processor": "P", "cores": cores}, "peers": {"dlc": "0", "a": "1", "b": "2"}}
    path.write_text(json.dumps({**record, "results": records}))
    return path


def test_kept_runs_are_shown_together(tmp_path, capsys):
    one = kept_run(tmp_path / "1", 1, ("net", {"dlc": 8.0, "a": 10.0, "b": 9.0}), ("other", {"dlc": 1.5}))
    two = kept_run(tmp_path / "2", 2, ("net", {"dlc": 5.5, "a": 5.0, "b": 9.0}))
    assert main(["show", str(one), str(two), "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| model | 1 thread, dlc ms | a | b | / best | 2 threads, dlc ms | a | b | / best |"
    assert lines[2] == "| net | 8 | 10 | 9 | 0.89 | 5.5 | 5 | 9 | 1.10 |"
    assert lines[3] == "| other | 1.5 | – | – | – | – | – | – | – |"
    assert lines[-2] == "threads 1: 0.889 of the best peer, 1 models; above 1: none"
    assert lines[-1] == "threads 2: 1.100 of the best peer, 1 models; above 1: net 1.10"


def test_kept_runs_of_other_machines_are_refused(tmp_path):
    one = kept_run(tmp_path / "1", 1)
    two = kept_run(tmp_path / "2", 2, cores=4)
    with pytest.raises(ValueError, match="differ in 'cores'"):
        main(["show", str(one), str(two)])
