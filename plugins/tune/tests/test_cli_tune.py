"""`dlc tune` on the command line."""

from __future__ import annotations

import io
import json
import signal
from dataclasses import replace

import pytest
from dlc_tune import tuner
from dlc_tune.cli import tune as command
from dlc_tune.cli.live import table
from dlc_tune.graph_search import Decided
from dlc_tune.measuring.comparing import Ratios
from dlc_tune.measuring.job import OK, Outcome
from dlc_tune.model import INTERRUPTED
from dlc_tune.model_result import Line, ModelResult, Progress
from dlc_tune.search import Result
from rich.console import Console

import dlc_core
from dlc_core.cli.main import main


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def dlc(capsys):
    def run(*words, fails=False):
        capsys.readouterr()
        assert bool(main(list(words))) == fails
        printed = capsys.readouterr()
        return printed.err if fails else printed.out

    return run


@pytest.fixture
def called(task, monkeypatch):
    """The arguments of searches, whose results are made up."""
    calls = []

    def search(model, **options):
        calls.append((model, options))
        line = Line("product", 1.0, 0.9, 8, "searched")
        options["progress"](Progress((line,) * 20, 1.0, 9.0, "searching product"))
        ratios = Ratios((0.8,), (1.0,), 0.8, 0.8, 0.8)
        decided = Decided("winograd.tile/(1, 8)", "direct", "tiles 4x4", ratios, dlc_core.Target("llvm"))
        kept = Result(task, Outcome(OK, (1.0,)), None, None, 8, 1, "no candidate came near the default")
        return ModelResult(
            (kept,), (decided,), 0.95, 0.01, left_out={"pool": "its sizes are symbolic"}, seconds=9
        )

    monkeypatch.setattr(command, "search", search)
    return calls


def test_spaces_and_strategies_are_listed(dlc):
    found = {(each["kind"], each["name"]) for each in json.loads(dlc("tune", "--list", "--json"))}
    assert {("space", "decisions"), ("space", "sketches"), ("strategy", "evolutionary")} <= found
    assert "learned cost model" in dlc("tune", "--list")


def test_options_reach_the_search(dlc, called):
    words = "-s 5 --trials 9 --space sketches --space decisions --strategy grid -d r.db --no-graph --batch 3"
    out = dlc(
        "tune", "model.onnx", *words.split(), "-t", "llvm -num-threads=1", "--shape", "n=4", "--progress"
    )
    ((model, options),) = called
    assert str(model) == "model.onnx"
    assert options["space"] == ("sketches", "decisions")
    assert (options["seconds"], options["trials"], options["batch"]) == (5, 9, 3)
    assert (options["strategy"], options["database"], options["graph"]) == ("grid", "r.db", False)
    assert options["targets"] == ["llvm -num-threads=1"]
    assert options["shapes"] == options["sizes"] == {"n": 4}
    assert "no candidate came near the default" in out
    assert "winograd.tile: direct instead of tiles 4x4 for (1, 8)" in out
    assert "not tuned: pool: its sizes are symbolic" in out
    assert "0.950 ± 0.010 of its time before" in out


def test_results_as_json(dlc, called):
    found = json.loads(dlc("tune", "model.onnx", "--json"))
    assert found["ratio"] == 0.95
    assert found["decided"] == {"winograd.tile/(1, 8)": "direct"}
    assert found["kernels"][0]["failed"] == 1


def test_a_budget_that_is_too_small_is_told(called, capsys, monkeypatch):
    assert main(["tune", "model.onnx", "-s", "30"]) == 0
    assert "budget" not in "".join(capsys.readouterr())
    monkeypatch.setattr(command, "search", lambda *_, **__: ModelResult((), seconds=4.2))
    assert main(["tune", "model.onnx", "-s", "5"]) == 0
    printed = capsys.readouterr()
    assert "a budget of 5 s goes to compiling the model for the most part; 20 s find more" in printed.err
    assert "the budget ended before the search began; with 20 s or more it does" in printed.out


def test_a_small_budget_leaves_decisions_of_graph_passes_out(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(tuner, "GraphSearch", lambda *_: made.append(1))
    monkeypatch.setattr(tuner.ModelTuner, "run", lambda *_: ModelResult(()))
    for seconds, count in ((5, 0), (30, 1)):
        tuner.tune("model.onnx", "llvm", seconds=seconds, keep=False, graph=True)
        assert len(made) == count


@pytest.mark.parametrize(("width", "height"), [(40, 12), (100, 30), (100, 4)])
def test_the_table_fits_the_terminal(width, height):
    lines = tuple(Line(f"fused_convolution_relu_{number}", 1.0, 0.9, 8, "searched") for number in range(20))
    out = Console(file=io.StringIO(), width=width, height=height)
    out.print(table(Progress(lines, 1.0, 9.0, "searching a kernel"), width, height, 2.0))
    printed = out.file.getvalue().splitlines()
    assert len(printed) <= max(height, 5)
    assert all(len(line) <= width for line in printed)
    assert "fused_convolution_relu_0" in printed[1]
    assert ("0.900" if width == 40 else "0.9000") in printed[1]
    assert "7 s left" in " ".join(printed)


def test_a_narrow_terminal_gets_lines_in_place_of_a_table(dlc, called, monkeypatch):
    monkeypatch.setattr(command, "console", lambda: Console(width=40))
    out = dlc("tune", "model.onnx", "--no-progress")
    assert "product: 8 trials, 1 failed: no candidate came near" in " ".join(out.split())


@pytest.fixture
def stopped(called, monkeypatch):
    """`stopped(signal)`: a search that is stopped by a signal, and goes on with comparisons."""
    search = command.search

    def stop(by):
        def interrupted(model, **options):
            try:
                signal.raise_signal(by)
            except KeyboardInterrupt:
                options["progress"](Progress((), 1.0, 0.0, f"{INTERRUPTED}comparing"))
                options["progress"](Progress((), 1.0, 0.0, f"{INTERRUPTED}comparing"))
            return replace(search(model, **options), interrupted=True)

        monkeypatch.setattr(command, "search", interrupted)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of pytest-xdist ignore it
    yield stop
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_stop_the_search_in_order(stopped, capsys, name, code):
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    stopped(getattr(signal, name))
    assert main(["tune", "model.onnx", "--no-progress"]) == code
    printed = capsys.readouterr()
    assert f"interrupted by {name}: all trials are kept" in printed.out
    assert "no candidate came near the default" in printed.out
    assert printed.err.count("a second signal ends at once") == 1
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


def test_a_signal_outside_of_the_search_ends_at_once(called, capsys, monkeypatch):
    monkeypatch.setattr(command, "search", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    assert main(["tune", "model.onnx"]) == 143
    assert "stopped by SIGTERM" in capsys.readouterr().err


def test_an_ignored_hangup_stays_ignored(stopped, capsys):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        stopped(signal.SIGHUP)
        assert main(["tune", "model.onnx", "--no-progress"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "SIGHUP" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no model is given"),
        (("model.onnx", "--space", "sketchs"), "sketches"),
        (("model.onnx", "--strategy", "gird"), "grid"),
        (("nowhere.onnx",), "nowhere.onnx"),
    ],
)
def test_mistakes_are_named(dlc, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in dlc("tune", *words, fails=True)
