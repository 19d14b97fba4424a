"""Random branches and loops inside each other, over all kinds of shapes and dtypes, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

DTYPES = ("float32", "int32", "float16", "bool", "int8", "float64")
TOLERANCE = {"float16": (1e-2, 1e-3)}


class Random:
    """Graphs drawn from one seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def choose(self, items):
        return items[self.rng.integers(len(items))]

    def unary(self, x):
        if x.dtype.is_bool:
            return std.logical_not(x)
        one = constant(np.ones((), x.dtype.numpy))
        return self.choose([std.neg(x), std.add(x, one), std.relu(x), x])

    def like(self, values, wanted):
        """A value of the type of `wanted`, made of some of the values."""
        same = [v for v in values if v.type == wanted.type]
        a, b = self.choose(same), self.choose(same)
        if wanted.dtype.is_bool:
            return self.choose([a, std.logical_xor(a, self.unary(b))])
        made = [a, self.unary(a), std.maximum(a, b), std.minimum(self.unary(a), b)]
        return self.choose([*made, std.flip(a, axes=(1,))] if len(a.shape) == 2 else made)

    def body(self, values, wanted, depth):
        values = list(values)
        if depth and self.rng.random() < 0.6:
            values += self.control(values, depth - 1)
        return [self.like(values, one) for one in wanted]

    def control(self, values, depth):
        """The results of a branch or loop over some of the values."""
        picked = [self.choose(values) for _ in range(self.rng.integers(1, 4))]
        own = [param(f"a{i}", x.type) for i, x in enumerate(picked)]
        other = [param(f"b{i}", x.type) for i, x in enumerate(picked)]
        rows = [x for x in values if len(x.shape) == 2]
        kind = self.choose(["branch", "while", "scan"] if rows else ["branch", "while"])
        inner = self.body(own, own, depth)
        if kind == "branch":
            first = std.cast(picked[0], to="float32")
            total = std.reduce_sum(first, axes=tuple(range(len(first.shape)))) if first.shape else first
            made = std.if_(
                std.greater(total, constant(np.float32(0.1))),
                *picked,
                then_branch=Function("then", tuple(own), make_tuple(inner)),
                else_branch=Function("else", tuple(other), make_tuple(self.body(other, other, depth))),
            )
            return [get_item(made, i) for i in range(len(picked))]
        if kind == "while":
            i, j = (param(name, tensor_type((), "int32")) for name in "ij")
            rounds = constant(np.int32(self.rng.integers(0, 5)))
            after = make_tuple([std.add(i, constant(np.int32(1))), *inner])
            made = std.while_(
                constant(np.int32(0)),
                *picked,
                cond=Function("cond", (j, *other), std.less(j, rounds)),
                body=Function("body", (i, *own), after),
            )
            return [get_item(made, i + 1) for i in range(len(picked))]
        table = self.choose(rows)
        row = param("row", tensor_type(table.shape[1:], table.dtype))
        results = make_tuple([*inner, self.like([row, *own], row)])
        body = Function("body", (*own, row), results)
        made = std.scan(*picked, table, num_state=len(picked), body=body)
        return [get_item(made, i) for i in range(len(picked) + 1)]

    def module(self):
        rows, columns = (Var("m"), Var("n")) if self.rng.random() < 0.5 else (3, 5)
        shapes = [(), (columns,), (rows, columns), (rows, columns)]
        params = [param("table", tensor_type((rows, columns), "float32"))]
        params += [
            param(f"p{i}", tensor_type(self.choose(shapes), self.choose(DTYPES)))
            for i in range(self.rng.integers(1, 4))
        ]
        values = list(params)
        for _ in range(self.rng.integers(1, 3)):
            values += self.control(values, 2)
        body = make_tuple([self.unary(v) for v in values[len(params) :]])
        return IRModule({"main": Function("main", tuple(params), body)})

    def arrays(self, module, rows, columns):
        sizes = {"m": rows, "n": columns}
        for own in module["main"].params:
            shape = [sizes[d.name] if isinstance(d, Var) else d for d in own.shape]
            drawn = self.rng.normal(size=shape) * 3
            yield np.asarray(drawn > 0) if own.dtype.is_bool else np.asarray(drawn).astype(own.dtype.numpy)


def check(seed):
    random = Random(seed)
    module = random.module()
    want, exe = dlc.compile(module, "reference"), dlc.compile(module, "llvm")
    assert exe.program is None
    sizes = [(3, 5), (1, 1), (2, 17)] if "m" in str(exe.inputs[0]) else [(3, 5)]
    for rows, columns in sizes:
        arrays = list(random.arrays(module, rows, columns))
        expected, found = want(*arrays), exe(*arrays)
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for a, b in pairs:
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            rtol, atol = TOLERANCE.get(a.dtype.name, (1e-4, 1e-5))
            wide = (x.astype(np.float64) for x in (a, b))
            np.testing.assert_allclose(*wide, rtol, atol, err_msg=f"seed {seed}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_control_flow():
    for seed in range(4):
        check(seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(4, 100))
def test_more_random_control_flow(seed):
    check(seed)
