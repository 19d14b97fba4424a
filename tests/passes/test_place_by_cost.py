"""Placement by cost in graphs: compared with all assignments, computed in another way."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from dlc_core.diag import TargetError
from dlc_core.graph.node import CALL, STRUCTURAL, Function, constant, get_item, make_tuple, param, post_order
from dlc_core.graph.verify import verify_function
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.reference import evaluate
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes import PassContext
from dlc_core.passes.graph.partition import Partition, Placement
from dlc_core.passes.graph.place_by_cost import CostModel
from dlc_core.passes.graph.regions import Candidate
from dlc_core.rewrite import any_op, match_op, var
from dlc_core.target import Description, Target, TargetKind
from dlc_core.target.partitioner import Partitioner, RegionPattern

TYPE = tensor_type((2, 4))
ANY = RegionPattern("any", any_op())
SIZE = 32


def target(name, latency=3e-6, bandwidth=8e6):
    """A target of whose memory a copy of a tensor takes latency + 4 us."""
    description = Description(transfer_seconds=latency, transfer_bandwidth=bandwidth)
    return Target(TargetKind(name, "", "", "", describe=lambda options: description))


TARGETS = {name: target(name) for name in ("a", "b", "host")}


def model_of(seconds):
    """Costs of nodes by a function of node and target's kind; the host's memory is that of the host."""
    return CostModel(
        lambda n, where, resident: seconds(n, where.kind.name), lambda where: where.kind.name != "host"
    )


def placed(body, params, patterns, seconds, place=(), costs=None, automatic=("a", "b")):
    """The function after partition, its report, and the targets of nodes of the body by node."""
    candidates = tuple(
        Candidate(TARGETS[name], Partitioner(f"p-{name}", name, listed, cost=(costs or {}).get(name)))
        for name, listed in patterns.items()
    )
    placement = Placement(
        TARGETS["host"], candidates, frozenset(automatic), tuple(place), costs=model_of(seconds)
    )
    made = Partition().run(
        IRModule({"main": Function("main", tuple(params), body)}), PassContext(placement=placement)
    )
    return made["main"], made.attrs["placed"]


def random_graph(rng, size):
    """Sums, negations and splits over two inputs; each node has another constant, so that all differ."""
    params = [param("x", TYPE), param("y", TYPE)]
    values = list(params)
    for number in range(size):
        pick = values[rng.randrange(max(0, len(values) - 4), len(values))]
        name = rng.choice(["add", "neg", "sum", "split"])
        if name == "add":
            values.append(OPS["add"].build(pick, values[rng.randrange(len(values))]))
        elif name == "neg":
            values.append(OPS["neg"].build(pick))
        elif name == "sum":
            values.append(OPS["mul"].build(pick, constant(np.full((2, 4), number, np.float32))))
        else:
            halves = OPS["split"].build(pick, axis=1, sizes=(2, 2))
            values.append(OPS["concat"].build(get_item(halves, 1), get_item(halves, 0), axis=1))
    results = list(dict.fromkeys([values[-1], rng.choice(values[2:])]))
    return params, results[0] if len(results) == 1 else make_tuple(results)


def cost_of(body, labels, seconds):
    """The cost of an assignment, by a walk over all values: picoseconds as fractions."""
    total = sum(Fraction(seconds(n, labels[n])).limit_denominator(10**12) for n in labels)
    readers = {}
    for n in post_order(body):
        if n in labels:
            for arg in n.args:
                readers.setdefault(arg, set()).add(labels[n])
    for result in body.args if body.op.name == "tuple" else (body,):
        readers.setdefault(result, set()).add("host")
    for value, where in readers.items():
        if value.op.name == "const":
            continue
        source = value.args[0] if value.op.name == "get" else value
        own = labels.get(source, "host")
        elements = int(np.prod(value.shape))
        copy = Fraction(3, 10**6) + Fraction(elements * 4, 8 * 10**6)
        if where != {own}:
            total += copy * (own != "host") + copy * len(where - {own, "host"})
    return float(total)


@pytest.mark.parametrize("seed", range(40))
def test_two_targets_get_the_best_of_all_assignments(seed):
    rng = random.Random(seed)
    params, body = random_graph(rng, rng.randint(2, 6))
    nodes = [n for n in post_order(body) if n.op.name not in STRUCTURAL]
    prices = {n: {"a": rng.randint(1, 10), "host": rng.randint(5, 40)} for n in nodes}
    taken = {n.op.name for n in nodes if rng.random() < 0.8}
    pattern = RegionPattern("any", any_op(), lambda found, _: found.root.op.name in taken or "it cannot")

    def seconds(n, where):
        return prices[n][where] * 1e-6 if n in prices else 1e-6

    function, report = placed(body, params, {"a": [pattern]}, seconds)
    allowed = [("a", "host") if n.op.name in taken else ("host",) for n in nodes]
    best = min(cost_of(body, dict(zip(nodes, labels)), seconds) for labels in itertools.product(*allowed))
    assert report["costs"][0]["seconds"] == pytest.approx(best, rel=1e-9)
    alone = report["costs"][0]["alone"]
    assert alone["host"] == pytest.approx(cost_of(body, dict.fromkeys(nodes, "host"), seconds), rel=1e-9)
    on_a = {n: "a" if n.op.name in taken else "host" for n in nodes}
    assert alone["a"] == pytest.approx(cost_of(body, on_a, seconds), rel=1e-9)
    verify_function(function)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for got, want in zip(
        np.atleast_1d(evaluate(function, [x, x + 1])),
        np.atleast_1d(evaluate(Function("f", tuple(params), body), [x, x + 1])),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)


def chain(*names):
    x = param("x", TYPE)
    value = x
    for name in names:
        value = OPS[name].build(value)
    return value, [x]


def prices(**by_op):
    """Costs in microseconds: `neg=(on a, on the host)`."""
    return lambda n, where: by_op[n.op.name][where == "host"] * 1e-6


def regions_of(function):
    return [n.attrs["function"] for n in post_order(function.body) if n.op is CALL]


def test_nodes_stay_on_the_host_if_copies_cost_more_than_they_gain():
    body, params = chain("neg", "abs")
    function, report = placed(body, params, {"a": [ANY]}, prices(neg=(1, 5), abs=(1, 5)))
    assert not regions_of(function)
    reasons = {one["op"]: one["reasons"] for one in report["why_not"]}
    assert reasons["neg"] == ["any: predicted 1 us here, 5 us on host; copies would take 14 us more"]
    function, report = placed(body, params, {"a": [ANY]}, prices(neg=(1, 9), abs=(1, 9)))
    assert len(regions_of(function)) == 1
    costs = report["costs"][0]
    assert costs["seconds"] == pytest.approx(16e-6)
    assert costs["copy_seconds"] == pytest.approx(14e-6)
    assert costs["alone"] == pytest.approx({"a": 16e-6, "host": 18e-6})
    assert [(c["value"], c["from"], c["to"], c["bytes"]) for c in costs["copies"]] == [
        ("x", "the host's memory", "a", SIZE),
        ("abs", "a", "the host's memory", SIZE),
    ]


def test_a_match_of_several_nodes_is_taken_whole_with_its_own_cost():
    body, params = chain("neg", "abs")
    pair = RegionPattern("pair", match_op("abs", match_op("neg", var("x"))))
    seen = []

    def cost(found, where):
        seen.append([n.op.name for n in found.nodes])
        return 2e-6

    seconds = prices(neg=(50, 9), abs=(50, 9))
    function, report = placed(body, params, {"a": [pair, ANY]}, seconds, costs={"a": cost})
    assert seen == [["abs", "neg"]] or seen == [["neg", "abs"]]
    (region,) = report["regions"]
    assert region["patterns"] == ["pair"]
    assert report["costs"][0]["seconds"] == pytest.approx(16e-6)
    function, _ = placed(body, params, {"a": [pair]}, seconds, costs={"a": lambda *_: 5e-6})
    assert not regions_of(function)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: -1.0, "it returned -1.0"),
        (lambda *_: "fast", "it returned 'fast'"),
        (lambda *_: float("nan"), "it returned nan"),
    ],
)
def test_a_cost_that_is_no_time_is_an_error(cost, text):
    body, params = chain("neg")
    with pytest.raises(TargetError, match="`cost` of partitioner 'p-a' failed") as caught:
        placed(body, params, {"a": [ANY]}, prices(neg=(1, 5)), costs={"a": cost})
    assert text in str(caught.value)


def test_place_is_on_top():
    body, params = chain("neg", "abs", "relu")
    cheap = prices(neg=(1, 99), abs=(1, 99), relu=(1, 99))
    _, report = placed(body, params, {"a": [ANY]}, cheap, place=[("abs", "host")])
    assert [r["ops"] for r in report["regions"]] == [["neg"], ["relu"]]
    costly = prices(neg=(99, 1), abs=(99, 1), relu=(99, 1))
    _, report = placed(body, params, {"a": [ANY]}, costly, place=[("abs", "a")])
    assert [r["ops"] for r in report["regions"]] == [["abs"]]
    _, report = placed(body, params, {"a": [ANY]}, cheap, automatic=(), place=[("abs", "a")])
    assert [r["ops"] for r in report["regions"]] == [["abs"]]


def test_a_node_of_unknown_time_goes_to_the_first_target_that_takes_it():
    x = param("x", tensor_type((Var("n"), 4)))
    body = OPS["abs"].build(OPS["neg"].build(x))
    _, report = placed(body, [x], {"a": [ANY], "b": [ANY]}, lambda n, where: None)
    assert [(r["target"], r["ops"]) for r in report["regions"]] == [("a", ["neg", "abs"])]


def test_three_targets_share_a_chain():
    body, params = chain("neg", "abs", "relu")
    table = {"neg": {"a": 1, "b": 90, "host": 90}, "abs": {"a": 90, "b": 1, "host": 90}}
    table["relu"] = {"a": 90, "b": 90, "host": 1}
    seconds = lambda n, where: table[n.op.name][where] * 1e-6  # noqa: E731
    _, report = placed(body, params, {"a": [ANY], "b": [ANY]}, seconds)
    assert [(r["target"], r["ops"]) for r in report["regions"]] == [("a", ["neg"]), ("b", ["abs"])]
    # x to a, from a through the host to b, and from b to the host
    assert report["costs"][0]["seconds"] == pytest.approx((3 + 7 + 14 + 7) * 1e-6)


def test_large_graphs_take_little_time():
    value = x = param("x", TYPE)
    for i in range(3000):
        value = OPS["neg" if i % 3 else "abs"].build(OPS["add"].build(value, x))
    _, report = placed(value, [x], {"a": [ANY]}, lambda n, where: (1 + len(n.op.name) % 3) * 1e-6)
    assert report["costs"][0]["seconds"] > 0


@pytest.mark.parametrize("seed", range(30))
def test_any_costs_of_three_targets_keep_values_and_are_no_worse_than_each_target(seed):
    rng = random.Random(seed)
    params, body = random_graph(rng, rng.randint(3, 14))
    pair = RegionPattern("pair", match_op(["neg", "concat"], var("p")))
    two = RegionPattern("two", match_op("neg", match_op(["add", "mul"], var("p"), var("q"))))
    some = RegionPattern("some", match_op(["add", "mul"], var("p"), var("q")))
    rates = {(name, where): rng.randint(0, 30) * 1e-6 for name in OPS for where in ("a", "b", "host")}
    pins = [(rng.choice(["add", "neg"]), str(TARGETS[rng.choice(["a", "b", "host"])]))] * rng.randint(0, 1)
    function, report = placed(
        body, params, {"a": [two, some], "b": [pair, ANY]}, lambda n, where: rates[n.op.name, where], pins
    )
    costs = report["costs"][0]
    assert costs["seconds"] <= min(costs["preference"], *costs["alone"].values()) + 1e-15
    verify_function(function)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    expected = evaluate(Function("f", tuple(params), body), [x, x + 1])
    for got, want in zip(np.atleast_1d(evaluate(function, [x, x + 1])), np.atleast_1d(expected), strict=True):
        np.testing.assert_array_equal(got, want)
