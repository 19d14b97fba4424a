"""Schedules from a tuner: traces that replace the choice of rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_c import plugin as c_plugin

import dlc_core as dlc
from dlc_core import driver, te
from dlc_core.decisions import Choice, Decision, asking, scope
from dlc_core.driver.stages import run_stage
from dlc_core.graph.node import Function, constant, param, post_order
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import structural_hash
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.plugin.registry import fresh_registry
from dlc_core.schedule import Schedule
from dlc_core.target import Description
from dlc_core.testing.card import CardPlugin, compile_region
from dlc_core.testing.schedules import target_of
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For

MACHINE = target_of(Description(vector_bits=256, cores=2))


def double(size=24):
    x = te.placeholder((size,), name="x")
    return te.create_prim_func([x], [te.compute((size,), lambda i: x[i] * 2.0, name="y")], "double")


def by_hand(func):
    """A schedule made by hand: an inner loop of three unrolled iterations."""
    schedule = Schedule(func)
    (loop,) = schedule.get_loops(schedule.get_block("y"))
    schedule.unroll(schedule.split(loop, [None, 3])[1])
    return schedule


def scheduled(func, tuner):
    return ScheduleKernels().run_function(func, PassContext(target=MACHINE, tuner=tuner))


@pytest.mark.parametrize("form", [lambda trace: trace, lambda trace: trace.to_json()], ids=["trace", "json"])
def test_a_tuner_is_asked_first(form):
    func, calls = double(), []

    def tuner(kernel, target):
        calls.append((kernel, target))
        return form(by_hand(kernel).trace)

    made = scheduled(func, tuner)
    assert calls == [(func, MACHINE)]
    assert made.attrs["rule"] == "tuned"
    assert [s.kind for s in stmts(made.body) if isinstance(s, For)] == ["serial", "unrolled"]


def test_rules_apply_if_the_tuner_has_no_answer():
    assert scheduled(double(), lambda kernel, target: None).attrs["rule"] == "cpu.map"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (3, "the tuner gave a int"),
        ("{", "no JSON"),
        (by_hand(double()).trace.to_json().replace('"y"', '"z"'), "no block 'z'"),
    ],
    ids=["number", "damaged", "of another kernel"],
)
def test_rules_apply_if_an_answer_is_invalid(answer, why):
    made = scheduled(double(), lambda kernel, target: answer)
    assert made.attrs["rule"] == "cpu.map"
    (reason,) = made.attrs["why_not"]
    assert reason.startswith("tuned: ")
    assert why in reason


def test_a_plugin_is_a_tuner():
    known = {structural_hash(double()): by_hand(double()).trace}

    class Database:
        DLC_API = "0.1"

        @hookimpl
        def dlc_schedule(self, kernel, target):
            return known.get(structural_hash(kernel))

    with fresh_registry({"database": Database()}):
        for size, rule in ((24, "tuned"), (25, "cpu.map")):
            exe = dlc.build(double(size), "reference -level=tir")
            np.testing.assert_array_equal(exe(np.ones(size, np.float32)), 2)
            assert exe.explain().kernels[0].rule == rule


def convolution():
    rng = np.random.default_rng(0)
    x = param("x", tensor_type((1, 32, 28, 28)))
    w = constant(rng.standard_normal((32, 32, 3, 3), np.float32))
    return IRModule({"main": Function("main", (x,), std.relu(std.conv(x, w, padding=(1, 1, 1, 1))))})


def forms(decider, **config):
    """The decision of a convolution's form when `decider` makes decisions, and the ops of the graph."""
    with PassContext.current().with_(decider=decider):
        context = driver.context_for("c -mcpu=cortex-a72", config=config)
    stage = driver.pipelines(context.target, context)["graph"]
    with scope("main") as choices:
        made = run_stage("graph", stage, convolution(), context)
    nodes = [n for f in made.of_kind(Function).values() for n in post_order(f.body)]
    (form,) = (each for each in choices if each.decision == "winograd.tile")
    return form, {node.op.name for node in nodes}


def test_a_decider_makes_the_decisions_of_graph_passes():
    asked = {}

    def direct(decision, options, preferred, target):
        asked[decision] = options
        return options.index("direct") if decision.startswith("winograd.tile/") else preferred

    form, _ = forms(lambda decision, options, preferred, target: preferred)
    assert form.alternative == "tiles"
    form, _ = forms(direct)
    assert form.alternative == "direct"
    assert form.is_tuned
    assert "tuned; preferred tiles" in form.why()
    assert Choice.parse(form.full()) == replace(form, nodes=())
    (name,) = (name for name in asked if name.startswith("winograd.tile/"))
    assert "(1, 28, 28, 32)" in name


