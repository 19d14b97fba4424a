"""Regions of a model on other targets: compiled by a vendor's compiler or a code generator, or left to the
host.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import RegionPattern, SimulatedDevice, SourceCodegen
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import ArtifactError, DlcError, TargetError, UsageError
from dlc_core.graph.node import CONST, PARAM, Function, constant, make_tuple, param, post_order
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.rewrite import any_op, match_op, var
from dlc_core.runtime.artefact.container import read_container
from dlc_core.runtime.artefact.writing import write_container
from dlc_core.script import parse
from dlc_core.target import Description, TargetKind
from dlc_core.testing.card import CardPlugin, compile_region
from dlc_core.testing.networks import mlp

X = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
needs_compiler = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


class ToyCodegen(SourceCodegen):
    name, kinds, format = "toy", ("toy",), "toy-source"


class ToyDevice(SimulatedDevice):
    name, formats = "toy", ("toy-source",)


class Toy:
    """A card that computes everything in float32."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        description = Description(vector_bits=128, fma=True, parallel=False, dtypes=("float32", "int32"))
        return [TargetKind("toy", "a toy", "toy", "toy", describe=lambda options: description)]

    @hookimpl
    def dlc_codegens(self):
        return [ToyCodegen()]

    @hookimpl
    def dlc_devices(self):
        return [ToyDevice()]


@pytest.fixture
def card():
    plugin = CardPlugin()
    with fresh_registry({"card": plugin, "toy": Toy()}):
        yield plugin.card


def call(name, *args, **attrs):
    return registry().ops[name].build(*args, **attrs)


def module(params, *results):
    body = results[0] if len(results) == 1 else make_tuple(results)
    return IRModule({"main": Function("main", tuple(params), body)})


