"""Programs with branches and loops, for comparing a target with the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from dlc_core import driver
from dlc_core.graph.node import Function, Node, constant, get_item, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

Array = np.ndarray[Any, Any]
T = TypeVar("T")


def vector(name: str, size: Var | int) -> Node:
    return param(name, tensor_type((size,), "float32"))


def number(value: int) -> Node:
    return constant(np.int32(value))


def recurrence() -> tuple[tuple[Node, ...], Node]:
    """The recurrence h = tanh(h w + x[t]) over the rows of x. Results are the last h, and all h x[t]. w is a
    state that does not change.
    """
    k, n, steps = Var("k"), Var("n"), Var("steps")
    h, w, row = vector("h", k), vector("w", k), vector("row", k)
    after = std.tanh(std.add(std.mul(h, w), row))
    body = Function("body", (h, w, row), make_tuple([after, w, std.mul(after, row)]))
    start, weights = vector("start", n), vector("weights", n)
    rows = param("rows", tensor_type((steps, n), "float32"))
    made = std.scan(std.relu(start), weights, rows, num_state=2, body=body)
    return (start, weights, rows), made


def doubled(value: Node, count: Node, limit: int) -> Node:
    """A while loop that doubles a value while the count is below the limit, with an `if_` in each
    iteration.
    """
    m, p, q = Var("m"), Var("p"), Var("q")
    i, x, y, z = param("i", tensor_type((), "int32")), vector("x", m), vector("y", p), vector("z", q)
    cond = Function("cond", (i, x), std.less(i, number(limit)))
    twice = Function("twice", (y,), std.add(y, y))
    same = Function("same", (z,), z)
    odd = std.equal(std.mod(i, number(2)), number(1))
    chosen = std.if_(odd, x, then_branch=twice, else_branch=same)
    body = Function("body", (i, x), make_tuple([std.add(i, number(1)), chosen]))
    return std.while_(count, value, cond=cond, body=body)


def scan_and_loop() -> IRModule:
    """A scan, and a loop with branches, over vectors of any size and with any number of iterations."""
    params, scanned = recurrence()
    count = param("count", tensor_type((), "int32"))
    looped = doubled(get_item(scanned, 0), count, 5)
    results = [get_item(scanned, 0), get_item(scanned, 2), get_item(looped, 0), get_item(looped, 1)]
    return IRModule({"main": Function("main", (*params, count), make_tuple(results))})


DTYPES = ("float32", "int32", "float16", "bool", "int8", "float64")
TOLERANCE = {"float16": (1e-2, 1e-3)}


class RandomControl:
    """Random nested branches and loops over various shapes and dtypes, from one seed.

    With `stacking` there are loops that stack results and have a data-dependent number of iterations.
    """

    def __init__(self, seed: int, *, stacking: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.stacking = stacking

    def choose(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def unary(self, x: Node) -> Node:
        if x.dtype.is_bool:
            return std.logical_not(x)
        one = constant(np.ones((), x.dtype.numpy))
        return self.choose([std.neg(x), std.add(x, one), std.relu(x), x])

    def like(self, values: Sequence[Node], template: Node) -> Node:
        """A value of the type of `template`, computed from some of the values."""
        same = [v for v in values if v.type == template.type]
        a, b = self.choose(same), self.choose(same)
        if template.dtype.is_bool:
            return self.choose([a, std.logical_xor(a, self.unary(b))])
        made = [a, self.unary(a), std.maximum(a, b), std.minimum(self.unary(a), b)]
        return self.choose([*made, std.flip(a, axes=(1,))] if len(a.shape) == 2 else made)

    def body(self, values: Sequence[Node], templates: Sequence[Node], depth: int) -> list[Node]:
        values = list(values)
        if depth and self.rng.random() < 0.6:
            values += self.control(values, depth - 1)
        return [self.like(values, each) for each in templates]

    def control(self, values: Sequence[Node], depth: int) -> list[Node]:
        """The results of a branch or loop over some of the values."""
        picked = [self.choose(values) for _ in range(self.rng.integers(1, 4))]
        own = [param(f"a{i}", x.type) for i, x in enumerate(picked)]
        other = [param(f"b{i}", x.type) for i, x in enumerate(picked)]
        rows = [x for x in values if len(x.shape) == 2]
        kinds = ["branch", "while", *(["scan"] if rows else []), *(["loop"] * 3 if self.stacking else [])]
        kind = self.choose(kinds)
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
        if kind in ("while", "loop"):
            i, j = (param(name, tensor_type((), "int32")) for name in "ij")
            limit = constant(np.int32(self.rng.integers(0, 5)))
            after = [std.add(i, constant(np.int32(1))), *inner]
            cond = Function("cond", (j, *other), std.less(j, limit))
            start = (constant(np.int32(0)), *picked)
            if kind == "while":
                body = Function("body", (i, *own), make_tuple(after))
                made = std.while_(*start, cond=cond, body=body)
                return [get_item(made, i + 1) for i in range(len(picked))]
            row = self.like(own, self.choose(own))
            body = Function("body", (i, *own), make_tuple([*after, row]))
            maximum = self.choose([None, 3, 2**63 - 1])
            made = std.loop(*start, iterations=Var("n"), max_iterations=maximum, cond=cond, body=body)
            stacked = std.cast(get_item(made, len(start)), to="float32")
            total = std.reduce_sum(stacked, axes=(0,))
            return [*(get_item(made, i + 1) for i in range(len(picked))), total]
        table = self.choose(rows)
        row = param("row", tensor_type(table.shape[1:], table.dtype))
        results = make_tuple([*inner, self.like([row, *own], row)])
        body = Function("body", (*own, row), results)
        made = std.scan(*picked, table, num_state=len(picked), body=body)
        return [get_item(made, i) for i in range(len(picked) + 1)]

    def module(self) -> IRModule:
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

    def arrays(self, module: IRModule, rows: int, columns: int) -> Iterator[Array]:
        sizes = {"m": rows, "n": columns}
        for own in module["main"].params:
            shape = [sizes[d.name] if isinstance(d, Var) else d for d in own.shape]
            drawn = self.rng.normal(size=shape) * 3
            yield np.asarray(drawn > 0) if own.dtype.is_bool else np.asarray(drawn).astype(own.dtype.numpy)


def check_random_control(seed: int, target: str, *, stacking: bool = False) -> None:
    """Compare the target with the reference on a random program, for several sizes if dims are symbolic."""
    random = RandomControl(seed, stacking=stacking)
    module = random.module()
    want, exe = driver.compile(module, "reference"), driver.compile(module, target, cache=False)
    assert stacking or exe.program is None
    sizes = [(3, 5), (1, 1), (2, 17)] if "m" in str(exe.inputs[0]) else [(3, 5)]
    for rows, columns in sizes:
        arrays = list(random.arrays(module, rows, columns))
        expected, found = want(*arrays), exe(*arrays)
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for a, b in pairs:
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            rtol, atol = TOLERANCE.get(a.dtype.name, (1e-4, 1e-5))
            wide = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol, atol, err_msg=f"seed {seed}")


__all__ = ["RandomControl", "check_random_control", "doubled", "number", "scan_and_loop", "vector"]