def test_a_forced_decision_is_not_asked_for():
    def refuse(decision, options, preferred, target):
        assert not decision.startswith("winograd.tile/")
        return preferred

    form, _ = forms(refuse, decisions="winograd.tile=direct")
    assert form.alternative == "direct"
    assert not form.is_tuned


def vectors(func):
    """A schedule that C99 has no code for."""
    schedule = Schedule(func)
    (loop,) = schedule.get_loops(schedule.get_block("y"))
    schedule.vectorize(schedule.split(loop, [None, 4])[1])
    return schedule.trace


def test_rules_apply_if_code_generation_fails_with_the_schedules_of_a_plugin():
    backend = pytest.importorskip("dlc_backend_c.plugin", reason="the package dlc-backend-c is missing")

    class Tuner:
        DLC_API = "0.1"

        @hookimpl
        def dlc_schedule(self, kernel, target):
            return vectors(kernel)

    with fresh_registry({"tuner": Tuner(), "c": backend}):
        with pytest.warns(RuntimeWarning, match="uses those of the rules: .* has no vectors"):
            exe = dlc.build(double(), "c")
        assert exe.explain().kernels[0].rule == "cpu.map"
    own = PassContext(tuner=lambda kernel, target: vectors(kernel))
    with fresh_registry({"c": backend}), own, pytest.raises(dlc.DlcError, match="has no vectors"):
        dlc.build(double(), "c")


@pytest.mark.parametrize(("option", "form"), [("direct", "direct"), ("no option", "tiles")])
def test_recorded_decisions_are_used_if_they_are_legal(option, form):
    asked = []
    forms(lambda decision, options, preferred, target: asked.append(decision) or preferred)
    (name,) = (each for each in asked if each.startswith("winograd.tile/"))
    enumerated = []

    class Records:
        @hookimpl
        def dlc_decisions(self, target):
            enumerated.append(str(target))
            return {name: option}

        @hookimpl
        def dlc_schedule_state(self):
            return "1"

    with fresh_registry({"c": c_plugin, "records": Records()}):
        made, _ = forms(None)
    assert made.alternative == form
    assert made.is_tuned == (form == "direct")
    assert len(enumerated) == 1  # once for the compile, however many decisions it makes


def test_only_the_named_decisions_are_asked_for():
    choice = Decision("test.asked", "A choice for this test.", ("a", "b"))

    def unused():
        raise AssertionError("the candidates of other decisions are not enumerated")

    with asking(lambda name, options, preferred: options.index("b"), {"test.asked/here"}):
        assert choice.pick("a", unused, str, where="there") == "a"
        assert choice.choose("a", where="here") == "b"


SPEED = Decision(
    "test.card_speed", "A choice of a region's compiler, for this test.", ("slow", "fast"), recordable=True
)


def compile_by_speed(region, target):
    artifact = compile_region(region, target)
    return replace(artifact, sources={"speed": SPEED.choose("slow", where=len(region.parts))})


def region_of(**options):
    x = param("x", tensor_type((2, 3), "float32"))
    body = std.relu(x)
    module = IRModule({"main": Function("main", (x,), body, {"inputs": ("x",), "outputs": ("y",)})})
    exe = dlc.compile(module, targets=["card", "reference"], **options)
    (kernel,) = (one for one in exe.explain().kernels if one.target == "card")
    return kernel, exe.regions[kernel.name].source("speed")


def test_decisions_of_the_compilers_of_regions_are_forced_and_recorded():
    class Records:
        DLC_API = "0.1"

        @hookimpl
        def dlc_decisions(self, target):
            return {"test.card_speed/1": "fast"} if target.kind.name == "card" else {}

        @hookimpl
        def dlc_schedule_state(self):
            return "1"

    card = CardPlugin("card", compile=compile_by_speed)
    with fresh_registry({"card": card}):
        kernel, speed = region_of()
        assert (speed, kernel.origin, str(*kernel.choices)) == ("slow", "", "test.card_speed=slow")
        kernel, speed = region_of(config={"decisions": "test.card_speed=fast"})
        assert (speed, kernel.origin) == ("fast", "")
        with PassContext(decider=lambda decision, options, preferred, target: options.index("fast")):
            assert region_of()[1] == "fast"
    with fresh_registry({"card": card, "records": Records()}):
        kernel, speed = region_of()
        assert (speed, kernel.origin) == ("fast", "1 of 1 choices are a tuner's (test.card_speed)")
        assert region_of(config={"decisions": "test.card_speed=slow"})[1] == "slow"
