"""Lowering of groups: equal ones share a PrimFunc, each call with its own symbolic dims."""

from __future__ import annotations

import pytest

from dlc_core.diag import Span
from dlc_core.graph.node import CALL_PRIM, Function, make_tuple, param, post_order, spanned
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.lower import group
from dlc_core.tir.stmt import PrimFunc


@pytest.fixture
def lowered(monkeypatch):
    """The names of lowered groups, the kernels and the calls of a function with these results."""
    names = []
    plain = group.lower_group
    monkeypatch.setattr(group, "lower_group", lambda f, name: names.append(name) or plain(f, name))

    def run(*results):
        body = make_tuple(results)
        params = tuple(n for n in post_order(body) if n.op.name == "param")
        module = IRModule({"main": Function("main", params, body)})
        module = group.LowerGroups().run(module, PassContext())
        calls = [n for n in post_order(module["main"].body) if n.op is CALL_PRIM]
        return names, module.of_kind(PrimFunc), calls

    return run


def relu_of(*shape, span=None):
    with spanned([Span("model", span)] if span else []):
        return std.relu(param("x", tensor_type(shape, "float32")))


def test_equal_groups_are_lowered_once_and_keep_all_spans(lowered):
    names, kernels, calls = lowered(relu_of(2, 3, span="a"), relu_of(2, 3, span="b"), relu_of(3, 2))
    assert len(names) == len(kernels) == 2
    assert [c.attrs["symbol"] for c in calls].count(next(iter(kernels))) == 2
    assert {s.name for s in next(iter(kernels.values())).spans} >= {"a", "b"}


def test_calls_of_a_shared_kernel_have_their_own_dims(lowered):
    n, m = Var("n"), Var("m")
    names, kernels, calls = lowered(relu_of(n, m), relu_of(m, n), relu_of(n, n))
    assert len(names) == len(kernels) == 2
    first, second, square = calls
    assert first.attrs["symbol"] == second.attrs["symbol"] != square.attrs["symbol"]
    assert first.attrs["dims"] == second.attrs["dims"][::-1]
    assert set(first.attrs["dims"]) == {n, m}
    assert square.attrs["dims"] == (n,)
