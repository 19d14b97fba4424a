"""Broken plugins: a compile for a target that somebody names is an error that says what is broken where.

Each case breaks one part of a plugin that works.  Both `dlc.compile(model, "board")` and `targets=["board",
"reference"]` must raise a DlcError with the texts of the case.  Without the check most of them would compute
on the host.
"""

from __future__ import annotations

import json
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import Partitioner, RegionPattern
from dlc_core.diag import CodegenError, DlcError, Span
from dlc_core.graph.node import Function, constant, param
from dlc_core.hooks import Deferred, hookimpl
from dlc_core.ir.expr import const_value
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry
from dlc_core.rewrite import match_op, var
from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.script import from_json, to_json
from dlc_core.target import Artifact, Description, TargetKind
from dlc_core.tir.interpreter import run

X = np.arange(32, dtype=np.float32).reshape(4, 8) - 16
FORMAT = "board-json"


def model():
    x = param("x", tensor_type((4, 8)))
    product = std.matmul(x, constant(np.eye(8, 5, dtype=np.float32)))
    product.add_spans((Span("net", "dense"),))
    y = std.relu(product)
    y.add_spans((Span("net", "act"),))
    return IRModule({"main": Function("main", (x,), y)})


class Codegen:
    name, kinds, format = "board", ("board",), FORMAT

    def emit(self, module, target):
        code = json.dumps(to_json(IRModule(module.functions, {}, module.entry))).encode()
        return Artifact(self.format, code, str(target), symbols=(module.entry,))


class Program:
    def __init__(self, module):
        self.module = module

    def entry(self, symbol):
        return self.module, self.module[symbol]

    def close(self):
        """Nothing is held."""


class Device:
    name, formats = "board", (FORMAT,)

    def __init__(self):
        self.memory, self.handles = {}, count(1)

    def alloc(self, size, align=64):
        handle = next(self.handles)
        self.memory[handle] = bytearray(size)
        return handle

    def free(self, handle):
        del self.memory[handle]

    def write(self, handle, data, offset=0):
        self.memory[handle][offset : offset + len(data)] = data

    def read(self, handle, out, offset=0):
        out[:] = self.memory[handle][offset : offset + len(out)]

    def load(self, artifact):
        return Program(from_json(json.loads(artifact.code)))

    def launch(self, entry, buffers, scalars, threads):
        module, main = entry
        arrays = []
        for buffer, handle in zip(main.buffers, buffers):
            shape = [const_value(size) for size in buffer.shape]
            data = np.frombuffer(self.memory[handle], buffer.dtype.numpy, int(np.prod(shape)))
            arrays.append(data.reshape(shape))
        run(main, *arrays, *scalars, module=module)

    def sync(self):
        """Launches return when they have finished."""


def described(options):
    return Description(parallel=False)


def kind(**fields):
    given = {"codegen": "board", "device": "board", "describe": described, **fields}
    return TargetKind("board", "a board", **given)


RELU = RegionPattern("relu", match_op("relu", var("x")))


class Board:
    """The plugin; `broken` replaces the values of hooks, a function is called in its place."""

    DLC_API = "0.1"

    def __init__(self, **broken):
        self.broken = broken

    def given(self, hook, usual):
        value = self.broken.get(hook, usual)
        return value() if callable(value) and not isinstance(value, type) else value

    @hookimpl
    def dlc_targets(self):
        return self.given("targets", [kind()])

    @hookimpl
    def dlc_codegens(self):
        return self.given("codegens", [Codegen()])

    @hookimpl
    def dlc_devices(self):
        return self.given("devices", [Device()])

    @hookimpl
    def dlc_partitioners(self):
        return self.given("partitioners", [])

    @hookimpl
    def dlc_schedule_rules(self):
        return self.given("rules", [])

    @hookimpl
    def dlc_passes(self):
        return self.given("passes", [])


def fail(*args, **more):
    raise RuntimeError("the licence has expired")


def partitioner(**fields):
    return [Partitioner("board-relu", "board", **{"patterns": [RELU], **fields})]


def part(cls, **members):
    """An object of a class with other members."""
    return type(cls.__name__, (cls,), members)()


