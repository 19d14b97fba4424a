"""share_kernels: groups that differ only in literals. Values stay the same, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import CALL, CONST, Function, Node, constant, make_tuple, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.graph import Fuse, ShareKernels
from dlc_core.passes.graph.share_kernels import MANY

X = np.random.default_rng(0).uniform(-1, 1, 5).astype(np.float32)


def literal(value: float) -> Node:
    return constant(np.asarray(value, np.float32))


def scaled(x: Node, by: float) -> Node:
    return std.tanh(std.add(std.mul(x, literal(by)), literal(0.5)))


def model(count: int, group=scaled) -> IRModule:
    x = param("x", tensor_type((5,), "float32"))
    values = [group(x, 0.1 + i) for i in range(count)]
    return IRModule.of(Function("main", (x,), make_tuple(values)))


def calls(module: IRModule, least: int = MANY) -> list[Node]:
    done = Pipeline((Fuse(max_ops=4), ShareKernels(least=least))).run(module, PassContext())
    return [n for n in post_order(done["main"].body) if n.op is CALL]


def test_differing_literals_become_operands_and_equal_ones_stay():
    found = calls(model(4), least=4)
    assert [float(n.args[1].attrs["value"].data) for n in found] == [
        pytest.approx(0.1 + i, rel=1e-6) for i in range(4)
    ]
    for n in found:
        inside = [m for m in post_order(n.attrs["function"].body) if m.op is CONST]
        assert [float(m.attrs["value"].data) for m in inside] == [0.5]
        assert len(n.attrs["function"].params) == len(n.args) == 2


def test_few_groups_keep_their_literals():
    assert all(len(n.args) == 1 for n in calls(model(3), least=4))


def test_groups_that_agree_in_all_literals_count_once():
    x, y = (param(name, tensor_type((5,), "float32")) for name in "xy")
    values = [scaled(each, 0.1) for each in (x, y)]
    module = IRModule.of(Function("main", (x, y), make_tuple(values)))
    assert all(len(n.args) == 1 for n in calls(module, least=2))


def test_groups_of_other_ops_or_shapes_are_apart():
    def group(x: Node, by: float) -> Node:
        return std.tanh(std.mul(x, literal(by))) if by < 2 else std.exp(std.mul(x, literal(by)))

    assert all(len(n.args) == 1 for n in calls(model(4, group), least=3))


def test_exponents_stay_literals():
    found = calls(model(4, lambda x, by: std.pow(x, literal(by))), least=4)
    assert all(len(n.args) == 1 for n in found)


def test_many_groups_are_one_kernel_with_the_same_values():
    exe = dlc.compile(model(MANY), "llvm", cache=False)
    apart = dlc.compile(model(MANY), "llvm", cache=False, config={"disabled": ("share_kernels",)})
    assert len({site["kernel"] for site in exe.about["sites"]}) == 1
    assert len({site["kernel"] for site in apart.about["sites"]}) == MANY
    for one, other in zip(exe(X), apart(X), strict=True):
        np.testing.assert_array_equal(one, other)
