"""Host graphs as lists of steps, worked out once: a loop round costs what its segments cost, and little more.

Values are checked where they enter; between steps shapes and dtypes are those that inference proved.  A
control flow op runs by its own reference on callables that run the steps of its bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlc_core.diag import ArtifactError, DlcError, UnsupportedError
from dlc_core.graph.node import CALL_PRIM, CONST, GET, PARAM, TUPLE, Function, Node, functions_of, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import OpDecl
from dlc_core.op.reference import apply, evaluate

Run = Callable[[str, list[Any], int], list[Any]]
"""Runs a segment: its name, arrays, threads."""

Symbols = dict[Var, int]
Step = Callable[[list[Any], Symbols, int], Any]
"""The value of one node from the slots, the known dims and the threads."""


class Steps:
    """A function that can be called: `steps(arrays, threads)` gives its result, a tuple for several."""

    def __init__(self, function: Function, run: Run, segments: Container[str]) -> None:
        """`segments` are the names that `run` knows; ArtifactError where the function calls another."""
        self._run = run
        self._segments = segments
        self._template: list[Any] = []
        self._slots: dict[Node, int] = {}
        self._params = [p.tensor_type.shape for p in function.params]
        for p in function.params:
            self._slot(p, None)
        order = [n for n in post_order(function.body) if n not in self._slots]
        for n in order:
            self._slot(n, n.attrs["value"].data if n.op is CONST else None)
        computed = [n for n in order if n.op is not CONST]
        last = {arg: i for i, n in enumerate(computed) for arg in n.args}
        last.pop(function.body, None)
        self._steps: list[tuple[Step, int, tuple[int, ...], Node]] = []
        for i, n in enumerate(computed):
            dead = tuple(
                self._slots[a] for a in dict.fromkeys(n.args) if last.get(a) == i and a.op is not CONST
            )
            self._steps.append((self._step(n), self._slots[n], dead, n))
        self._result = self._slots[function.body]

    def __call__(self, arrays: Sequence[Any], threads: int) -> Any:
        values = list(self._template)
        values[: len(arrays)] = arrays
        dims: Symbols = {}
        for shape, array in zip(self._params, arrays):
            for dim, size in zip(shape, array.shape):
                if isinstance(dim, Var):
                    dims[dim] = size
        for step, slot, dead, n in self._steps:
            try:
                values[slot] = step(values, dims, threads)
            except DlcError as error:
                raise error.at(n.spans) from error.__cause__
            for index in dead:
                values[index] = None
        return values[self._result]

    def _slot(self, n: Node, value: Any) -> None:
        self._slots[n] = len(self._template)
        self._template.append(value)

    def _step(self, n: Node) -> Step:
        at = [self._slots[a] for a in n.args]
        if n.op is GET:
            source, index = at[0], n.attrs["index"]
            return lambda values, dims, threads: values[source][index]
        if n.op is TUPLE:
            return lambda values, dims, threads: tuple([values[i] for i in at])
        if n.op is CALL_PRIM:
            return self._segment(n, at)
        if n.op is PARAM or not isinstance(n.op, OpDecl):
            if functions_of(n):
                group = n.attrs["function"]
                return lambda values, dims, threads: evaluate(group, [values[i] for i in at], symbols=dims)
            raise UnsupportedError(f"a host program cannot have the node {n!r}", spans=n.spans)
        if functions_of(n):
            return self._control(n, n.op, at)
        decl, attrs, type_ = n.op, n.attrs, n.type
        return lambda values, dims, threads: apply(decl, [values[i] for i in at], attrs, type_, dims)

    def _segment(self, n: Node, at: list[int]) -> Step:
        run, symbol = self._run, n.attrs["symbol"]
        if symbol not in self._segments:
            raise ArtifactError(f"the host program calls {symbol!r}, which is not there", spans=n.spans)
        if isinstance(n.type, TensorType):
            return lambda values, dims, threads: run(symbol, [values[i] for i in at], threads)[0]
        return lambda values, dims, threads: tuple(run(symbol, [values[i] for i in at], threads))

    def _control(self, n: Node, decl: OpDecl, at: list[int]) -> Step:
        bodies = {
            k: Steps(v, self._run, self._segments) for k, v in n.attrs.items() if isinstance(v, Function)
        }
        fresh = {a.name for a in decl.attrs.values() if a.kind == "fresh"}
        plain = {k: v for k, v in n.attrs.items() if k not in bodies and k not in fresh}
        reference = decl.reference
        assert reference is not None

        def step(values: list[Any], dims: Symbols, threads: int) -> Any:
            callables = {name: partial(_on_arrays, body, threads) for name, body in bodies.items()}
            return reference(*[values[i] for i in at], **plain, **callables)

        return step


def _on_arrays(body: Steps, threads: int, *arrays: Any) -> Any:
    return body([a if isinstance(a, np.ndarray) else np.asarray(a) for a in arrays], threads)


__all__ = ["Run", "Steps"]
