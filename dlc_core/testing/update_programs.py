"""Random programs that update their inputs in place: chains of scatters, pointwise ops, views and swaps."""

from __future__ import annotations

import numpy as np

from dlc_core.graph.node import Function, Node, make_tuple, param
from dlc_core.graph.updates import NEW_VALUES
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

SHAPE = (4, 3)
"""The shape of the states."""
COUNT = 2
"""The number of slices of an update."""


def update_program(seed: int, states: int = 3, steps: int = 7) -> IRModule:
    """A module with inputs "s0", "s1", … that outputs are the new values of, and the inputs "at" and "u".

    A new value may be another state, the same as that of another state, or one that is also an output.
    """
    rng = np.random.default_rng(seed)
    own = [param(f"s{i}", tensor_type(SHAPE)) for i in range(states)]
    at, more = param("at", tensor_type((COUNT,), "int64")), param("u", tensor_type((COUNT, SHAPE[1])))
    pool: list[Node] = list(own)

    def pick() -> Node:
        # States and late values more often than others: they make chains, and reads of old values.
        return pool[int(rng.integers(len(pool)))] if rng.random() < 0.6 else pool[-1]

    def slices() -> Node:
        if rng.random() < 0.5:
            return more
        begin = int(rng.integers(SHAPE[0] - COUNT + 1))
        return std.slice(pick(), begins=(begin,), ends=(begin + COUNT,), strides=(1,), axes=(0,))

    def step() -> Node:
        kind = int(rng.integers(7))
        if kind <= 1:
            return std.scatter_slices(pick(), at, slices(), axis=0, reduction=("none", "add")[kind])
        if kind == 2:
            return std.scatter_nd(pick(), std.unsqueeze(at, axes=(1,)), slices(), reduction="none")
        if kind == 3:
            wide = std.broadcast_to(std.unsqueeze(at, axes=(1,)), shape=(COUNT, SHAPE[1]))
            return std.scatter_elements(pick(), wide, slices(), axis=0, reduction="max")
        if kind == 4:
            return std.add(pick(), pick())
        if kind == 5:
            return std.flip(pick(), axes=(0,))
        turned = std.reshape(pick(), shape=SHAPE[::-1])
        return std.reshape(std.relu(turned) if rng.random() < 0.5 else turned, shape=SHAPE)

    while len(pool) < states + steps:
        pool.append(step())
    new = [pick() for _ in own]
    others = [std.reduce_sum(pick(), axes=(0,)), pick()]
    results = [*new, *others] if rng.random() < 0.5 else [*others, *new]
    first = results.index(new[0]) if results[0] is new[0] else len(others)
    attrs = {
        "inputs": (*(f"s{i}" for i in range(states)), "at", "u"),
        NEW_VALUES: tuple((i, first + i) for i in range(states)),
    }
    return IRModule({"main": Function("main", (*own, at, more), make_tuple(results)).with_attrs(**attrs)})


def update_inputs(seed: int, states: int = 3) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """Inputs of such a program: small integers, so that sums are exact."""
    rng = np.random.default_rng(seed)
    made = [rng.integers(-8, 8, SHAPE).astype(np.float32) for _ in range(states)]
    at = rng.choice(SHAPE[0], COUNT, replace=rng.random() < 0.3)
    return [*made, at.astype(np.int64), rng.integers(-8, 8, (COUNT, SHAPE[1])).astype(np.float32)]


__all__ = ["update_inputs", "update_program"]
