"""Pickles and copies of the IR, of schedules and of targets, also between processes."""

# ruff: noqa: S301 - reading back what the test has pickled

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ArtifactError, ScheduleError, Span, UsageError
from dlc_core.graph.node import Array, Function, Op, constant, node, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference, structural_equal
from dlc_core.ir.types import tensor_type
from dlc_core.schedule import Schedule
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.testing import networks

WEIGHT = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)


def twice(x):
    """A value that a pickle has made."""
    return pickle.loads(pickle.dumps(x))


def graph(weight=WEIGHT):
    n = Var("n")
    x = param("x", tensor_type((n, weight.shape[0]), dlc.graph.constant(weight).type.dtype))
    return Function("main", (x,), dlc.ops()["relu"].build(dlc.ops()["matmul"].build(x, constant(weight))))


def matmul(name="matmul", size=16):
    a, b = te.placeholder((size, 32), name="a"), te.placeholder((32, size), name="b")
    k = te.reduce_axis(32, "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b], [c], name)


def scheduled(subject=None, seed=7):
    sch = Schedule(subject or matmul(), seed=seed)
    block = sch.get_block("c")
    i, _, k = sch.get_loops(block)
    sch.split(k, [None, 4])
    outer, _ = sch.split(i, sch.sample_perfect_tile(i, 2))
    sch.parallel(outer)
    return sch


IR = {
    "module": lambda: IRModule.of(graph(), matmul()),
    "graph": graph,
    "program": matmul,
    "statement": lambda: matmul().body,
    "node": lambda: graph().body,
    "array": lambda: Array(WEIGHT),
    "expression": lambda: Var("n") * 2 + 1,
    "type": lambda: tensor_type((Var("n"), 3), "int8"),
    "buffer": lambda: matmul().buffers[0],
}


@pytest.mark.parametrize("name", IR)
def test_values_are_read_back_structurally_equal(name):
    value = IR[name]()
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        found = pickle.loads(pickle.dumps(value, protocol))
        assert type(found) is type(value)
        assert first_difference(value, found) is None


@pytest.mark.parametrize("name", ["module", "graph", "program", "statement", "node", "array"])
def test_copies_are_the_value(name):
    """They are immutable."""
    value = IR[name]()
    assert copy.deepcopy([value])[0] is value
    assert copy.copy(value) is value


@pytest.mark.parametrize("network", [networks.mlp, networks.cifar])
def test_networks(network):
    module = network()
    assert first_difference(module, twice(module)) is None


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", ml_dtypes.bfloat16])
def test_constants_keep_dtype_and_bits(dtype):
    weight = (WEIGHT * 100).astype(dtype)
    value = dlc.graph.constant(weight)
    assert first_difference(value, twice(value)) is None
    odd = np.array([np.nan, -0.0, np.inf], np.float32)
    odd.view(np.uint32)[0] |= 0x1234
    kept = twice(Array(odd)).data
    assert kept.tobytes() == odd.tobytes()


def test_constants_may_be_out_of_band():
    """Large weights need not be copied into the pickle."""
    module, buffers = IRModule.of(graph()), []
    data = pickle.dumps(module, 5, buffer_callback=buffers.append)
    assert [b.raw().nbytes for b in buffers] == [WEIGHT.nbytes]
    assert structural_equal(module, pickle.loads(data, buffers=buffers))


def test_a_mapped_constant_becomes_an_array(tmp_path):
    mapped = np.memmap(tmp_path / "weight", np.float32, "w+", shape=(6, 4))
    mapped[:] = WEIGHT
    found = twice(graph(mapped))
    assert structural_equal(found, graph())


def test_nodes_keep_their_ops_spans_and_sharing():
    value = graph()
    value.body.add_spans([Span("onnx", "relu_1", "Relu")])
    found = twice(value)
    assert found.body.op is dlc.ops()["relu"]
    assert found.body.spans == value.body.spans
    x = param("x", tensor_type((2,)))
    deep = x
    for _ in range(5000):
        deep = dlc.ops()["add"].build(deep, deep)
    back = twice(Function("main", (x,), deep))
    assert back.body.args[0] is back.body.args[1]


def test_what_is_read_back_compiles():
    module = twice(IRModule.of(graph()))
    x = np.ones((3, 6), np.float32)
    np.testing.assert_array_equal(
        dlc.compile(module, "reference")(x), dlc.compile(IRModule.of(graph()), "reference")(x)
    )
    a, b = np.ones((16, 32), np.float32), np.ones((32, 16), np.float32)
    np.testing.assert_array_equal(dlc.build(twice(scheduled()), "reference")(a, b), a @ b)


@pytest.mark.parametrize("act", [twice, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("subject", [matmul, lambda: IRModule.of(matmul(), matmul("other"), graph())])
def test_schedules(act, subject):
    sch = scheduled(subject())
    found = act(sch)
    assert structural_equal(found.mod, sch.mod)
    assert found.mod.entry == sch.mod.entry
    assert found.trace.as_python() == sch.trace.as_python()
    assert found.trace.decisions == sch.trace.decisions
    for each in (sch, found):  # the same later decisions
        loop = each.get_loops(each.get_block("c"))[-1]
        each.split(loop, each.sample_perfect_tile(loop, 2))
    assert structural_equal(found.mod, sch.mod)
    assert found.trace.as_python() == sch.trace.as_python()
    again = Schedule(subject())
    found.trace.replay(again)
    assert structural_equal(again.mod, sch.mod)


def test_a_copy_is_independent():
    sch = scheduled()
    found = twice(sch)
    found.unroll(found.get_loops(found.get_block("c"))[-1])
    assert not structural_equal(found.func, sch.func)
    assert structural_equal(sch.func, scheduled().func)


def test_handles_of_loops_are_of_one_schedule():
    sch = scheduled()
    block, loop = sch.get_block("c"), sch.get_loops(sch.get_block("c"))[0]
    found, handle, old = twice((sch, block, loop))
    assert len(found.get_loops(handle)) == 5
    with pytest.raises(ScheduleError, match="has no loop"):
        found.unroll(old)


def fill_reference(out):
    out[:] = 1


def fill(reference):
    """An intrinsic that fills eight elements."""
    func = te.create_prim_func([te.compute((8,), lambda i: 1.0, name="o")], name="fill")
    return TensorIntrin("fill", func, func, reference)


def test_intrinsics_of_a_schedule():
    program = te.create_prim_func([te.compute((4, 8), lambda i, j: 1.0, name="o")], name="ones")
    for reference in (fill_reference, lambda out: None):
        sch = Schedule(program)
        sch.tensorize(sch.get_loops(sch.get_block("o"))[1], fill(reference))
        if reference is fill_reference:
            found = twice(sch)
            assert structural_equal(found.func, sch.func)
            assert found.intrins["fill"].reference is fill_reference
            assert found.trace.as_python() == sch.trace.as_python()
        else:
            with pytest.raises(UsageError, match="functions of intrinsic 'fill' cannot be pickled"):
                pickle.dumps(sch)


@pytest.mark.parametrize("text", ["reference", "reference -level=tir"])
def test_targets(text):
    target = dlc.Target(text).with_facts({"l2_bytes": 1 << 17})
    assert twice(target) == target
    assert twice({target: 1}) == {target: 1}
    assert copy.deepcopy(target) is target


def test_what_cannot_be_pickled_says_so():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    exe = dlc.build(b, "reference")
    module = IRModule.of(matmul()).with_attrs(owner=object())
    for value, message in (
        (a, r"tensor 'a' cannot be pickled(.|\n)*create_prim_func"),
        (b, "tensor 'b' cannot be pickled"),
        (dlc.create_schedule(b), r"a schedule of tensors cannot be pickled(.|\n)*s.func"),
        (exe, r"an executable cannot be pickled(.|\n)*exe.save"),
        (module, r"this IRModule cannot be pickled\n  because object"),
        (Schedule(module), r"this schedule cannot be pickled\n  because object"),
    ):
        with pytest.raises(UsageError, match=message):
            pickle.dumps(value)
    assert copy.deepcopy(b) is b
    with pytest.raises(UsageError, match="cannot be pickled"):
        copy.deepcopy(exe)


def test_an_op_that_no_plugin_declares():
    x = param("x", tensor_type((2,)))
    data = pickle.dumps(Function("main", (x,), node(Op("acme.op"), (x,), {}, x.type)))
    with pytest.raises(ArtifactError, match=r"uses the op 'acme\.op', which no plugin has declared"):
        pickle.loads(data)


def test_another_process(tmp_path):
    """It reads values without having imported dlc, and they come back equal."""
    values = {
        "module": IRModule.of(graph(), matmul()),
        "schedule": scheduled(),
        "target": dlc.Target("reference"),
        "statement": matmul().body,
    }
    (tmp_path / "there").write_bytes(pickle.dumps(values))
    code = (
        "import pickle, sys\n"
        "values = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert any(type(v).__name__ == 'IRModule' for v in values.values())\n"
        "pickle.dump(values, open(sys.argv[2], 'wb'))\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "there", tmp_path / "back"], check=True)
    back = pickle.loads((tmp_path / "back").read_bytes())
    assert structural_equal(back["module"], values["module"])
    assert structural_equal(back["statement"], values["statement"])
    assert back["target"] == values["target"]
    assert structural_equal(back["schedule"].func, values["schedule"].func)
    assert back["schedule"].trace.as_python() == values["schedule"].trace.as_python()
