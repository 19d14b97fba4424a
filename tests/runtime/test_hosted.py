"""Host programs: control flow, ops without a lowering and data-dependent dims, between native segments."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import op
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.runtime.host_program.program import Program

RNG = np.random.default_rng(1)
WEIGHT = RNG.standard_normal((4, 4)).astype(np.float32) / 4
X = RNG.standard_normal((3, 4)).astype(np.float32)
INT = tensor_type((), "int32")
MATRIX = tensor_type((3, 4))


SORTED = op(
    "sorted_rows", "columns in ascending order", ["x"], kind="opaque", infer=lambda types, attrs: types[0],
    reference=lambda x: np.sort(x, 0),
)  # fmt: skip


@pytest.fixture
def devices(devices):
    """The devices, and an op that has no lowering."""
    plugin = SimpleNamespace(dlc_ops=hookimpl(specname="dlc_ops")(lambda: [SORTED]))
    with fresh_registry({"sorted": plugin, "devices": devices}):
        yield devices


def call(name, *args, **attrs):
    return registry().ops[name].build(*args, **attrs)


def module(params, *results):
    body = results[0] if len(results) == 1 else make_tuple(results)
    return IRModule({"main": Function("main", tuple(params), body)})


def step(i, x):
    return call("add", i, constant(1, "int32")), call(
        "add", call("relu", call("matmul", x, constant(WEIGHT))), x
    )


def looped():
    """x = 2 a; five times x += relu(x @ w); softmax."""
    i, x = param("i", INT), param("x", MATRIX)
    cond = Function("cond", (i, x), call("less", i, constant(5, "int32")))
    j, y = param("j", INT), param("y", MATRIX)
    body = Function("body", (j, y), make_tuple(step(j, y)))
    a = param("a", MATRIX)
    start = call("mul", a, constant(2.0, "float32"))
    end = call("while_", constant(0, "int32"), start, cond=cond, body=body)
    return module([a], call("softmax", get_item(end, 1), axis=-1), get_item(end, 0))


def branching():
    """relu(a @ w) if the sum is above zero, else a; a branch contains another one."""
    x, y, z, u = (param(n, MATRIX) for n in "xyzu")
    big = call("greater", call("reduce_sum", x, axes=(0, 1)), constant(100.0, "float32"))
    inner = call(
        "if_", big, x, then_branch=Function("t", (z,), call("neg", z)), else_branch=Function("e", (u,), u)
    )
    then = Function("then", (x,), call("relu", call("matmul", inner, constant(WEIGHT))))
    a = param("a", MATRIX)
    positive = call("greater", call("reduce_sum", a, axes=(0, 1)), constant(0.0, "float32"))
    return module([a], call("if_", positive, a, then_branch=then, else_branch=Function("else", (y,), y)))


def scanned():
    """Running sums of relu(row @ w), and the last one."""
    s, row = param("s", tensor_type((4,))), param("row", tensor_type((4,)))
    product = call("matmul", call("reshape", row, shape=(1, 4)), constant(WEIGHT))
    total = call("add", s, call("reshape", call("relu", product), shape=(4,)))
    body = Function("body", (s, row), make_tuple((total, total)))
    a = param("a", MATRIX)
    both = call("scan", constant(np.zeros(4, np.float32)), a, num_state=1, body=body)
    return module([a], call("mul", get_item(both, 1), constant(2.0, "float32")), get_item(both, 0))


def sorting():
    """An op without a lowering between two native ones."""
    n = Var("n")
    a = param("a", tensor_type((n, 4)))
    product = call("relu", call("matmul", a, constant(WEIGHT)))
    changed = SORTED.build(product)
    return module([a], call("add", changed, a), product)


MODELS = {"looped": looped, "branching": branching, "scanned": scanned, "sorting": sorting}
TARGETS = ["reference -level=tir", "reference -level=tir -check=true", "shared", "board"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_programs_compute_the_results_of_the_graph(devices, name, target, tmp_path):
    model = MODELS[name]()
    want = dlc.compile(model, "reference")
    exe = dlc.compile(model, target, verify="structure")
    # Entries of these targets branch and loop themselves.
    native = name != "sorting" and target.startswith("reference")
    assert (exe.program is None) == native
    exe.save(tmp_path / "m.dlc")
    again = dlc.open(tmp_path / "m.dlc", verify=True)
    for x in (X, -X, X * 40):
        expected = want.run({"a": x})
        for each in (exe, again):
            for key, value in each.run({"a": x}).items():
                np.testing.assert_allclose(value, expected[key], rtol=1e-5, atol=1e-6)
    bound = exe.bind([X])
    for value, key in zip(bound.outputs, want.run({"a": X})):
        bound()
        np.testing.assert_allclose(value, want.run({"a": X})[key], rtol=1e-5, atol=1e-6)


def test_reports_ops_that_run_on_the_host(devices):
    exe = dlc.compile(looped(), "shared")
    assert [(e["op"], e["why"]) for e in exe.about["host"]] == [("while_", "control flow")]
    segments = [f"segment_{i}" for i in range(4)]
    assert sorted(exe.artifact.symbols) == sorted([*segments, *(f"{name}__profile" for name in segments)])
    exe = dlc.compile(sorting(), "shared")
    assert [(e["op"], e["why"]) for e in exe.about["host"]] == [("sorted_rows", "the op has no lowering")]
    assert "sorted_rows: the op has no lowering: the host runs it" in str(exe.explain())
    with pytest.raises(UnsupportedError, match=r"sorted_rows .*: the op has no lowering"):
        exe.export("m.so")
    native = dlc.compile(module([a := param("a", MATRIX)], call("relu", a)), "shared")
    assert native.program is None
    assert "host" not in native.about


def test_results_share_no_memory_with_inputs(devices):
    exe = dlc.compile(branching(), "shared")
    x = -np.abs(X)
    y = exe(x)
    np.testing.assert_array_equal(y, x)
    assert not np.shares_memory(x, y)
    assert y.flags.writeable


def test_data_dependent_shapes(devices):
    """The rows whose sum is above zero, times a matrix; their maximum plus the input."""
    m, n = Var("m"), Var("n")
    rows = op(
        "rows_above",
        "the rows whose sum is above zero",
        ["x"],
        kind="opaque",
        infer=lambda types, attrs: tensor_type((m, 4)),
        reference=lambda x: x[x.sum(1) > 0],
    )
    plugin = SimpleNamespace(dlc_ops=hookimpl(specname="dlc_ops")(lambda: [rows]))
    with fresh_registry({"rows": plugin, "devices": devices}):
        a = param("a", tensor_type((n, 4)))
        kept = rows.build(call("mul", a, constant(2.0, "float32")))
        product = call("matmul", kept, constant(WEIGHT))
        tall = call("broadcast_to", call("reduce_max", product, axes=(0,), keepdims=True), shape=(n, 4))
        model = module([a], call("relu", product), call("add", tall, a))
        want, exe = dlc.compile(model, "reference"), dlc.compile(model, "shared")
        for x in (X, np.vstack([X, X + 1, X - 1]), np.ones((1, 4), np.float32)):
            for got, expected in zip(exe(x), want(x)):
                assert got.shape == expected.shape
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_refuses_malformed_programs(devices):
    program = dlc.compile(looped(), "shared").program
    data = program.encode()
    assert Program.decode(data).encode() == data
    head, _, graph = data.partition(b"\n")
    for bad in (
        b"",
        b"{}",
        b"\n",
        head.replace(b"segments", b"s"),
        head.replace(b'"in0"', b"3") + b"\n" + graph,
    ):
        with pytest.raises(ArtifactError, match="malformed"):
            Program.decode(bad)
    weights = np.zeros(0, np.uint8)
    with pytest.raises(ArtifactError, match="outside the weights"):
        program.function(weights)
    for graph in (b"[", b"3", b'{"schema": "dlc-ir", "version": 1, "root": 3, "records": []}'):
        with pytest.raises(ArtifactError):
            Program(graph, (), {}).function(weights)
