"""Outputs that overwrite dead inputs: kernels that allow it, and results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlc_core as dlc
from dlc_core.graph.node import Function, Node, constant, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.script import parse
from dlc_core.tir.in_place import overwritable

CHECKED = "reference -level=tir -check=true"
RNG = np.random.default_rng(1)
COPIED = "for i in range(8):\n        C[i] = A[i]"
HELD = """t = T.alloc_buffer((8,), "float32")
    for i in range(8):
        t[i] = A[i]
    for i in range(8):
        C[i] = t[7 - i]"""
ADDED = "for i in range(8):\n        C[i] = A[i] + B[i]"


def program(body: str) -> frozenset[tuple[int, int]]:
    buffers = ", ".join(f'{name}: T.Buffer((8,), "float32")' for name in "ABC")
    return frozenset(overwritable(parse(f"@T.prim_func\ndef f({buffers}):\n    {body}\n")))


def test_overwrites_inputs_that_are_read_at_the_stored_element_only() -> None:
    assert program(ADDED) == {(0, 2), (1, 2)}
    halves = (
        "for i in range(4):\n        C[i] = A[i]\n    for i in range(4):\n        C[i + 4] = A[i + 4] + B[0]"
    )
    assert program(halves) == {(0, 2)}
    vectors = "for i in range(2):\n        C[T.ramp(i * 4, 1, 4)] = A[T.ramp(i * 4, 1, 4)]"
    assert program(vectors) == {(0, 2)}


def test_workspaces_are_not_overwritable_outputs() -> None:
    """The workspace of a kernel is not an output, so it is not planned with the values."""
    func = replace(
        parse(
            "@T.prim_func\ndef f(A: T.Buffer((8,), 'float32'), B: T.Buffer((8,), 'float32'),"
            " W: T.Buffer((8,), 'float32')):\n"
            "    for i in range(8):\n        W[i] = A[i] * 2.0\n"
            "    for i in range(8):\n        B[i] = W[i]\n"
        ),
        attrs={"workspaces": 1},
    )
    assert overwritable(func) == ()


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(8):\n        C[i] = A[7 - i]",
        "for i in range(7):\n        C[i + 1] = A[i + 1] + A[i]",
        ADDED + "\n    for i in range(1):\n        C[i] = A[i]",
        "for i in range(8):\n        x = T.let(A[i])\n        C[i] = x",
        "for i in range(8):\n        if A[i] > 0.0:\n            C[i] = A[i]",
        "for i in range(8):\n        C[i] = A[i]\n        C[0] = C[0] + 1.0",
        "for i in range(8):\n        B[i] = A[i]\n        C[i] = A[i]",
        'V = T.view(A, (8,), "float32")\n    for i in range(8):\n        C[i] = A[i] + V[7 - i]',
        COPIED + "\n    T.evaluate(T.call_extern('f', T.address_of(A), dtype='int32'))",
        "for i in range(8):\n        A[i] = 1.0\n        C[i] = A[i]",
        HELD,
    ],
)
def test_keeps_inputs_that_are_read_at_other_elements(body: str) -> None:
    assert (0, 2) not in program(body)


def check(result: Node) -> int:
    """Compare with the reference. Returns the bytes of scratch memory."""
    params = tuple(n for n in post_order(result) if n.op.name == "param")
    function = Function("main", params, result)
    arrays = [RNG.standard_normal(p.tensor_type.static_shape()).astype(np.float32) for p in params]
    exe = dlc.compile(IRModule({"main": function}), CHECKED)
    np.testing.assert_allclose(exe(*arrays), evaluate(function, arrays), rtol=1e-4, atol=1e-4)
    return int(exe.explain().arena)


def weights(*shape: int) -> Node:
    return constant((RNG.standard_normal(shape) * 0.3).astype(np.float32))


def test_residual_sums_reuse_the_memory_of_an_input() -> None:
    x = param("x", tensor_type((16, 16), "float32"))
    held = std.matmul(x, weights(16, 16))
    for _ in range(3):
        held = std.add(std.matmul(std.tanh(std.matmul(held, weights(16, 4))), weights(4, 16)), held)
    assert check(std.matmul(held, weights(16, 2))) == 16 * 16 * 4 + 16 * 4 * 4


def test_a_value_that_is_read_twice_is_not_overwritten() -> None:
    x = param("x", tensor_type((16, 16), "float32"))
    held = std.matmul(x, weights(16, 16))
    check(std.matmul(std.add(std.matmul(held, weights(16, 16)), held), weights(16, 3)))
    kept = std.matmul(x, weights(16, 16))
    sums = std.add(std.matmul(std.exp(kept), weights(16, 16)), kept)
    check(std.matmul(std.concat(sums, kept, axis=1), weights(32, 3)))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    x = param("x", tensor_type((6, 8), "float32"))
    values = [x]
    for _ in range(data.draw(st.integers(3, 9))):
        a, b = (data.draw(st.sampled_from(values[-4:])) for _ in range(2))
        kind = data.draw(st.sampled_from(["product", "residual", "map", "softmax", "turn", "concat"]))
        if kind == "product":
            values.append(std.matmul(a, weights(8, 8)))
        elif kind == "residual":
            values.append(std.relu(std.add(std.matmul(a, weights(8, 8)), b)))
        elif kind == "map":
            values.append(std.mul(std.tanh(a), b))
        elif kind == "softmax":
            values.append(std.softmax(a, axis=1))
        elif kind == "turn":
            values.append(std.reshape(std.transpose(a, axes=(1, 0)), shape=(6, 8)))
        else:
            values.append(std.matmul(std.concat(a, b, axis=1), weights(16, 8)))
    check(std.matmul(values[-1], weights(8, 3)))
