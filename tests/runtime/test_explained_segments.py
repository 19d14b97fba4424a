"""Explanations of models for several targets: a row for every kernel of every segment, with its target."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import SimulatedDevice, SourceCodegen
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.target import Description, TargetKind
from dlc_core.target.cost import Machine
from dlc_core.testing.card import CardPlugin
from dlc_core.testing.networks import cifar, mlp

TENSOR = "reference -level=tir"
CARD = "card -limit=1000"
"""Takes the second dense layer of `mlp`, whose first has 2048 weights."""


class ToyCodegen(SourceCodegen):
    name, kinds, format = "toy", ("toy",), "toy-source"


class ToyDevice(SimulatedDevice):
    name, formats = "toy", ("toy-source",)


class Toy:
    """A device with a code generator of the core. Nothing here runs its code."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        description = Description(vector_bits=128, parallel=False, dtypes=("float32",), frequency=1e8)
        return [TargetKind("toy", "a toy", "toy", "toy", describe=lambda options: description)]

    @hookimpl
    def dlc_codegens(self):
        return [ToyCodegen()]

    @hookimpl
    def dlc_devices(self):
        return [ToyDevice()]


@pytest.fixture
def plugins():
    with fresh_registry({"card": CardPlugin(), "second": CardPlugin("second"), "toy": Toy()}):
        yield


def call(name, *args, **attrs):
    return registry().ops[name].build(*args, **attrs)


def compiled(model, targets, **options):
    return dlc.compile(model, targets=targets, cache=False, **options)


def total(explanation, figure="multiply_adds"):
    return explanation.totals()[figure]


MLP_PRODUCTS = 64 * 32 + 32 * 10


DIVISIONS = [
    [TENSOR],
    ["toy"],
    [CARD, TENSOR],
    ["card", "toy"],
    [CARD, "reference"],
    ["toy", "reference"],
    [CARD, "toy", TENSOR],
]


@pytest.mark.parametrize("targets", DIVISIONS, ids=" | ".join)
def test_multiply_adds_add_up_on_whatever_targets(plugins, targets):
    explanation = compiled(mlp(), targets).explain()
    assert total(explanation) == MLP_PRODUCTS
    shares = explanation.shares()
    assert sum(one.multiply_adds for one in shares.values()) == MLP_PRODUCTS
    for figure in ("multiply_adds", "flops", "bytes", "estimate"):
        assert sum(one.shares[figure] for one in shares.values()) == pytest.approx(1)
    assert sum(one.kernels for one in shares.values()) == len(explanation.kernels)


def test_a_network_of_convolutions_adds_up(plugins):
    """Without algorithms that replace convolutions, which need vectors, every division has the same sum."""
    convolutions = "conv"
    single = compiled(cifar(), [TENSOR]).explain()
    divided = compiled(cifar(), ["toy", TENSOR], place={convolutions: TENSOR}).explain()
    on_graph = compiled(cifar(), ["toy", "reference"], place={convolutions: "reference"}).explain()
    assert total(single) == total(divided) == total(on_graph) > 2_000_000
    assert 0 < divided.share("toy") < 0.01  # the dense layer


def test_rows_have_their_target_device_and_machine(plugins):
    exe = compiled(mlp(), [CARD, "toy"])
    explanation = exe.explain()
    rows = [(k.segment, k.target, k.device, k.kind, k.rule) for k in explanation.kernels]
    assert rows == [
        ("segment_0", "toy", "toy", "kernel", "cpu.contraction"),
        ("region_0", CARD, "card", "region", "card-dense"),
        ("segment_1", "toy", "toy", "kernel", "cpu.rows"),
    ]
    region = explanation.kernels[1]
    # x[1, 32], w[32, 10], b[10] and 32 biases of the first layer in, y[1, 10] out
    assert (region.multiply_adds, region.bytes) == (320, 4 * (32 + 320 + 10 + 32 + 10))
    toy = Machine.of(dlc.Target("toy").describe())
    first = explanation.kernels[0]
    assert first.estimate.limit >= first.work.steps / (toy.flops / 2)
    assert first.cycles == pytest.approx(first.estimate.seconds * 1e8)


