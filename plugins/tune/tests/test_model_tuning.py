"""Tuning of whole models: which kernels get the budget, what is kept, what is withdrawn."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from dlc_tune import graph_search, verifying
from dlc_tune.graph_search import GraphSearch
from dlc_tune.measuring.comparing import Ratios
from dlc_tune.measuring.job import OK, Comparison, Outcome
from dlc_tune.records.database import Database
from dlc_tune.records.decision import decision_key
from dlc_tune.records.record import CHOSEN
from dlc_tune.tasks import tasks_of
from dlc_tune.tuner import tune

import dlc_core as dlc
from dlc_core.decisions import declared
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.networks import cifar, feed

TARGET = "llvm"


class Known:
    """A measurer whose costs are a hash of the trace, between half and one and a half times the default's."""

    def cost(self, job):
        if job.trace is None:
            return 1.0
        return 0.5 + int.from_bytes(sha256(job.trace.encode()).digest()[:4], "little") / 2**32

    def measure(self, jobs):
        for number, job in enumerate(jobs):
            yield number, Outcome(OK, (self.cost(job),))

    def compare(self, candidate, default):
        cost = self.cost(candidate)
        return Comparison(OK, (cost,), (1.0,), cost, 0.01, True)

    def close(self):
        pass


def ratios(ratio: float) -> Ratios:
    return Ratios((ratio,), (1.0,), ratio, ratio, ratio)


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole models with what was found are measured to be faster."""
    monkeypatch.setattr(verifying, "compare_models", lambda *_: ("", ratios(0.9)))


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that compiles use."""
    url = f"sqlite:///{tmp_path / 'records.db'}"
    monkeypatch.setenv("DLC_RECORDS_URL", url)
    return url


def tuned(**options):
    given = {"seconds": 20, "trials": 3, "measurer": Known(), "graph": False}
    given |= {"space": "decisions", "strategy": "random", "batch": 3}
    return tune(cifar(), TARGET, inputs=[feed(cifar())], **(given | options))


@pytest.mark.usefixtures("faster")
def test_compiles_use_what_was_found(database):
    before = dlc.compile(cifar(), TARGET)(feed(cifar()))
    snapshots = []
    result = tuned(progress=snapshots.append)
    assert result.chosen
    assert result.ratio == 0.9
    assert not result.withdrawn
    exe = dlc.compile(cifar(), TARGET)
    rules = {kernel.name: kernel.rule for kernel in exe.explain().kernels}
    names = {each.name for each in result.chosen}
    assert {name for name, rule in rules.items() if rule == "tuned"} == names
    np.testing.assert_allclose(exe(feed(cifar())), before, 1e-4, 1e-5)
    slowest = max(snapshots[-1].lines, key=lambda line: line.default)
    assert slowest.trials > 0
    assert [line.default for line in snapshots[-1].lines] == sorted(
        (line.default for line in snapshots[-1].lines), reverse=True
    )


@pytest.mark.usefixtures("faster")
def test_a_model_that_gets_slower_is_withdrawn(database, monkeypatch):
    monkeypatch.setattr(verifying, "compare_models", lambda *_: ("", ratios(1.2)))
    result = tuned()
    assert result.chosen == ()
    assert "1.2" in result.withdrawn
    with Database(database) as records:
        assert records.find(state=CHOSEN) == []
        assert records.find()  # what was tried is kept


@pytest.mark.usefixtures("faster")
def test_a_model_with_other_results_is_withdrawn(database, monkeypatch):
    monkeypatch.setattr(verifying, "compare_models", lambda *_: ("the results differ: all", None))
    result = tuned()
    assert result.chosen == ()
    assert "differ" in result.withdrawn


@pytest.mark.usefixtures("faster")
def test_an_interrupt_keeps_what_was_found(database, monkeypatch):
    class Interrupted(Known):
        jobs = 0

        def measure(self, jobs):
            for each in super().measure(jobs):
                self.jobs += 1
                if self.jobs > 6:
                    raise KeyboardInterrupt
                yield each

    result = tuned(measurer=Interrupted())
    assert result.interrupted
    with Database(database) as records:
        assert 3 <= len(records.find()) <= 6


@pytest.mark.usefixtures("faster")
def test_the_next_run_begins_with_what_was_begun(database):
    class Dying(Known):
        def measure(self, jobs):
            jobs = list(jobs)
            if jobs[0].trace is not None and self.trials:
                raise SystemExit  # as good as killed: nothing is compared
            self.trials += jobs[0].trace is not None and len(jobs)
            yield from super().measure(jobs)

        trials = 0

    with pytest.raises(SystemExit):
        tuned(measurer=Dying(), trials=9)
    with Database(database) as records:
        (begun,) = {each.kernel for each in records.find()}
        best = min(each.seconds for each in records.find())
    order = []
    result = tuned(progress=lambda found: order.append(found.now))
    first = next(now for now in order if now.startswith("searching"))
    (kernel,) = (each for each in result.results if each.task.key == begun)
    assert first == f"searching {kernel.task.name}"
    assert kernel.chosen is None or kernel.chosen.seconds <= best


def test_a_faster_option_of_a_graph_pass_is_kept_and_used(database, monkeypatch):
    monkeypatch.setattr(verifying, "compare_models", lambda *_: ("", ratios(0.9)))
    monkeypatch.setattr(graph_search, "compare_models", lambda *_: ("", ratios(0.8)))
    result = tuned(seconds=60, trials=1, graph=True)
    assert result.decided
    first = result.decided[0]
    assert declared()[first.decision.partition("/")[0]].recordable
    assert first.option != first.preferred
    with Database(database) as records:
        (kept,) = records.find(kernel=decision_key(first.decision), state=CHOSEN)
    assert kept.point == {first.decision: first.option}
    choices = dlc.compile(cifar(), TARGET).explain().graph_choices()
    assert any(each.is_tuned for each in choices)
    monkeypatch.setattr(verifying, "compare_models", lambda *_: ("", ratios(1.2)))
    assert tuned(seconds=60, trials=1, graph=True).withdrawn  # and nothing of the run before
    with Database(database) as records:
        assert records.find(kernel=decision_key(first.decision), state=CHOSEN) == [kept]
    monkeypatch.setenv("DLC_RECORDS", "off")
    choices = dlc.compile(cifar(), TARGET).explain().graph_choices()
    assert not any(each.is_tuned for each in choices)


def test_options_that_give_other_results_are_not_taken(monkeypatch):
    monkeypatch.setattr(graph_search, "compare_models", lambda *_: ("the results differ", None))
    search = GraphSearch(cifar(), TARGET, [feed(cifar())])
    search.run(float("inf"))
    assert search.trials > 0
    assert search.found == []
    assert search.answers == {}


def test_kernels_with_symbolic_sizes_are_named():
    x = param("x", tensor_type((Var("batch"), 64)))
    body = std.relu(std.matmul(x, constant(np.ones((64, 64), np.float32))))
    found = tasks_of(IRModule({"main": Function("main", (x,), body)}), TARGET, sizes={"batch": 4}, runs=1)
    assert found.parts == ()
    (why,) = found.left_out.values()
    assert "symbolic (batch)" in why