def same(exe, model, *inputs):
    """Compare with the reference."""
    expected = dlc.compile(model, "reference").run(dict(zip([v.name for v in exe.inputs], inputs)))
    got = exe.run(dict(zip([v.name for v in exe.inputs], inputs)))
    for a, b in zip(got.values(), expected.values(), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


LISTS = {
    "reference behind": ["card", "reference"],
    "kernels behind": ["card", "reference -level=tir"],
    "native code behind": ["card -limit=1000", "toy"],
    "two ordinary": ["toy", "reference"],
    "three": ["card -limit=1000", "toy", "reference"],
}


@needs_compiler
@pytest.mark.parametrize("listed", LISTS.values(), ids=LISTS)
def test_models_run_on_several_targets(card, listed, tmp_path):
    exe = dlc.compile(mlp(), targets=listed, verify="each")
    assert [str(r.target) for r in exe.regions.values()]
    same(exe, mlp(), X)
    exe.save(tmp_path / "m.dlc")
    again = dlc.open(tmp_path / "m.dlc", verify=True)
    assert again.regions.keys() == exe.regions.keys()
    same(again, mlp(), X)
    same(exe.with_threads(2), mlp(), X)
    bound = exe.bind([X])
    np.testing.assert_array_equal(bound(), exe(X))


def test_neighbouring_matches_are_one_region_and_others_have_reasons(card):
    exe = dlc.compile(mlp(), targets=["card", "reference"])
    (region,) = exe.about["placed"]["regions"]
    assert region["ops"] == ["matmul", "add", "relu", "matmul", "add"]
    assert region["patterns"] == ["dense_relu", "dense", "add"]
    assert (region["bytes_in"], region["bytes_out"]) == (256, 40)
    refused = [(e["op"], e["reasons"]) for e in exe.about["placed"]["why_not"]]
    assert refused == [("softmax", ["no pattern matches"])]
    assert exe.regions["region_0"].artifact.metadata["parts"] == ["dense_relu", "dense", "add"]


def test_a_predicate_refuses_with_its_reason(card):
    exe = dlc.compile(mlp(), targets=["card -limit=1000", "reference"])
    reasons = {e["op"]: e["reasons"] for e in exe.about["placed"]["why_not"]}
    why = "2048 weights, the card has memory for 1000"
    assert reasons["matmul"] == [f"dense_relu: {why}", f"dense: {why}"]
    same(exe, mlp(), X)


def test_a_near_miss_reports_the_mismatch(card):
    a, b = param("a", tensor_type((4, 4))), param("b", tensor_type((4, 4)))
    exe = dlc.compile(module([a, b], call("matmul", a, b)), targets=["card", "reference"])
    (refused,) = exe.about["placed"]["why_not"]
    assert refused["reasons"] == ["dense: argument 1 of matmul is an input, a constant is needed"]
    assert not exe.regions


def test_a_target_without_a_code_generator_falls_back_to_this_machine(card):
    exe = dlc.compile(mlp(), "card")
    assert str(exe.target) == "reference"
    same(exe, mlp(), X)


def test_regions_have_their_constants_and_parts():
    seen = []

    def compile_(region, target):
        seen.append((region, target))
        return compile_region(region, target)

    with fresh_registry({"card": CardPlugin(compile=compile_)}):
        exe = dlc.compile(mlp(), targets=["card -limit=5000", "reference"])
        assert str(exe.target) == "reference"
    ((region, target),) = seen
    assert target["limit"] == 5000
    assert region.name == "region_0"
    assert [str(t) for t in (*region.inputs, *region.outputs)] == ["float32[1, 64]", "float32[1, 10]"]
    order = [n for n in post_order(region.function.body) if n.op not in (PARAM, CONST)]
    assert [part.match.root for part in region.parts] == [order[2], order[3], order[4]]
    assert region.parts[0].match["w"].attrs["value"].data.shape == (64, 32)


def test_regions_are_not_merged_across_other_targets(card):
    """exp between two sums: one region would need its own result."""
    a = param("a", tensor_type((4, 4)))
    first = call("add", a, a)
    last = call("add", first, call("exp", first))
    exe = dlc.compile(module([a], last), targets=["card", "reference"])
    assert [r["ops"] for r in exe.about["placed"]["regions"]] == [["add"], ["add"]]
    same(exe, module([a], last), np.ones((4, 4), np.float32))


def test_a_parallel_branch_does_not_split_a_region(card):
    a = param("a", tensor_type((4, 4)))
    first = call("add", a, a)
    last = call("add", first, call("exp", a))
    exe = dlc.compile(module([a], last), targets=["card", "reference"])
    assert [r["ops"] for r in exe.about["placed"]["regions"]] == [["add", "add"]]


def test_values_used_outside_of_a_pattern_split_it(card):
    a = param("a", tensor_type((1, 4)))
    total = call(
        "add", call("matmul", a, constant(np.eye(4, dtype=np.float32))), constant(np.ones((1, 4), np.float32))
    )
    model = module([a], call("relu", total), total)
    exe = dlc.compile(model, targets=["card", "reference"])
    (region,) = exe.about["placed"]["regions"]
    assert region["patterns"] == ["dense", "relu", "add"] or set(region["patterns"]) == {
        "dense",
        "relu",
        "add",
    }
    same(exe, model, np.ones((1, 4), np.float32))


def test_regions_without_a_gain_go_to_the_next_target():
    def worth(region, target):
        return len(region.parts) > 3 or f"{len(region.parts)} parts are not worth the way"

    with fresh_registry({"card": CardPlugin(worth=worth), "second": CardPlugin("second")}):
        exe = dlc.compile(mlp(), targets=["card", "second", "reference"])
        assert {str(r.target) for r in exe.regions.values()} == {"second"}
        refused = [e for e in exe.about["placed"]["why_not"] if e["op"] == "relu"]
        assert refused[0]["target"] == "card"
        assert refused[0]["reasons"][-1] == "3 parts are not worth the way"
        same(exe, mlp(), X)


def test_partitioners_may_keep_matches_separate():
    with fresh_registry({"card": CardPlugin(merge=False)}):
        exe = dlc.compile(mlp(), targets=["card", "reference"])
        assert len(exe.regions) == 3
        same(exe, mlp(), X)


def test_failures_of_a_compiler_name_the_region():
    def compile_(region, target):
        raise RuntimeError("no registers left")

    refused = pytest.raises(
        TargetError, match=r"in region_0\n.*'card-dense'.* for card[\s\S]*no registers left"
    )
    with fresh_registry({"card": CardPlugin(compile=compile_)}), refused:
        dlc.compile(mlp(), targets=["card", "reference"])


def test_the_host_may_take_regions_that_fail_to_compile(tmp_path):
    def compile_(region, target):
        raise RuntimeError("no registers left")

    with fresh_registry({"card": CardPlugin(compile=compile_)}):
        exe = dlc.compile(mlp(), targets=["card", "reference"], config={"failed_regions": "host"})
        same(exe, mlp(), X)
        exe.save(tmp_path / "m.dlc")
        same(dlc.open(tmp_path / "m.dlc"), mlp(), X)
        text = str(exe.explain())
        assert "region_0 on reference" in text
        assert re.search(
            "not on card: matmul add relu matmul add: region_0 for card: .*no registers left", text
        )
        with pytest.raises(DlcError, match="error or host"):
            dlc.compile(mlp(), targets=["card", "reference"], config={"failed_regions": "maybe"})


def test_failures_of_a_predicate_name_it():
    def accepts(found, target):
        return found["nothing"]

    pattern = RegionPattern("broken", match_op("relu", var("x")), accepts)
    refused = pytest.raises(
        DlcError, match=r"predicate of partitioner 'card-dense' failed: broken[\s\S]*KeyError"
    )
    with fresh_registry({"card": CardPlugin(patterns=[pattern])}), refused:
        dlc.compile(mlp(), targets=["card", "reference"])


def test_artefacts_of_another_format_are_refused():
    def compile_(region, target):
        return dlc.compile(mlp(), "reference").artifact

    refused = pytest.raises(TargetError, match="format 'graph-json', and the device runs card-graph")
    with fresh_registry({"card": CardPlugin(compile=compile_)}), refused:
        dlc.compile(mlp(), targets=["card", "reference"])


# Placement by name


def placed(exe):
    return {op: r["target"] for r in exe.about["placed"]["regions"] for op in r["ops"]}


def test_ops_and_patterns_are_placed_by_name(card):
    exe = dlc.compile(mlp(), targets=["card", "reference"], place={"relu": "reference"})
    assert set(placed(exe)) == {"matmul", "add"}
    refused = [e["reasons"] for e in exe.about["placed"]["why_not"] if e["op"] == "relu"]
    assert refused == [["it is placed on reference"]]
    exe = dlc.compile(mlp(), targets=["card", "reference"], place={"card-dense.dense_relu": "reference"})
    assert placed(exe) == {"matmul": "card", "add": "card"}
    exe = dlc.compile(mlp(), "reference", place={"matmul": "card"})
    assert placed(exe) == {"matmul": "card"}
    same(exe, mlp(), X)


def test_unknown_names_are_refused(card):
    with pytest.raises(UsageError, match=r"no op and no pattern[\s\S]*card-dense.dense_relu"):
        dlc.compile(mlp(), targets=["card", "reference"], place={"conv2dd": "card"})
    with pytest.raises(DlcError, match="there is no target 'cart'"):
        dlc.compile(mlp(), targets=["cart", "reference"])
    with pytest.raises(DlcError, match="there is no target 'cart'"):
        dlc.compile(mlp(), "reference", place={"relu": "cart"})
    with pytest.raises(UsageError, match="listed twice"):
        dlc.compile(mlp(), targets=["card", "reference", "card"])
    with pytest.raises(UsageError, match="both"):
        dlc.compile(mlp(), "reference", targets=["card", "reference"])
    with pytest.raises(UsageError, match="no target in the list"):
        dlc.compile(mlp(), targets=[])


# Dims and control flow


def test_symbolic_dims_reach_the_device(card):
    a = param("a", tensor_type((Var("n"), 8)))
    model = module([a], call("relu", call("matmul", a, constant(np.eye(8, 3, dtype=np.float32)))))
    exe = dlc.compile(model, targets=["card", "reference -level=tir"])
    assert exe.regions
    for rows in (1, 5, 2):
        same(exe, model, np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32))


