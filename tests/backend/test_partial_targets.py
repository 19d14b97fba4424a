"""Targets that take only some nodes: `supports` of code generators, `rules` of kinds, disabled passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.minimal_filtering.matching import filtering_core
from dlc_core.cli.main import main
from dlc_core.diag import PluginError, ScheduleError, TargetError, UsageError
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.tir.schedule_kernels import NoRuleError, ScheduleKernels
from dlc_core.plugin.registry import fresh_registry
from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.target import Description
from dlc_core.testing.networks import cifar, feed, mlp
from dlc_core.testing.schedules import kernel_of
from dlc_core.tir.matrix import Fragment, MatrixUnit
from tests.backend.test_broken_plugins import Board, Codegen, fail, kind, part

FORMS = {"alone": {"target": "board"}, "in a list": {"targets": ["board", "reference"]}}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


class Dense(ScheduleRule):
    """The rule for GEMM on the board."""

    name, priority = "board.dense", 10

    def matches(self, func, machine):
        return "matmul" in func.name

    def apply(self, schedule, machine):
        """The loops stay as they are."""


class Products(Dense):
    """The rule for GEMM and convolution."""

    name = "board.product"

    def matches(self, func, machine):
        return "matmul" in func.name or "conv" in func.name


class Contractions(Dense):
    """The rule for GEMM without anything after it."""

    name = "board.contraction"

    def apply(self, schedule, machine):
        if len(schedule.get_blocks()) > 1:
            raise ScheduleError("the array has no unit for what follows")


def placed(exe):
    return {name: exe_ops(region) for region in exe.about["placed"]["regions"] for name in [region["name"]]}


def exe_ops(region):
    return region["target"], region["ops"]


def ops_on(exe, target):
    return [op for where, ops in placed(exe).values() for op in ops if where == target]


def same(exe, model):
    x = feed(model)
    np.testing.assert_allclose(exe(x), dlc.compile(model, "reference")(x), rtol=1e-4, atol=1e-6)


# supports


def dense_only(n):
    return n.op.name in ("matmul", "add") or f"there is no unit for {n.op.name}"


@each_form
def test_a_code_generator_takes_the_nodes_that_it_supports(form):
    supports = part(Codegen, supports=lambda self, n: dense_only(n))
    with fresh_registry({"board": Board(codegens=[supports])}):
        exe = dlc.compile(mlp(), **form)
        assert ops_on(exe, "board") == ["matmul", "add", "matmul", "add"]
        assert str(exe.target) == "reference"
        refusals = {r.op: (r.target, r.reasons) for r in exe.explain().refused}
        assert refusals["relu"] == ("board", ("op: there is no unit for relu",))
        same(exe, mlp())


@each_form
def test_supports_may_take_the_target_and_return_false(form):
    supports = part(Codegen, supports=lambda self, n, target: target.kind.name != "board")
    with fresh_registry({"board": Board(codegens=[supports])}):
        exe = dlc.compile(mlp(), **form)
        assert not exe.regions
        assert all("'board' does not support it" in r.reasons[0] for r in exe.explain().refused)
        same(exe, mlp())


@pytest.mark.parametrize(
    ("supports", "text"),
    [(fail, "RuntimeError: the licence has expired"), (lambda self, n: None, "it returned None")],
)
@each_form
def test_supports_that_fails_is_an_error(supports, text, form):
    with fresh_registry({"board": Board(codegens=[part(Codegen, supports=supports)])}):
        with pytest.raises(TargetError, match="`supports` of code generator 'board' failed") as caught:
            dlc.compile(mlp(), **form)
        assert text in str(caught.value)
        assert "plugin board" in str(caught.value)


def test_bodies_of_control_flow_are_asked_for():
    x, y = param("x", tensor_type((4,))), param("y", tensor_type((4,)))
    body = Function("body", (y,), std.exp(y))
    other = Function("other", (y,), std.relu(y))
    chosen = std.BY_NAME["if_"].build(
        std.BY_NAME["greater"].build(std.BY_NAME["reduce_sum"].build(x), constant(np.float32(0))),
        x,
        then_branch=body,
        else_branch=other,
    )
    model = IRModule({"main": Function("main", (x,), chosen)})
    control = Description(parallel=False, control=True)
    supports = part(Codegen, supports=lambda self, n: n.op.name != "exp" or "there is no table")
    board = Board(codegens=[supports], targets=[kind(describe=lambda options: control)])
    with fresh_registry({"board": board}):
        exe = dlc.compile(model, "board")
        refusals = [(r.op, *r.reasons) for r in exe.explain().refused]
        assert ("if_", "op: exp in its body: there is no table") in refusals
        assert "relu" in ops_on(exe, "board")
        np.testing.assert_allclose(exe(np.ones(4, np.float32)), np.exp(np.ones(4, np.float32)), rtol=1e-6)


# rules


@each_form
def test_kernels_that_no_rule_of_the_kind_schedules_go_to_the_next_target(form):
    board = Board(targets=[kind(rules=("board.*",))], rules=[Dense()])
    with fresh_registry({"board": board}):
        exe = dlc.compile(mlp(), **form)
        assert ops_on(exe, "board") == ["matmul", "add", "relu", "matmul", "add"]
        ((op, reasons),) = [(r.op, r.reasons) for r in exe.explain().refused]
        assert op == "softmax"
        assert "its rules are board.*, and none of them matches" in reasons[0]
        rules = {kernel.rule for region in exe.regions.values() for kernel in region.explain().kernels}
        assert rules == {"board.dense"}
        same(exe, mlp())


@each_form
def test_a_rule_that_refuses_a_fused_kernel_gets_the_contraction_alone(form):
    board = Board(targets=[kind(rules=("board.*",))], rules=[Contractions()])
    with fresh_registry({"board": board}):
        exe = dlc.compile(mlp(), **form)
        assert ops_on(exe, "board") == ["matmul", "matmul"]
        reasons = {r.op: r.reasons for r in exe.explain().refused}
        assert "the array has no unit for what follows" in reasons["relu"][0]
        same(exe, mlp())


def test_a_kernel_that_no_rule_of_the_kind_schedules_is_an_error_in_a_pipeline():
    board = Board(targets=[kind(rules=("board.*",))], rules=[Contractions()])
    x = param("x", tensor_type((4, 8)))
    with fresh_registry({"board": board}):
        context = dlc.driver.context_for("board").with_(target=dlc.Target("board"))
        with pytest.raises(NoRuleError, match="no schedule rule of the target kind 'board'"):
            ScheduleKernels()(kernel_of(std.relu(x)), context)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"rules": ("bord.dense",)}, "did you mean 'board.dense'"),
        ({"disabled_passes": ("winogrod",)}, "did you mean 'winograd'"),
        ({"disabled_passes": ("nothing.like.it.*",)}, "matches no pass or rule"),
    ],
)
@each_form
def test_unknown_names_are_errors(fields, text, form):
    with fresh_registry({"board": Board(targets=[kind(**fields)], rules=[Dense()])}):
        with pytest.raises(TargetError) as caught:
            dlc.compile(mlp(), **form)
        assert text in str(caught.value)


def test_the_default_target_takes_all_operations():
    with pytest.raises(TargetError, match="lists its schedule rules and can be the default target"):
        kind(rules=("board.*",), host_rank=5)
    supports = part(Codegen, supports=lambda self, n: True)
    board = Board(codegens=[supports], targets=[kind(host_rank=5)])
    with fresh_registry({"board": board}), pytest.raises(PluginError, match="does not take all operations"):
        dlc.compile(mlp(), "board")


def test_a_target_that_takes_only_some_operations_is_not_the_last_one():
    supports = part(Codegen, supports=lambda self, n: dense_only(n))
    refused = pytest.raises(UsageError, match="the last target, board, takes only some operations")
    with fresh_registry({"board": Board(codegens=[supports])}), refused:
        dlc.compile(mlp(), targets=["reference", "board"])


def test_text_and_empty_lists_are_errors():
    with pytest.raises(TargetError, match=r"rules=\('board\.\*',\)"):
        kind(rules="board.*")
    with pytest.raises(TargetError, match="disabled_passes"):
        kind(rules=())


# disabled passes and algorithms


def convolution():
    x = param("x", tensor_type((1, 64, 56, 56)))
    w = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32)
    y = std.BY_NAME["conv"].build(x, constant(w), padding=(1, 1, 1, 1))
    return IRModule({"main": Function("main", (x,), y)})


VECTORS = Description(parallel=False, vector_bits=256, fma=True)


def ops_of(exe):
    """The ops of the kernels of an executable and its regions."""
    return " ".join(k.name for e in (exe, *exe.regions.values()) for k in e.explain().kernels)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"describe": lambda options: VECTORS}, True),
        ({"describe": lambda options: VECTORS, "disabled_passes": ("wino*", "row_filter")}, False),
        ({}, False),
    ],
    ids=["vector unit", "disabled", "no vector unit"],
)
@each_form
def test_winograd_needs_a_vector_unit_and_may_be_disabled(fields, wanted, form):
    with fresh_registry({"board": Board(targets=[kind(**fields)])}):
        names = ops_of(dlc.compile(convolution(), **form))
    assert ("winograd" in names) == wanted, names


def test_disabled_passes_hold_for_the_regions_of_the_kind_only():
    board = Board(targets=[kind(disabled_passes=("fuse",))])
    with fresh_registry({"board": board}):
        alone = dlc.compile(mlp(), "board").explain().kernels
        exe = dlc.compile(
            mlp(), targets=["board", "reference -level=tir"], place={"matmul": "reference -level=tir"}
        )
        assert len(alone) == 6
        fused = dlc.compile(mlp(), "reference -level=tir").explain().kernels
        assert len(fused) < 6
        same(exe, mlp())


def test_the_description_of_a_kind_says_what_it_takes(capsys):
    class Supports(Codegen):
        def supports(self, n):
            """GEMM of float32, and additions."""
            return dense_only(n)

    fields = {"rules": ("board.*",), "disabled_passes": ("winograd",)}
    board = Board(codegens=[Supports()], targets=[kind(**fields)], rules=[Dense()])
    with fresh_registry({"board": board}):
        main(["targets", "board", "-v"])
    out = capsys.readouterr().out
    assert "GEMM of float32, and additions." in out
    assert "schedule rules: board.* (board.dense)" in out
    assert "disabled passes: winograd" in out


def test_a_refusal_names_kernels_that_passes_add():
    """The convolution could be scheduled, and the transposes of its layout cannot."""
    board = Board(targets=[kind(rules=("board.*",))], rules=[Products()])
    with fresh_registry({"board": board}):
        exe = dlc.compile(cifar(), "board")
        reasons = {reason for r in exe.explain().refused if r.op == "conv" for reason in r.reasons}
        assert any(reason.startswith("kernel fused_transpose") for reason in reasons)
        assert all("(added by a pass): its rules are board.*" in reason for reason in reasons)


def test_networks_on_a_partial_target_compute_the_same():
    layouts = kind(rules=("board.*",), disabled_passes=("convert_layout",))
    with fresh_registry({"board": Board(targets=[layouts], rules=[Products()])}):
        exe = dlc.compile(cifar(), "board")
        assert {"conv", "matmul"} <= set(ops_on(exe, "board"))
        assert "max_pool" not in ops_on(exe, "board")
        same(exe, cifar())


def test_winograd_is_not_for_machines_with_a_matrix_unit():
    tile = Fragment(4, 4, threads=(), values=((1, 4), (4, 4)))
    unit = MatrixUnit("float32", "float32", "float32", of_a=tile, of_b=tile, of_acc=tile)
    machine = replace(VECTORS, matrix_units=(unit,))
    assert VECTORS.multiplies_in_vectors
    assert not machine.multiplies_in_vectors
    with fresh_registry({"board": Board(targets=[kind(describe=lambda options: machine)])}):
        context = dlc.driver.context_for("board")
        assert filtering_core(context) is None