class Rule(ScheduleRule):
    """The rule for kernels of the board."""

    name, priority = "board.rule", 1000

    def matches(self, func, machine):
        return True

    def apply(self, schedule, machine):
        """The loops stay as they are."""


class OldBoard(Board):
    DLC_API = "7.3"


class UnmarkedBoard(Board):
    def dlc_ops(self):
        return []


class MisspeltBoard(Board):
    @hookimpl
    def dlc_partitoners(self):
        return []


LICENCE = "RuntimeError: the licence has expired"
MISSING = "No module named 'nobody_has_this'"
PLUGIN = "plugin board"
REGION = "in region_"

CASES = {
    # hooks
    "targets hook raises": (Board(targets=fail), ["no target 'board'", PLUGIN, "dlc_targets", LICENCE]),
    "partitioners hook raises": (Board(partitioners=fail), [PLUGIN, "dlc_partitioners", LICENCE]),
    "partitioners hook of a kind without code generator raises": (
        Board(targets=[kind(codegen="")], partitioners=fail),
        [PLUGIN, "dlc_partitioners", LICENCE],
    ),
    "codegens hook raises": (Board(codegens=fail), ["no codegen 'board'", PLUGIN, "dlc_codegens", LICENCE]),
    "devices hook raises": (Board(devices=fail), ["no device 'board'", PLUGIN, "dlc_devices", LICENCE]),
    "schedule rules hook raises": (Board(rules=fail), [PLUGIN, "dlc_schedule_rules", LICENCE]),
    "passes hook raises": (Board(passes=fail), [PLUGIN, "dlc_passes", LICENCE]),
    "hook returns a number": (Board(partitioners=7), [PLUGIN, "dlc_partitioners", "returned int 7"]),
    "hook returns one declaration": (
        Board(partitioners=partitioner()[0]),
        [PLUGIN, "dlc_partitioners", "must return a list"],
    ),
    "hook returns something else": (Board(partitioners=[Rule()]), [PLUGIN, "is no partitioner", "no target"]),
    "nothing takes an operation": (Board(targets=[kind(codegen="")]), ["takes no operation", PLUGIN]),
    # deferred declarations
    "deferred kind is missing": (
        Board(targets=[Deferred("board", "nobody_has_this:KIND")]),
        ["no target 'board'", PLUGIN, MISSING],
    ),
    "deferred codegen is missing": (
        Board(codegens=[Deferred("board", "nobody_has_this:CODEGEN")]),
        ["no codegen 'board'", PLUGIN, MISSING],
    ),
    "deferred device is missing": (
        Board(devices=[Deferred("board", "nobody_has_this:DEVICE")]),
        ["no device 'board'", PLUGIN, MISSING],
    ),
    "deferred partitioner is missing": (
        Board(partitioners=[Deferred("board-relu", "nobody_has_this:PARTITIONER")]),
        [PLUGIN, "dlc_partitioners", MISSING],
    ),
    "deferred rule is missing": (
        Board(rules=[Deferred("board.rule", "nobody_has_this:RULE")]),
        [PLUGIN, "dlc_schedule_rules", MISSING],
    ),
    "deferred rule has another name": (
        Board(rules=[Deferred("board.fast", f"{__name__}:RULE")]),
        [PLUGIN, "dlc_schedule_rules", "its name is 'board.rule', not 'board.fast'"],
    ),
    # names and versions
    "codegen that does not exist": (
        Board(targets=[kind(codegen="bord")]),
        ["no codegen 'bord'", PLUGIN, "did you mean 'board'"],
    ),
    "device that does not exist": (
        Board(targets=[kind(device="bord")]),
        ["no device 'bord'", PLUGIN, "did you mean 'board'"],
    ),
    "partitioner of an unknown kind": (
        Board(partitioners=[Partitioner("board-relu", "bord", [RELU])]),
        [PLUGIN, "'board-relu' is for the target kind 'bord'", "did you mean 'board'"],
    ),
    "another interface version": (OldBoard(), ["no target 'board'", PLUGIN, "written for interface 7.3"]),
    "misspelt hook": (MisspeltBoard(), ["no target 'board'", PLUGIN, "did you mean 'dlc_partitioners'"]),
    "unmarked hook": (UnmarkedBoard(), ["no target 'board'", PLUGIN, "dlc_ops is not marked"]),
    "codegen and device do not fit": (
        Board(devices=[part(Device, formats=("other-json",))]),
        ["do not fit", "board", FORMAT, "other-json", "hint"],
    ),
    # kinds
    "describe raises": (Board(targets=[kind(describe=fail)]), ["kind 'board' cannot describe", LICENCE]),
    "describe returns a dict": (
        Board(targets=[kind(describe=lambda options: {"cores": 4})]),
        ["kind 'board' cannot describe", "returned a dict", "Description"],
    ),
    "stages raise": (Board(targets=[kind(stages=fail)]), ["kind 'board'", "stages", LICENCE]),
    "stages are unknown": (Board(targets=[kind(stages=("graf",))]), ["kind 'board'", "stages", "'graf'"]),
    # partitioners
    "predicate raises": (
        Board(partitioners=partitioner(patterns=[RegionPattern("relu", RELU.pattern, fail)])),
        ["'board-relu'", PLUGIN, "for board", LICENCE, "'act'"],
    ),
    "predicate returns None": (
        Board(partitioners=partitioner(patterns=[RegionPattern("relu", RELU.pattern, lambda *_: None)])),
        ["'board-relu'", PLUGIN, "returned None", "'act'"],
    ),
    "worth raises": (
        Board(partitioners=partitioner(worth=fail)),
        ["'board-relu'", PLUGIN, "for board", LICENCE, "'act'"],
    ),
    "patterns are ops": (
        Board(partitioners=lambda: partitioner(patterns=["relu"])),
        [PLUGIN, "dlc_partitioners", "'board-relu'", "RegionPattern"],
    ),
    "pattern is a name": (
        Board(partitioners=lambda: partitioner(patterns=[RegionPattern("relu", "relu")])),
        [PLUGIN, "dlc_partitioners", "match_op"],
    ),
    "compile raises": (
        Board(partitioners=partitioner(compile=fail)),
        ["'board-relu'", PLUGIN, "for board", REGION, LICENCE, "'act'", "failed_regions"],
    ),
    "compile returns bytes": (
        Board(partitioners=partitioner(compile=lambda region, target: b"code")),
        ["'board-relu'", PLUGIN, "for board", REGION, "returned a bytes", "'act'"],
    ),
    "replacement raises": (
        Board(partitioners=partitioner(replacement=fail)),
        ["'board-relu'", PLUGIN, "for board", LICENCE, "'act'"],
    ),
    "replacement returns None": (
        Board(partitioners=partitioner(replacement=lambda found, target: None)),
        ["'board-relu'", PLUGIN, "for board", "NoneType", "'act'"],
    ),
    # code generators, schedules and devices
    "emit raises": (Board(codegens=[part(Codegen, emit=fail)]), ["'board'", PLUGIN, LICENCE, "reproducer"]),
    "emit returns a dict": (
        Board(codegens=[part(Codegen, emit=lambda *_: {"code": b""})]),
        ["code generator 'board'", "returned a dict", "Artifact"],
    ),
    "rule raises in matches": (
        Board(rules=[part(Rule, matches=fail)]),
        ["rule 'board.rule'", "kernel", LICENCE, "'dense'"],
    ),
    "rule raises in apply": (
        Board(rules=[part(Rule, apply=fail)]),
        ["rule 'board.rule'", "kernel", LICENCE, "'dense'"],
    ),
    "load raises": (Board(devices=[part(Device, load=fail)]), ["device 'board' failed", LICENCE]),
    "alloc raises": (Board(devices=[part(Device, alloc=fail)]), ["device 'board' failed", LICENCE]),
    "write raises": (Board(devices=[part(Device, write=fail)]), ["device 'board' failed", LICENCE]),
    "launch raises": (Board(devices=[part(Device, launch=fail)]), ["device 'board' failed", LICENCE]),
    "device cannot choose": (Board(devices=[part(Device, at=fail)]), ["device 'board'", PLUGIN, LICENCE]),
}
RULE = Rule()
FORMS = {"alone": {"target": "board"}, "in a list": {"targets": ["board", "reference"]}}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_broken_plugin_is_an_error(case, form, tmp_path):
    plugin, texts = case
    context = dlc.PassContext(config={"reproducer_dir": str(tmp_path)})
    with fresh_registry({"board": plugin}), context, pytest.raises(DlcError) as caught:
        dlc.compile(model(), **form)(X)
    message = str(caught.value)
    for text in texts:
        assert text in message, message


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_identity_that_raises_is_an_error(form):
    with fresh_registry({"board": Board(targets=[kind(identity=fail)])}), pytest.raises(DlcError) as caught:
        dlc.compile(model(), **form, cache=True)
    assert "kind 'board'" in str(caught.value)
    assert "`identity` raised RuntimeError: the licence has expired" in str(caught.value)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_plugin_works_if_nothing_is_broken(form):
    with fresh_registry({"board": Board()}):
        np.testing.assert_array_equal(dlc.compile(model(), **form)(X), np.maximum(X[:, :5], 0))