def test_bodies_of_control_flow_are_partitioned(card):
    i, x = param("i", tensor_type((), "int32")), param("x", tensor_type((4, 4)))
    cond = Function("cond", (i, x), call("less", i, constant(3, "int32")))
    j, y = param("j", tensor_type((), "int32")), param("y", tensor_type((4, 4)))
    product = call("relu", call("matmul", y, constant(np.eye(4, dtype=np.float32) * 2)))
    body = Function("body", (j, y), make_tuple((call("add", j, constant(1, "int32")), call("tanh", product))))
    a = param("a", tensor_type((4, 4)))
    model = module([a], call("while_", constant(0, "int32"), a, cond=cond, body=body))
    for behind in ("reference", "reference -level=tir"):
        exe = dlc.compile(model, targets=["card", behind], verify="structure")
        assert "matmul" in placed(exe)
        same(exe, model, np.ones((4, 4), np.float32))


@needs_compiler
def test_unsupported_dtypes_stay_on_the_host(card):
    a = param("a", tensor_type((4, 4), "float64"))
    model = module([a], call("cast", call("exp", a), to="float32"))
    exe = dlc.compile(model, targets=["toy", "reference"])
    refused = {e["op"]: e["reasons"] for e in exe.about["placed"]["why_not"]}
    assert refused["exp"] == ["op: it does not compute in float64"]


