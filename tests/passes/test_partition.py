"""partition over random graphs: for any choice of targets there are no cycles, and values stay the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.graph.extract import is_region
from dlc_core.graph.node import (
    CALL,
    CONST,
    PARAM,
    STRUCTURAL,
    Function,
    constant,
    get_item,
    make_tuple,
    param,
    post_order,
)
from dlc_core.graph.verify import verify_function
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.reference import evaluate
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes import PassContext
from dlc_core.passes.graph.partition import Partition, Placement, region_of
from dlc_core.passes.graph.regions import Candidate
from dlc_core.rewrite import any_op, match_op, var
from dlc_core.target import Target, TargetKind
from dlc_core.target.partitioner import Partitioner, RegionPattern

KINDS = {name: Target(TargetKind(name, "", "", "")) for name in ("a", "b", "host")}
ADD, MUL, NEG, ABS = (OPS[name] for name in ("add", "mul", "neg", "abs"))
TYPE = tensor_type((2, 4))


def candidate(name, *patterns, **fields):
    return Candidate(KINDS[name], Partitioner(f"p-{name}", name, patterns, **fields))


def partitioned(body, params, *candidates, place=(), automatic=("a", "b")):
    module = IRModule({"main": Function("main", tuple(params), body)})
    placement = Placement(KINDS["host"], tuple(candidates), frozenset(automatic), tuple(place))
    context = PassContext(placement=placement)
    made = Partition().run(module, context)
    return made["main"], made.attrs["placed"], placement


def regions(function):
    return [n.attrs["function"] for n in post_order(function.body) if n.op is CALL]


@st.composite
def graphs(draw):
    """A graph of sums, products, negations and splits over two inputs, and several results."""
    params = [param("x", TYPE), param("y", TYPE)]
    values = [*params, constant(np.full((2, 4), 0.5, np.float32))]
    for _ in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(["add", "mul", "neg", "abs", "split"]))
        pick = lambda: values[draw(st.integers(max(0, len(values) - 6), len(values) - 1))]  # noqa: E731
        if name == "split":
            halves = OPS["split"].build(pick(), axis=1, sizes=(2, 2))
            joined = OPS["concat"].build(get_item(halves, 1), get_item(halves, 0), axis=1)
            values.append(joined)
        elif name in ("neg", "abs"):
            values.append(OPS[name].build(pick()))
        else:
            values.append(OPS[name].build(pick(), pick()))
    results = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    return params, results[0] if len(results) == 1 else make_tuple(results)


ANY = RegionPattern("any", any_op())
PAIR = RegionPattern("pair", match_op((NEG, ABS), match_op((ADD, MUL), var("x"), var("y"))))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.data())
def test_random_partitions_compute_the_same(graph, data):
    params, body = graph
    nodes = [n for n in post_order(body) if n.op.name not in STRUCTURAL]
    owners = {n: data.draw(st.sampled_from(["a", "b", "both", ""])) for n in nodes}

    def takes(name):
        return lambda found, target: owners[found.root] in (name, "both") or "it is not drawn"

    def own(name, *patterns):
        return candidate(name, *(replace(p, accepts=takes(name)) for p in patterns))

    function, report, placement = partitioned(body, params, own("a", PAIR, ANY), own("b", ANY))
    verify_function(function)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    feeds = [x, x[::-1].copy()]
    want, have = evaluate(Function("f", tuple(params), body), feeds), evaluate(function, feeds)
    for one, other in zip(
        want if isinstance(want, tuple) else (want,), have if isinstance(have, tuple) else (have,)
    ):
        np.testing.assert_array_equal(one, other)
    # Every node is in one region, of a target that takes it.
    inside = [
        n for region in regions(function) for n in post_order(region.body) if n.op.name not in STRUCTURAL
    ]
    outside = [n for n in post_order(function.body) if n.op.name not in STRUCTURAL]
    assert len(inside) + len(outside) == len(nodes)
    for region in regions(function):
        assert is_region(region)
        found = region_of(
            region, next(t for t in placement.candidates if str(t.target) == region.attrs["region"])
        )
        members = [n for part in found.parts for n in part.match.nodes if n.op is not CONST]
        own_nodes = [n for n in post_order(region.body) if n.op.name not in STRUCTURAL]
        assert sorted(map(id, members)) == sorted(map(id, own_nodes))
    assert {r["name"] for r in report["regions"]} == {r.name for r in regions(function)}


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_each_component_is_a_region_if_one_target_takes_all(graph):
    """Merging is complete: no two regions of one target that touch could be one."""
    params, body = graph
    function, _, _ = partitioned(body, params, candidate("a", ANY))
    made = regions(function)
    assert not any(n.op.name not in STRUCTURAL for n in post_order(function.body))
    for n in post_order(function.body):
        if n.op is CALL:
            assert not any(a.op is CALL for a in n.args), [r.name for r in made]


def test_nodes_between_regions_separate_them():
    x = param("x", TYPE)
    first = OPS["add"].build(x, x)
    middle = OPS["neg"].build(first)
    last = OPS["mul"].build(OPS["add"].build(first, middle), x)
    only = RegionPattern("op", match_op(["add", "mul"], var("p"), var("q")))
    _, report, _ = partitioned(last, [x], candidate("a", only))
    assert [r["ops"] for r in report["regions"]] == [["add"], ["add", "mul"]]


def test_constants_are_bound():
    x = param("x", TYPE)
    body = OPS["add"].build(x, constant(np.ones((2, 4), np.float32)))
    function, _, _ = partitioned(body, [x], candidate("a", ANY))
    (region,) = regions(function)
    assert [n.op for n in post_order(region.body) if n.op in (PARAM, CONST)] == [PARAM, CONST]
    assert function.body.args == (x,)


def test_several_results_of_one_op_leave_a_region():
    x = param("x", TYPE)
    halves = OPS["split"].build(x, axis=1, sizes=(2, 2))
    body = make_tuple((OPS["neg"].build(get_item(halves, 0)), get_item(halves, 1)))
    only = RegionPattern("split", match_op("split", var("x")))
    function, report, _ = partitioned(body, [x], candidate("a", only))
    assert [r["ops"] for r in report["regions"]] == [["split"]]
    x_ = np.arange(8, dtype=np.float32).reshape(2, 4)
    for one, other in zip(evaluate(function, [x_]), evaluate(Function("f", (x,), body), [x_])):
        np.testing.assert_array_equal(one, other)


def test_the_last_matching_placement_wins():
    x = param("x", TYPE)
    body = OPS["neg"].build(OPS["add"].build(x, x))
    candidates = candidate("a", ANY), candidate("b", ANY)
    _, report, _ = partitioned(body, [x], *candidates, place=[("neg", "b"), ("neg", "a"), ("add", "host")])
    assert [(r["target"], r["ops"]) for r in report["regions"]] == [("a", ["neg"])]
    _, report, _ = partitioned(body, [x], *candidates, place=[("add", "b")], automatic=())
    assert [(r["target"], r["ops"]) for r in report["regions"]] == [("b", ["add"])]
    _, report, _ = partitioned(body, [x], candidate("a", PAIR, ANY), place=[("p-a.pair", "host")])
    assert report["regions"] == []


def test_large_graphs_take_little_time():
    x = value = param("x", TYPE)
    for i in range(3000):
        value = OPS["neg" if i % 3 else "abs"].build(OPS["add"].build(value, x))
    only = (
        RegionPattern("some", match_op(["add", "neg"], var("p"))),
        RegionPattern("add", match_op("add", var("p"), var("q"))),
    )
    _, report, _ = partitioned(value, [x], candidate("a", *only), candidate("b", ANY))
    assert len(report["regions"]) == 2001


@pytest.mark.parametrize("verdict", [False, "", "because"])
def test_refusals_without_a_reason_say_so(verdict):
    x = param("x", TYPE)
    refusing = RegionPattern("op", any_op(), lambda found, target: verdict)
    _, report, _ = partitioned(OPS["neg"].build(x), [x], candidate("a", refusing))
    (entry,) = report["why_not"]
    assert entry["reasons"] == ["op: because" if verdict else "op: its predicate refuses"]
