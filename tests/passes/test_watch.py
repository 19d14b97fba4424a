"""Watchers: their observations, their errors, and the search for the first wrong pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dlc_core.config import config
from dlc_core.diag import PassError, Span, VerifyError
from dlc_core.graph.node import Function, constant, node, param, rewrite, spanned
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import GraphPass, PassContext, Pipeline
from dlc_core.passes.numeric import compare_results, results_of, sample_feeds
from dlc_core.passes.watch import (
    Dump,
    KeepSpans,
    NumericCheck,
    Time,
    Verify,
    bisect,
    configured_watchers,
    count_nodes,
    same_results,
    spans_of,
)
from dlc_core.tir.stmt import PrimFunc, seq


@dataclass(frozen=True)
class Same(GraphPass):
    name: ClassVar[str] = "same"

    def run_function(self, function, context):
        return function


@dataclass(frozen=True)
class Swap(GraphPass):
    """Replaces an op by another, right or wrong."""

    name: ClassVar[str] = "swap"
    old: str = "relu"
    new: str = "abs"

    def run_function(self, function, context):
        def visit(n, args):
            return std.BY_NAME[self.new].build(*args) if n.op.name == self.old else None

        return function.with_body(rewrite(function.body, visit))


@dataclass(frozen=True)
class Loose(Swap):
    name: ClassVar[str] = "loose"
    exact: ClassVar[bool] = False
    drops_spans: ClassVar[bool] = True
    factor: float = 1.0

    def run_function(self, function, context):
        return function.with_body(std.mul(function.body, constant(self.factor, "float32")))


@dataclass(frozen=True)
class Forget(GraphPass):
    name: ClassVar[str] = "forget"

    def run_function(self, function, context):
        return function.with_body(std.neg(function.params[0]))


@pytest.fixture
def module():
    x = param("x", tensor_type((4, 6)))
    with spanned([Span("m.onnx", "act")]):
        body = std.relu(x)
    return IRModule({"main": Function("main", (x,), std.neg(std.add(body, x)))})


def run(module, *passes, watchers=()):
    return Pipeline(passes).run(module, PassContext(watchers=tuple(watchers)))


def test_dump_writes_the_input_and_each_change(module, tmp_path):
    run(module, Same(), Swap(), Same(), Swap("add", "sub"), watchers=[Dump(tmp_path / "d")])
    files = sorted(p.name for p in (tmp_path / "d").iterdir())
    assert files == ["000-input.py", "002-swap.py", "004-swap.py"]
    assert "relu" in (tmp_path / "d" / files[0]).read_text()
    assert "relu" not in (tmp_path / "d" / files[1]).read_text()


def test_time_reports_each_pass(module):
    watcher = Time()
    run(module, Same(), Loose(), watchers=[watcher])
    assert [(t.name, t.before, t.after) for t in watcher.timings] == [("same", 4, 4), ("loose", 4, 6)]
    report = watcher.report().split("\n")
    assert report[0].split() == ["pass", "ms", "%", "nodes"]
    assert report[-1].startswith("total")
    assert Time().report().startswith("pass")


def test_verify_refuses_broken_graphs(module):
    @dataclass(frozen=True)
    class Break(GraphPass):
        name: ClassVar[str] = "break"

        def run_function(self, function, context):
            return function.with_body(std.neg(param("stranger", tensor_type((4, 6)))))

    with pytest.raises(PassError, match="pass 'break' failed"):
        run(module, Break(), watchers=[Verify()])
    run(module, Same(), Swap(), watchers=[Verify(types=False)])


def test_verify_refuses_wrong_types(module):
    @dataclass(frozen=True)
    class Lie(GraphPass):
        name: ClassVar[str] = "lie"

        def run_function(self, function, context):
            body = function.body
            return function.with_body(node(body.op, body.args, {}, tensor_type((4, 7))))

    with pytest.raises(PassError, match="pass 'lie' failed"):
        run(module, Lie(), watchers=[Verify()])
    run(module, Lie(), watchers=[Verify(types=False)])


def test_numeric_check_finds_the_pass_that_changes_results(module):
    watcher = NumericCheck()
    with pytest.raises(PassError, match=r"pass 'swap' failed: .*changes results of input set 0: result 0: "):
        run(module, Same(), Swap(), watchers=[watcher])
    assert watcher.checked == []
    watcher = NumericCheck()
    run(module, Swap("neg", "neg"), Loose(), watchers=[watcher])
    assert watcher.checked == ["swap", "loose"]


def test_numeric_check_knows_exact_from_approximate(module):
    nearly = 1 + 1e-6
    run(module, Loose(factor=nearly), watchers=[NumericCheck()])
    with pytest.raises(PassError, match="changes results"):
        run(module, Loose(factor=1.01), watchers=[NumericCheck()])
    run(module, Loose(factor=1.01), watchers=[NumericCheck(scale=1e3)])

    class Exact(Loose):
        name = "exact"
        exact = True

    with pytest.raises(PassError, match="changes results"):
        run(module, Exact(factor=nearly), watchers=[NumericCheck()])


def test_numeric_check_takes_given_feeds(module):
    positive = {"x": np.ones((4, 6), np.float32)}
    run(module, Swap(), watchers=[NumericCheck([positive])])
    with pytest.raises(PassError, match="input set 1"):
        run(module, Swap(), watchers=[NumericCheck([positive, {"x": -positive["x"]}])])


def test_graphs_that_cannot_be_evaluated_are_not_compared(module):
    run(module, Swap(), watchers=[NumericCheck([{"wrong": np.zeros(1)}])])
    prim = PrimFunc("main", (), seq())
    run(IRModule({"main": prim}), Same(), watchers=[NumericCheck(), Verify(), KeepSpans(), Time()])


def test_spans_may_not_vanish(module):
    with pytest.raises(PassError, match="loses 1 model nodes") as caught:
        run(module, Forget(), watchers=[KeepSpans()])
    assert caught.value.spans == (Span("m.onnx", "act"),)
    run(module, Swap(), Loose(), watchers=[KeepSpans()])
    assert list(spans_of(module)) == [Span("m.onnx", "act")]


@pytest.mark.parametrize("wrong", range(6))
def test_bisect_finds_the_first_wrong_pass(module, wrong):
    passes = [Same(), Swap("neg", "neg"), Same(), Loose(), Same(), Loose()]
    passes[wrong] = Swap("relu", "abs")
    calls = []
    check = same_results(module)

    def counted(candidate):
        calls.append(candidate)
        return check(candidate)

    found = bisect(module, Pipeline(tuple(passes)), counted)
    assert (found.index, found.one) == (wrong, passes[wrong])
    assert check(found.before)
    assert not check(found.after)
    assert len(calls) <= 5


def test_bisect_of_a_right_pipeline_finds_nothing(module):
    assert bisect(module, Pipeline((Same(), Loose())), same_results(module)) is None
    with pytest.raises(PassError, match="before the first pass"):
        bisect(module, Pipeline((Same(),)), lambda m: False)


def test_feeds_bind_symbolic_dims():
    n, m = Var("n"), Var("m")
    x, y = param("x", tensor_type((n, m))), param("y", tensor_type((m, n * 2), "int64"))
    function = Function("main", (x, y), x)
    first, _, boundary = sample_feeds(function)
    assert first["x"].shape == (2, 3)
    assert first["y"].shape == (3, 4)
    assert set(np.unique(first["y"])) <= {0, 1}
    assert not np.isnan(boundary["x"]).any()
    again = sample_feeds(function)[0]
    assert all((first[k] == again[k]).all() for k in first)


def test_comparisons_report_the_first_difference():
    a = np.float32([1.0, 0.0, np.nan, np.inf])
    assert compare_results((a,), (a.copy(),), exact=True) == ""
    b = np.float32([1.0, -0.0, np.nan, np.inf])
    assert "first at (1,): 0.0 became -0.0" in compare_results((a,), (b,), exact=True)
    assert compare_results((a,), (b,), exact=False) == ""
    assert "float32[4] became float32[2, 2]" in compare_results((a,), (a.reshape(2, 2),), exact=False)
    assert "1 results became 2" in compare_results((a,), (a, a), exact=False)
    assert "result 0: result 1" in compare_results(((a, a),), ((a, b),), exact=True)
    assert "1 of 2" in compare_results((np.array([1, 2]),), (np.array([1, 3]),), exact=False)
    error = results_of(Function("f", (), std.neg(param("x", tensor_type((1,))))), {})
    assert "became a value" in compare_results(error, (a,), exact=False)
    assert compare_results(error, error, exact=True) == ""


def test_settings_choose_watchers(tmp_path):
    assert configured_watchers() == ()
    with config.override(verify="structure"):
        assert [w.name for w in configured_watchers()] == ["verify"]
    with config.override(verify="each", dump_dir=tmp_path):
        assert [w.name for w in configured_watchers()] == ["verify", "numeric", "dump"]


def test_nodes_of_inner_functions_count(module):
    a = param("a", tensor_type((2,)))
    inner = Function("inner", (a,), std.neg(a))
    x = param("x", tensor_type((2,)))
    cond = param("c", tensor_type((), "bool"))
    body = std.if_(cond, x, then_branch=inner, else_branch=inner)
    assert count_nodes(IRModule({"main": Function("main", (cond, x), body)})) == 3 + 2


def test_failures_in_watchers_keep_their_kind(module):
    with pytest.raises(PassError) as caught:
        run(module, Forget(), watchers=[KeepSpans()])
    assert isinstance(caught.value.__cause__, VerifyError)


def test_a_module_that_cannot_be_printed_is_still_dumped(tmp_path):
    run(IRModule({"main": 7}), Same(), watchers=[Dump(tmp_path)])
    assert "cannot be printed" in (tmp_path / "000-input.py").read_text()