@needs_compiler
def test_shape_ops_alone_are_no_region(card):
    a = param("a", tensor_type((4, 4)))
    model = module([a], call("tanh", call("reshape", call("tanh", a), shape=(2, 8))))
    exe = dlc.compile(model, targets=["toy", "reference"], place={"tanh": "reference"})
    assert not exe.regions
    refused = [e["reasons"] for e in exe.about["placed"]["why_not"] if e["op"] == "reshape"]
    assert refused == [["it has only views"]]
    assert len(dlc.compile(model, targets=["toy", "reference"]).regions) == 1


# Files


def test_malformed_files_of_several_targets(card, tmp_path):
    path = tmp_path / "m.dlc"
    dlc.compile(mlp(), targets=["card", "reference"]).save(path)
    opened = read_container(path)
    header = {k: v for k, v in opened.header.items() if k != "sections"}
    sections = [(name, opened.code() if name == "code" else data) for name, data in opened.sections.items()]
    part = header["regions"]["region_0"]
    bad_headers = [
        {**header, "regions": 3},
        {**header, "regions": {"region_0": 3}},
        {**header, "regions": {"region_1": part}},
        {**header, "regions": {"region_0": {**part, "target": 5}}},
        {**header, "regions": {"region_0": {**part, "regions": {}}}},
        {**header, "regions": {"region_0": {**part, "device": "gone"}}},
        {**header, "regions": {"region_0": {**part, "format": "other"}}},
        {**header, "regions": {}},
    ]
    for number, bad in enumerate(bad_headers):
        write_container(tmp_path / "bad.dlc", bad, sections)
        with pytest.raises(ArtifactError):
            dlc.open(tmp_path / "bad.dlc", trust=True)(X), number
    for missing in ("region_0/code", "region_0/weights", "region_0/about", "program"):
        write_container(tmp_path / "bad.dlc", header, [s for s in sections if s[0] != missing])
        with pytest.raises(ArtifactError):
            dlc.open(tmp_path / "bad.dlc", trust=True)


def test_any_op_is_a_pattern():
    everything = (RegionPattern("any", any_op("op")), RegionPattern("same", match_op("relu", var("x"))))
    with fresh_registry({"card": CardPlugin(patterns=everything)}):
        exe = dlc.compile(mlp(), targets=["card", "reference"])
        assert len(placed(exe)) == 4
        same(exe, mlp(), X)


NEGATED = """
@ir_module
class Module:
    @G.function
    def main(x: G.Tensor((1, 3), "float32")):
        y: G.Tensor((1, 3), "float32") = negated(x)
        return G.relu(y), G.exp(x)

    @T.prim_func
    def negate(a: T.Buffer((1, 3), "float32"), b: T.Buffer((1, 3), "float32")):
        for i, j in T.grid(1, 3):
            with T.block("neg"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj])
                T.writes(b[vi, vj])
                b[vi, vj] = -a[vi, vj]

    @G.function
    def negated(x: G.Tensor((1, 3), "float32")):
        y: G.Tensor((1, 3), "float32") = G.call_tir(negate, (x,))
        return y
"""


def test_a_host_that_evaluates_graphs_calls_tensor_programs(card, tmp_path):
    exe = dlc.compile(parse(NEGATED), targets=["card", "reference"], cache=False)
    assert list(exe.program.segments) == ["segment_0"]
    exe.save(tmp_path / "model.dlc")
    x = np.float32([[1, -2, 3]])
    for each in (exe, dlc.open(tmp_path / "model.dlc")):
        negated, powers = each(x)
        np.testing.assert_array_equal(negated, np.maximum(-x, 0))
        np.testing.assert_allclose(powers, np.exp(x), rtol=1e-6)


# Reports


def test_explanations_list_segments_and_refusals(card):
    exe = dlc.compile(mlp(), targets=["card -limit=1000", "reference -level=tir"])
    explanation = exe.explain()
    assert [(s.name, s.target, s.bytes_in, s.bytes_out) for s in explanation.segments] == [
        ("region_0", "card -limit=1000", 128, 40),
        ("segment_0", "reference -level=tir", 256, 128),
        ("segment_1", "reference -level=tir", 40, 40),
    ]
    text = str(explanation)
    assert "card-dense: add, relu, dense" in text
    assert (
        "not on card -limit=1000: matmul: dense_relu: 2048 weights, the card has memory for 1000; dense: 2048"
        in text
    )
    assert text.startswith("target   card -limit=1000, reference -level=tir")
    assert json.loads(explanation.to_json())["segments"][0]["name"] == "region_0"