@pytest.mark.parametrize("case", ["partitioners hook raises", "deferred rule is missing"])
def test_broken_plugins_of_other_targets_stay_isolated(case):
    with fresh_registry({"board": CASES[case][0]}):
        np.testing.assert_array_equal(dlc.compile(model(), "reference")(X), np.maximum(X[:, :5], 0))


def test_the_explanation_names_plugins_of_partitioners_that_are_not_known():
    """A plugin that only adds partitioners may be for any target: it is isolated, and not forgotten."""
    more = SimpleNamespace(dlc_partitioners=hookimpl(specname="dlc_partitioners")(fail))
    with fresh_registry({"board": Board(), "more": more}):
        exe = dlc.compile(model(), targets=["board", "reference"])
        (line,) = exe.explain().refusals()
        assert line.startswith("not asked: plugin more of more: dlc_partitioners: ")
        assert LICENCE in line
    with fresh_registry({"board": Board(targets=[kind(codegen="")]), "more": more}):
        with pytest.raises(DlcError, match="takes no operation") as caught:
            dlc.compile(model(), "board")
        assert LICENCE in str(caught.value)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    ("category", "declared"),
    [
        ("targets", {"targets": [kind()]}),
        ("codegens", {"codegens": [Codegen()]}),
        ("devices", {"devices": [Device()]}),
        ("rules", {"rules": [Rule()]}),
        ("partitioners", {"partitioners": partitioner()}),
    ],
)
def test_clashing_names_are_an_error(category, declared, form):
    empty = dict.fromkeys(("targets", "codegens", "devices", "rules", "partitioners"), ())
    rival = Board(**{**empty, **declared})
    own = Board(**(declared if category in ("rules", "partitioners") else {}))
    with fresh_registry({"board": own, "rival": rival}), pytest.raises(DlcError) as caught:
        dlc.compile(model(), **form)
    assert "rival" in str(caught.value)
    assert "board" in str(caught.value)