def test_estimates_use_the_description_of_their_own_target(plugins):
    slow = compiled(mlp(), ["toy", TENSOR], place={"softmax": TENSOR}).explain()
    slower = compiled(mlp(), ["toy -target.frequency=1e6", TENSOR], place={"softmax": TENSOR}).explain()
    pairs = list(zip(slow.kernels, slower.kernels, strict=True))
    assert {a.target for a, _ in pairs} == {"toy", TENSOR}
    for a, b in pairs:
        ratio = b.estimate.limit / a.estimate.limit
        assert ratio == pytest.approx(1) if a.target == TENSOR else ratio > 2


def test_the_share_of_a_kind_is_that_of_all_its_targets(plugins):
    explanation = compiled(mlp(), [CARD, "toy"]).explain()
    assert explanation.share("card") == explanation.share(CARD) == 320 / MLP_PRODUCTS
    assert explanation.share("toy") == 2048 / MLP_PRODUCTS
    assert explanation.share("second") == 0
    assert explanation.share("card", "bytes") + explanation.share("toy", "bytes") == pytest.approx(1)
    with pytest.raises(UsageError, match="no share of 'milliseconds'"):
        explanation.share("card", "milliseconds")


def test_a_model_without_products_has_no_share_of_them(plugins):
    a = param("a", tensor_type((4, 4)))
    model = IRModule({"main": Function("main", (a,), call("relu", a))})
    explanation = compiled(model, ["card", TENSOR]).explain()
    assert explanation.share("card") is None
    assert explanation.share("card", "bytes") == 1


def test_regions_that_failed_count_for_the_host(plugins):
    def compile_(region, target):
        raise RuntimeError("no registers left")

    with fresh_registry({"card": CardPlugin(compile=compile_)}):
        for host in (TENSOR, "reference"):
            exe = compiled(mlp(), ["card", host], config={"failed_regions": "host"})
            explanation = exe.explain()
            assert explanation.share("card") == 0
            assert {k.target for k in explanation.kernels} == {host}
            assert total(explanation) == MLP_PRODUCTS


def test_explanations_survive_saving(plugins, tmp_path):
    for targets in ([CARD, "toy"], ["toy", "reference"], [CARD, "reference"]):
        exe = compiled(mlp(), targets)
        exe.save(tmp_path / "m.dlc")
        again = dlc.open(tmp_path / "m.dlc", num_threads=exe.num_threads).explain()
        assert again.kernels == exe.explain().kernels
        assert again.shares() == exe.explain().shares()


def loop(host_body):
    """Five iterations of two dense layers, the second on the card."""
    i, x = param("i", tensor_type((), "int32")), param("x", tensor_type((8, 8)))
    cond = Function("cond", (i, x), call("less", i, constant(5, "int32")))
    j, y = param("j", tensor_type((), "int32")), param("y", tensor_type((8, 8)))
    w = constant(np.eye(8, dtype=np.float32))
    inner = call("matmul", call("tanh", call("matmul", y, w)), w) if host_body else call("matmul", y, w)
    body = Function("body", (j, y), make_tuple((call("add", j, constant(1, "int32")), inner)))
    a = param("a", tensor_type((8, 8)))
    result = call("while_", constant(0, "int32"), a, cond=cond, body=body)
    return IRModule({"main": Function("main", (a,), result)})


@pytest.mark.parametrize("host", [TENSOR, "reference", "toy"])
def test_a_body_of_control_flow_counts_once(plugins, host):
    explanation = compiled(loop(True), ["card", host]).explain()
    assert total(explanation) == 2 * 8**3
    assert explanation.share("card") == 1
    assert {k.kind for k in explanation.kernels if k.target == host} <= {"kernel", "host"}
    assert any("tanh" in k.name for k in explanation.kernels if k.target == host)


