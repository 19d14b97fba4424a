"""Targets as values: text, JSON, keys, model, tag, host."""

from __future__ import annotations

import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import DlcError, TargetError, UsageError
from dlc_core.driver import find_targets
from dlc_core.driver.target_list import Targets
from dlc_core.hooks import hookimpl
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.plugin.registry import fresh_registry
from dlc_core.schedule.rules import ScheduleRule
from dlc_core.target import Description, Option, Target, TargetKind, TargetTag

OPTIONS = Option("slots", "int", 4, "slots"), Option("parts", "strs", (), "parts")
NPU = TargetKind(
    "npu", "a machine", "npu", "npu-card", OPTIONS,
    describe=lambda options: Description(cores=options["slots"], caches=(1 << 15, 1 << 18)),
    keys=("npu", "matrix"), device_type=12,
)  # fmt: skip
CPU = TargetKind(
    "cpu", "a processor", "cpu", "cpu", (Option("size", "str", "big", "the size"),), keys=("cpu",)
)
CARD = TargetTag("boards/card", "npu -slots=8 -target.l2_bytes=4096 -keys=board -model=card", "a usual card")


class Boards:
    @hookimpl
    def dlc_targets(self):
        return [NPU, CPU]

    @hookimpl
    def dlc_target_tags(self):
        return [CARD, TargetTag("plain", "cpu -size=small", "a tag without a slash")]


@pytest.fixture(autouse=True)
def boards():
    with fresh_registry({"boards": Boards()}) as known:
        yield known


def test_attributes_of_a_kind_without_options():
    target = dlc.Target("npu")
    assert (target.kind, target.keys, target.device, target.device_type) == (
        NPU,
        ("npu", "matrix"),
        "npu-card",
        12,
    )
    assert (target.model, target.tag, target.host) == ("", "", None)
    assert target == Target(NPU)


def test_given_keys_precede_those_of_the_kind():
    target = dlc.Target("npu -keys=own,matrix -model=n1")
    assert target.keys == ("own", "matrix", "npu")
    assert target.model == "n1"
    assert target != dlc.Target("npu")


@pytest.mark.parametrize(
    "given",
    [
        "npu -slots=2 -parts=a,b -keys=x,y -model=n1",
        "boards/card",
        "boards/card -slots=2 -keys=more -model=other",
        "plain",
        "npu '-host=cpu -size=small'",
        {"kind": "npu", "parts": ["a"], "keys": ["x"], "host": {"kind": "cpu", "size": "two words"}},
        {"tag": "boards/card", "slots": 3},
        '{"tag": "boards/card", "host": "plain"}',
    ],
)
def test_text_and_json_parse_back(given):
    target = dlc.Target(given)
    assert dlc.Target(str(target)) == target
    assert dlc.Target(target.to_json()) == target
    assert hash(dlc.Target(str(target))) == hash(target)


def test_a_tag_names_a_target_and_options_replace_its_own():
    target = dlc.Target("boards/card")
    assert (target.tag, target.model, target["slots"]) == ("boards/card", "card", 8)
    assert target.keys == ("board", "npu", "matrix")
    assert target.describe().caches == (1 << 15, 4096)
    other = dlc.Target("boards/card -slots=2 -target.l1_bytes=1024")
    assert (other["slots"], other.describe().caches, other.tag) == (2, (1024, 4096), "boards/card")
    assert dlc.Target("plain")["size"] == "small"


def test_a_host_is_text_a_target_or_a_tag():
    for host in ("cpu -size=small", dlc.Target("cpu -size=small"), {"kind": "cpu", "size": "small"}):
        assert dlc.Target("npu", host=host).host == Target(CPU, (("size", "small"),))
    assert dlc.Target("npu", host="plain").host.tag == "plain"
    assert dlc.Target(dlc.Target("npu -slots=2"), host="cpu")["slots"] == 2
    with pytest.raises(TargetError, match="has a host of its own"):
        dlc.Target("npu", host=dlc.Target("cpu", host="cpu"))


def test_code_depends_neither_on_the_tag_nor_on_the_host():
    target = dlc.Target("boards/card", host="cpu").for_code()
    assert str(target) == CARD.target
    plain = dlc.Target("npu")
    assert plain.for_code() is plain
    named = dlc.Target("npu -keys=a")
    assert named.for_code() == named


def test_the_host_takes_the_nodes_that_the_target_does_not_support():
    npu, cpu = Target(NPU), Target(CPU)
    assert find_targets(dlc.Target("npu", host="cpu")) == Targets(cpu, (npu,), frozenset(("npu",)))
    assert find_targets([dlc.Target("npu", host="cpu"), "cpu"]).host == cpu
    assert find_targets(dlc.Target("cpu", host="cpu")) == Targets(cpu)
    with pytest.raises(UsageError, match="several hosts"):
        find_targets([dlc.Target("npu", host="cpu"), dlc.Target("npu -slots=2", host="cpu -size=small")])
    with pytest.raises(UsageError, match="not the last"):
        find_targets([dlc.Target("npu", host="cpu"), "cpu", "npu -slots=2"])
    tagged = find_targets(["boards/card", "cpu"], place={"relu": "boards/card"})
    assert tagged.for_code().others[0].tag == ""
    assert tagged.for_code().place == (("relu", str(tagged.for_code().others[0])),)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("boards/cart", "no target tag 'boards/cart'.*did you mean 'boards/card'"),
        ("nqu", "no target 'nqu'.*did you mean 'npu'"),
        ("npu -kind=cpu", "names two kinds"),
        ("-slots=2", "starts with its kind"),
        ("npu slots", "is not an option"),
        ("npu -slot=2", "has no option -slot.*did you mean -slots.*-keys"),
        ("npu '-host=cpuu'", "no target 'cpuu'"),
        ({"slots": 2}, "needs a kind"),
        ({"kind": 3}, "the kind of a target is text"),
        ({"tag": "boards/cart"}, "no target tag"),
        ({1: 2}, "no name of an option"),
        (3, "a int is no target"),
        ("{" * 3, "does not parse"),
    ],
)
def test_what_is_refused(given, words):
    with pytest.raises(DlcError, match="(?s)" + words):
        dlc.Target(given)


class OnCards(ScheduleRule):
    """The rule for kernels of one kind of card."""

    name = "boards.on_cards"
    priority = 1 << 20
    keys = ("board", "npu")

    def matches(self, func, machine):
        return True

    def apply(self, schedule, machine):
        pass


def test_a_rule_of_a_plugin_is_tried_for_targets_with_its_keys():
    A = te.placeholder((8,), name="A")
    func = te.create_prim_func([A, te.compute((8,), lambda i: A[i] + 1.0, name="B")])

    def rule_of(target):
        context = PassContext(target=dlc.Target(target), schedule_rules=(OnCards(),))
        return ScheduleKernels().run_function(func, context).attrs["rule"]

    assert rule_of("boards/card") == rule_of("npu -keys=board") == "boards.on_cards"
    assert {rule_of("npu"), rule_of("cpu -keys=board")}.isdisjoint({"boards.on_cards"})


def test_a_kind_declares_no_option_that_every_target_has():
    with pytest.raises(TargetError, match="every target has it"):
        TargetKind("odd", "", "", "", (Option("model", "str", "", ""),))
    with pytest.raises(TargetError, match="no further parts"):
        Target("npu", model="x")