# Regions that the target's own code generator compiles


def refuse(*args):
    raise CodegenError("the board has no sequencer for this", why="it is too long")


REFUSING = {
    "every op": {},
    "a partitioner without compile": {"partitioners": partitioner()},
    "a kernel's rule": {"codegens": [Codegen()], "rules": [part(Rule, apply=fail)]},
}


@pytest.mark.parametrize("declared", REFUSING.values(), ids=REFUSING)
def test_the_host_takes_regions_that_the_code_generator_refuses(declared, tmp_path):
    plugin = Board(**{"codegens": [part(Codegen, emit=refuse)], **declared})
    config = {"failed_regions": "host", "reproducer_dir": str(tmp_path)}
    targets = ["board", "reference"]
    with fresh_registry({"board": plugin}):
        exe = dlc.compile(model(), targets=targets, config=config)
        np.testing.assert_array_equal(exe(X), np.maximum(X[:, :5], 0))
        assert {str(region.target) for region in exe.regions.values()} == {"reference"}
        reasons = [reason for refusal in exe.explain().refused for reason in refusal.reasons]
        assert any("region_0 for board: " in reason for reason in reasons)
        with pytest.raises(DlcError, match="in region_0") as caught:
            dlc.compile(model(), targets=targets, config={**config, "failed_regions": "error"})
        assert {"dense", "act"} >= {span.name for span in caught.value.spans} > set()