def test_native_control_flow_has_the_work_of_its_bodies(plugins):
    explanation = compiled(loop(True), [TENSOR]).explain()
    assert total(explanation) == 2 * 8**3
    (body,) = [k for k in explanation.kernels if k.multiply_adds]
    assert body.name.endswith("body")


def symbolic():
    """A dense layer and tanh for n rows."""
    a = param("a", tensor_type((Var("n"), 8)))
    body = call("tanh", call("matmul", a, constant(np.ones((8, 4), np.float32))))
    return IRModule({"main": Function("main", (a,), body)})


@pytest.mark.parametrize(
    "targets", [["card", TENSOR], ["card", "toy"], ["card", "reference"], ["toy", TENSOR]]
)
def test_work_that_depends_on_dims(plugins, targets, tmp_path):
    exe = compiled(symbolic(), targets)
    explanation = exe.explain()
    assert explanation.share(targets[0]) is None
    assert total(explanation) is None
    assert "depends on dims" in str(explanation)
    exe.save(tmp_path / "m.dlc")
    for each in (exe, dlc.open(tmp_path / "m.dlc")):
        for rows in (1, 24):
            known = each.explain(dims={"n": rows})
            assert total(known) == rows * 8 * 4
            assert known.share(targets[0]) == 1
            assert all(kernel.estimate.seconds > 0 for kernel in known.kernels)
    static = IRModule(
        {
            "main": Function(
                "main",
                (p := param("a", tensor_type((24, 8))),),
                call("tanh", call("matmul", p, constant(np.ones((8, 4), np.float32)))),
            )
        }
    )
    assert total(compiled(static, targets).explain(), "bytes") == total(exe.explain(dims={"n": 24}), "bytes")
    with pytest.raises(UsageError, match="no dim 'm'"):
        exe.explain(dims={"m": 3})
    with pytest.raises(UsageError, match="is not a size"):
        exe.explain(dims={"n": -3})


def test_texts_and_json_have_targets_and_shares(plugins):
    explanation = compiled(mlp(), [CARD, "toy"]).explain()
    text = str(explanation)
    assert "share    toy: 86.5% of multiply-adds" in text
    assert f"share    {CARD}: 13.5% of multiply-adds" in text
    record = json.loads(explanation.to_json())
    assert [k["target"] for k in record["kernels"]] == ["toy", CARD, "toy"]
    assert {one["target"]: one["multiply_adds"] for one in record["shares"]} == {"toy": 2048, CARD: 320}
    assert record["totals"]["multiply_adds"] == MLP_PRODUCTS
    assert "share " not in str(compiled(mlp(), [TENSOR]).explain())


def test_sources_have_the_programs_of_all_targets(plugins):
    text = compiled(mlp(), ["toy", TENSOR], place={"softmax": TENSOR}).source("tir")
    own, mark, region = text.partition("# region_0 for toy")
    assert mark
    assert "def fused_softmax" in own
    assert "region_0" not in own.replace('"region_0"', "")
    assert "def fused_matmul" in region
    vendor = compiled(mlp(), ["card", TENSOR]).source("tir")
    assert "def region_0" in vendor  # no tensor programs: its graph is shown
    graph_host = compiled(mlp(), ["toy", "reference"])
    assert graph_host.source("tir").startswith("# region_0 for toy")
    assert "fused_matmul" in graph_host.source("c")
    with pytest.raises(UsageError, match="no source 'asm'"):
        graph_host.source("asm")


@pytest.mark.parametrize("host", [TENSOR, "reference"])
def test_a_target_that_takes_nothing_has_no_share(plugins, host):
    explanation = compiled(
        mlp(), ["card", host], place=dict.fromkeys(("matmul", "add", "relu"), host)
    ).explain()
    assert explanation.share("card") == 0
    assert explanation.share("reference") == 1
    assert total(explanation) == MLP_PRODUCTS
