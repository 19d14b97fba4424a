"""Profiles of models for several targets: each segment on its own device, copies, and the time line."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import RegionPattern, SimulatedDevice
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import op
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.rewrite import match_op, var
from dlc_core.runtime.measure.recorder import Recorder
from dlc_core.runtime.measure.recording import Recorded
from dlc_core.target import Description
from dlc_core.testing.card import Card, CardPlugin
from dlc_core.testing.networks import mlp

TENSOR = "reference -level=tir"
CARD = "first -limit=1000"
X = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
FREQUENCY = 1e8


class Counting(CardPlugin):
    """A card whose counter advances by `cycles` in each launch."""

    def __init__(self, name, cycles=0, **fields):
        super().__init__(name, **fields)
        card, plain = self.card, self.card.run

        def run(*arguments):
            plain(*arguments)
            card.cycles += cycles

        if cycles:
            card.run = run

    @hookimpl
    def dlc_targets(self):
        (kind,) = super().dlc_targets()
        describe = lambda options: Description(parallel=False, frequency=FREQUENCY)  # noqa: E731
        return [replace(kind, describe=describe)]


@pytest.fixture
def cards():
    first, second = Counting("first", 5000), CardPlugin("second")
    with fresh_registry({"first": first, "second": second}):
        yield first.card, second.card


def call(name, *args, **attrs):
    return registry().ops[name].build(*args, **attrs)


def module(params, *results):
    body = results[0] if len(results) == 1 else make_tuple(results)
    return IRModule({"main": Function("main", tuple(params), body)})


def compiled(model, targets, **options):
    return dlc.compile(model, targets=targets, cache=False, **options)


def check_sums(report):
    rows = [*report.rows, *report.transfers]
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert sum(row.milliseconds for row in report.rows) == pytest.approx(
        sum(one.milliseconds for one in report.targets)
    )
    assert sum(one.bytes_share for one in report.targets) == pytest.approx(1)
    assert sum(one.multiply_adds_share for one in report.targets) == pytest.approx(1)


@pytest.mark.parametrize("host", [TENSOR, "reference"])
def test_each_segment_is_measured_on_its_own_device(cards, host):
    exe = compiled(mlp(), [CARD, host])
    report = exe.profile([X], runs=3, warmup=1)
    check_sums(report)
    region = next(row for row in report if row.kernel == "region_0")
    assert (region.device, region.target, region.measured) == ("first", CARD, "counter")
    assert (region.calls, region.cycles, region.multiply_adds) == (1, 5000, 320)
    assert region.milliseconds == pytest.approx(5000 / FREQUENCY * 1e3)
    others = [row for row in report if row is not region]
    assert {(row.device, row.measured) for row in others} == {
        ("host" if host == "reference" else "reference", "clock")
    }
    assert sum(row.multiply_adds * row.calls for row in report) == 64 * 32 + 320
    assert all(row.milliseconds > 0 for row in others)


def test_copies_are_rows_with_bytes(cards):
    report = compiled(mlp(), [CARD, TENSOR]).profile([X], runs=2)
    found = {row.kernel: (row.calls, row.bytes, row.device, row.measured) for row in report.transfers}
    assert found == {
        "host → first": (1, 4 * 32, "first", "clock"),
        "first → host": (1, 4 * 10, "first", "clock"),
    }
    assert all(row.milliseconds > 0 and row.gbytes for row in report.transfers)


def test_targets_have_their_cycles(cards):
    exe = compiled(mlp(), [CARD, "second", TENSOR], place={"relu": "second", "softmax": TENSOR})
    report = exe.profile([X], runs=2)
    check_sums(report)
    by_target = {one.target: one for one in report.targets}
    assert set(by_target) == {CARD, "second", TENSOR}
    launches = sum(row.calls for row in report if row.target == CARD)
    assert by_target[CARD].cycles == 5000 * launches
    assert by_target["second"].cycles is None
    assert by_target["second"].expected_cycles > 0
    assert sum(one.multiply_adds for one in report.targets) == 64 * 32 + 320
    pairs = {(row.kernel, row.device) for row in report.transfers}
    assert {("second → first", "first"), ("first → second", "second")} & pairs


def test_a_device_without_a_counter_has_a_clock(cards):
    exe = compiled(mlp(), ["second -limit=1000", TENSOR])
    report = exe.profile([X], runs=2)
    region = next(row for row in report if row.kernel == "region_0")
    assert (region.device, region.measured, region.cycles) == ("second", "clock", None)
    assert region.milliseconds > 0
    assert "this process's clock, around the launch" in str(report)


def test_a_counter_of_another_type_is_no_counter(cards):
    card = cards[1]
    for counter in ("many", None, 3.5):
        card.cycles = counter
        report = compiled(mlp(), ["second -limit=1000", TENSOR]).profile([X], runs=1)
        assert next(row for row in report if row.kernel == "region_0").measured == "clock"


def test_a_counter_that_was_reset_is_not_used(cards):
    card, plain = cards[0], cards[0].run

    def run(*arguments):
        plain(*arguments)
        card.cycles = 0

    card.cycles, card.run = 9000, run
    report = compiled(mlp(), [CARD, TENSOR]).profile([X], runs=1, warmup=0)
    assert next(row for row in report if row.kernel == "region_0").measured == "clock"


def test_single_targets_without_instrumented_entries_have_a_clock(cards):
    (row,) = compiled(mlp(), ["reference"]).profile([X], runs=2)
    assert (row.kernel, row.device, row.measured, row.calls) == ("main", "reference", "clock", 1)


def test_bodies_of_loops_count_their_calls(cards):
    i, x = param("i", tensor_type((), "int32")), param("x", tensor_type((8, 8)))
    cond = Function("cond", (i, x), call("less", i, constant(5, "int32")))
    j, y = param("j", tensor_type((), "int32")), param("y", tensor_type((8, 8)))
    w = constant(np.eye(8, dtype=np.float32))
    body = Function("body", (j, y), make_tuple((call("add", j, constant(1, "int32")), call("matmul", y, w))))
    a = param("a", tensor_type((8, 8)))
    model = module([a], call("while_", constant(0, "int32"), a, cond=cond, body=body))
    exe = compiled(model, ["first", "reference"], place={"add": "reference"})
    report = exe.profile([np.ones((8, 8), np.float32)], runs=2)
    region = next(row for row in report if row.device == "first")
    assert (region.calls, region.cycles) == (5, 5 * 5000)
    (target,) = [one for one in report.targets if one.target == "first"]
    assert (target.multiply_adds, target.multiply_adds_share) == (5 * 8**3, 1)
    assert next(row for row in report if row.kernel == "add").calls == 5
    assert sum(span.kind == "segment" for span in report.timeline) == 5


def test_symbolic_sizes_are_measured(cards):
    n = Var("n")
    a = param("a", tensor_type((n, 8)))
    model = module([a], call("tanh", call("matmul", a, constant(np.eye(8, dtype=np.float32)))))
    exe = compiled(model, ["first", TENSOR])
    for rows in (1, 7):
        report = exe.profile([np.ones((rows, 8), np.float32)], runs=1)
        assert {row.bytes for row in report.transfers} == {4 * 8 * rows}
        region = next(row for row in report if row.device == "first")
        assert (region.cycles, region.multiply_adds) == (5000, rows * 8 * 8)
        assert all(row.bytes and row.roofline for row in report)
        check_sums(report)
        assert report.dims == {"n": rows}
        explanation = exe.explain(measured=report)
        assert explanation.share("first") == 1


def test_profiles_survive_saving(cards, tmp_path):
    exe = compiled(mlp(), [CARD, TENSOR])
    exe.save(tmp_path / "m.dlc")
    report, again = (one.profile([X], runs=1) for one in (exe, dlc.open(tmp_path / "m.dlc")))
    facts = [
        sorted((r.kernel, r.segment, r.target, r.device, r.measured, r.multiply_adds) for r in each)
        for each in (report, again)
    ]
    assert facts[0] == facts[1]


def test_results_and_later_calls_are_unaffected(cards):
    exe = compiled(mlp(), [CARD, TENSOR])
    before = exe(X)
    card = cards[0]
    used = card.memory_used
    exe.profile([X], runs=2)
    np.testing.assert_array_equal(exe(X), before)
    assert card.memory_used <= used + 4096


def test_measured_times_join_the_explanation(cards):
    exe = compiled(mlp(), [CARD, "reference"])
    explanation = exe.explain(measured=exe.profile([X], runs=1))
    assert all(kernel.seconds for kernel in explanation.kernels)
    assert sum(one.shares["seconds"] for one in explanation.shares().values()) == pytest.approx(1)


def test_the_time_line_shows_overlap(cards):
    """Both cards sleep in independent launches, so that their spans overlap."""
    a = param("a", tensor_type((8, 8)))
    w = constant(np.eye(8, dtype=np.float32))
    model = module([a], call("matmul", a, w), call("relu", a))
    exe = compiled(model, ["first", "second", "reference"], place={"relu": "second", "matmul": "first"})
    both = threading.Barrier(2)

    def meeting(run):
        def waiting(*arguments):
            both.wait(20)
            time.sleep(0.01)
            run(*arguments)

        return waiting

    for card in cards:
        card.run = meeting(card.run)
    recorder = Recorder()
    recorded = Recorded(exe, recorder)
    recorder.begin(serial=False)
    recorded([np.ones((8, 8), np.float32)], 1)
    segments = {s.device: s for s in recorder.timeline() if s.kind == "segment"}
    first, second = segments["first"], segments["second"]
    assert min(first.end, second.end) - max(first.start, second.start) > 5
    assert all(one.end - one.start > 9 for one in (first, second))


def test_spans_follow_their_dependences(cards):
    report = compiled(mlp(), [CARD, TENSOR]).profile([X], runs=1)
    spans = {(s.kind, s.name): s for s in report.timeline}
    first, region = spans["segment", "segment_0"], spans["segment", "region_0"]
    there, back = spans["transfer", "host → first"], spans["transfer", "first → host"]
    for before, after in ((first, there), (there, region), (region, back)):
        assert before.end <= after.start + 1e-3
    assert all(0 <= s.start <= s.end for s in report.timeline)
    assert (region.target, region.device, region.cycles) == (CARD, "first", 5000)
    assert (there.bytes, there.source, there.destination) == (128, "host", "first")


def test_traces_are_in_the_trace_event_format(cards, tmp_path):
    report = compiled(mlp(), [CARD, TENSOR]).profile([X], runs=1)
    report.trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    done = [e for e in events if e["ph"] == "X"]
    assert len(done) == len(report.timeline)
    assert all(e["dur"] >= 0 and e["ts"] >= 0 and e["pid"] == 1 for e in done)
    assert {names[e["tid"]] for e in done} == {"reference", "first", "first copies"}
    assert {e["cat"] for e in done} == {"segment", "transfer"}
    (copy,) = [e for e in done if e["name"] == "host → first"]
    assert copy["args"]["bytes"] == 128
    with pytest.raises(UsageError, match="cannot be written"):
        report.trace(tmp_path / "missing" / "t.json")


def test_texts_and_json_have_devices_and_the_time_line(cards):
    report = compiled(mlp(), [CARD, TENSOR]).profile([X], runs=1)
    text = str(report)
    assert "first copies" in text
    assert "13.5%" in text  # of the multiply-adds
    record = json.loads(report.to_json())
    assert {one["target"] for one in record["targets"]} == {CARD, TENSOR}
    assert {one["name"] for one in record["timeline"]} >= {"region_0", "segment_0"}
    assert record["transfers"]


@pytest.mark.parametrize("marks", ["none", "without time", "not queued"])
def test_time_lines_of_devices_without_marks(marks, monkeypatch):
    plugin = CardPlugin("first")
    if marks == "none":
        monkeypatch.setattr(Card, "record", None)
        monkeypatch.setattr(Card, "copy", lambda *arguments: False)
        monkeypatch.setattr(Card, "write", _written)
        monkeypatch.setattr(Card, "read", _read)
    elif marks == "not queued":
        monkeypatch.setattr(Card, "queued", False)
    else:
        plain = SimulatedDevice.record
        monkeypatch.setattr(Card, "record", lambda self: _Mark(plain(self)))
    with fresh_registry({"first": plugin}):
        report = compiled(mlp(), [CARD, TENSOR]).profile([X], runs=1)
    spans = {(s.kind, s.name): s for s in report.timeline}
    first, region = spans["segment", "segment_0"], spans["segment", "region_0"]
    assert first.end <= region.start <= region.end


class _Mark:
    def __init__(self, event):
        self.wait = event.wait


def _written(self, handle, data, offset=0):
    self.sync()
    self._window(handle, offset, len(data))[:] = np.frombuffer(data, np.uint8)


def _read(self, handle, out, offset=0):
    self.sync()
    np.frombuffer(out, np.uint8)[:] = self._window(handle, offset, len(out))


SORTED = op(
    "sorted_rows", "columns in ascending order", ["x"], kind="opaque", infer=lambda types, attrs: types[0],
    reference=lambda x: np.sort(x, 0),
)  # fmt: skip


@pytest.mark.parametrize("host", [TENSOR, "reference"])
def test_regions_with_host_programs_are_measured(host, tmp_path):
    """The region falls back to the host, which needs a host program for an op without a lowering."""

    def compile_(region, target):
        raise RuntimeError("no registers left")

    plugin = SimpleNamespace(dlc_ops=hookimpl(specname="dlc_ops")(lambda: [SORTED]))
    ops = SORTED, registry().ops["tanh"]
    patterns = [RegionPattern(each.name, match_op(each, var("x"))) for each in ops]
    card = CardPlugin("first", patterns=patterns, compile=compile_)
    with fresh_registry({"first": card, "ops": plugin}):
        a = param("a", tensor_type((8, 8)))
        inner = call("tanh", SORTED.build(call("tanh", a)))
        model = module([a], call("matmul", inner, constant(np.eye(8, dtype=np.float32))))
        exe = compiled(model, ["first", host], config={"failed_regions": "host"})
        exe.save(tmp_path / "m.dlc")
        for each in (exe, dlc.open(tmp_path / "m.dlc")):
            explanation = each.explain()
            assert explanation.totals()["multiply_adds"] == 8**3
            assert explanation.share("first") == 0
            report = each.profile([np.ones((8, 8), np.float32)], runs=2)
            assert sum(row.share for row in report) == pytest.approx(1)
            assert all(row.calls == 1 and row.milliseconds > 0 for row in report)
            if host == TENSOR:
                assert {row.segment.partition(".")[0] for row in report} == {"region_0", "segment_0"}
                assert [row.device for row in report if row.kernel == "sorted_rows"] == ["host"]


def test_counters_of_devices_in_this_memory_are_read(devices, models, monkeypatch):
    exe = compiled(models.dense(), ["shared"])
    device = exe.device
    plain = type(device).launch

    def launch(self, *arguments):
        plain(self, *arguments)
        self.cycles += 700

    monkeypatch.setattr(type(device), "launch", launch)
    monkeypatch.setattr(type(device), "cycles", 0, raising=False)
    report = exe.profile([np.ones((2, 6), np.float32)], runs=3)
    (target,) = report.targets
    assert target.cycles == 700
    assert all(row.measured == "code" for row in report)
