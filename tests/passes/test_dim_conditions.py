"""Calls whose sizes do not fit the types of a graph are refused."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.graph.dim_conditions import dim_conditions

N, M = Var("n"), Var("m")


def function_of(shape, make):
    x = param("x", tensor_type(shape, "float32"))
    return Function("main", (x,), make(x))


def compiled(shape, make):
    return dlc.compile(IRModule({"main": function_of(shape, make)}))


@pytest.mark.parametrize(
    ("shape", "into", "count"),
    [
        ((N, 4), (2, N, 2), 0),
        ((N, M), (N * M,), 0),
        ((N + M,), (M + N,), 0),
        ((N, 4), (-1, 4), 0),
        ((N,), (3, 4), 1),
        ((N, M), (M, M), 1),
        ((N,), (-1, 4), 1),
    ],
)
def test_records_conditions_on_dims(shape, into, count):
    assert len(dim_conditions(function_of(shape, lambda x: std.reshape(x, shape=into)))) == count


def test_refuses_sizes_that_violate_a_condition(tmp_path):
    exe = compiled((2, N), lambda x: std.relu(std.reshape(x, shape=(3, 4))))
    assert exe(np.ones((2, 6), np.float32)).shape == (3, 4)
    exe.save(tmp_path / "m.dlc")
    for each in (exe, dlc.open(tmp_path / "m.dlc")):
        with pytest.raises(UsageError, match=r"float32\[2, n\] is reshaped to \[3, 4\].* where n=5"):
            each(np.ones((2, 5), np.float32))


def test_one_or_the_size_broadcasts():
    exe = compiled((N,), lambda x: std.neg(std.broadcast_to(x, shape=(2, 3))))
    for size in (1, 3):
        assert exe(np.ones(size, np.float32)).shape == (2, 3)
    with pytest.raises(
        UsageError, match=r"dim 0 \(n\) of input .x. is 2, 1 or 3 is needed\n.*\[n\] is broadcast to \[2, 3\]"
    ):
        exe(np.ones(2, np.float32))


def test_branches_add_no_conditions_to_the_function():
    def branch(make):
        x = param("x", tensor_type((N,), "float32"))
        return Function("branch", (x,), make(x))

    def choose(x):
        return std.if_(
            std.greater(std.reduce_sum(x), std.full(shape=(), value=0.0, dtype="float32")),
            x,
            then_branch=branch(lambda x: std.reshape(x, shape=(2, 2))),
            else_branch=branch(lambda x: std.full(shape=(2, 2), value=0.0, dtype="float32")),
        )

    assert dim_conditions(function_of((N,), choose)) == ()


def counted(make):
    """A model with a data-dependent number of columns."""
    x = param("x", tensor_type((4, 6), "float32"))
    found = std.nonzero(std.relu(x), count=Var("found"))
    return IRModule({"main": Function("main", (x,), make(std.cast(found, to="float32")))})


def test_checks_data_dependent_dims_when_they_are_known():
    module = counted(lambda found: std.neg(std.add(found, constant(np.ones((2, 5), np.float32)))))
    exe = dlc.compile(module, "llvm")
    x = np.full((4, 6), -1, np.float32)
    x.flat[[1, 5, 6, 20, 21]] = 1
    assert exe(x).shape == (2, 5)
    x.flat[3] = 1
    with pytest.raises(UsageError, match="add: found is 6, 1 or 5 is needed"):
        exe(x)


def function(name, make, *shapes):
    params = [param(f"{name}{k}", tensor_type(shape, "float32")) for k, shape in enumerate(shapes)]
    return Function(name, tuple(params), make(*params))


def test_conditions_of_branches_are_checked_if_they_are_taken():
    def choose(x):
        return std.if_(
            std.greater(std.reduce_sum(x), std.full(shape=(), value=0.0, dtype="float32")),
            x,
            then_branch=function("yes", lambda x: std.reshape(x, shape=(2, 2)), (N,)),
            else_branch=function("no", lambda x: std.full(shape=(2, 2), value=7.0, dtype="float32"), (N,)),
        )

    exe = dlc.compile(IRModule({"main": function_of((N,), choose)}), "llvm")
    np.testing.assert_array_equal(exe(np.ones(4, np.float32)), np.ones((2, 2)))
    np.testing.assert_array_equal(exe(-np.ones(5, np.float32)), np.full((2, 2), 7))
    with pytest.raises(UsageError, match=r"reshape: n is 5, 4 is needed"):
        exe(np.ones(5, np.float32))


def test_checks_conditions_of_loop_bodies_at_entry():
    inner = Var("inner")

    def step(state, x):
        return make_tuple((std.add(state, std.matmul(x, constant(np.eye(5, dtype="f4")))), std.reduce_sum(x)))

    body = function("body", step, (1, 5), (1, inner))
    x = param("x", tensor_type((N, 1, M), "float32"))
    scanned = std.scan(std.full(shape=(1, 5), value=0.0, dtype="float32"), x, num_state=1, body=body)
    exe = dlc.compile(IRModule({"main": Function("main", (x,), get_item(scanned, 0))}), "llvm")
    np.testing.assert_array_equal(exe(np.ones((3, 1, 5), np.float32)), np.full((1, 5), 3))
    with pytest.raises(UsageError, match=r"dim 2 \(m\) of input 'x' is 4, 5 is needed"):
        exe(np.ones((3, 1, 4), np.float32))
