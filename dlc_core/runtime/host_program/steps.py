"""Host graphs as lists of steps. The lists are prepared once, so that a loop iteration costs little more than
its segments.

Inputs are checked on entry. Between steps, shapes and dtypes are those that inference proved. Conditions on
the function's dims are checked first, those on data-dependent dims after the step that computes them. A
control-flow op runs by its reference, with callables that run the steps of its bodies.

If segments run on devices with their own memory, values are `ResidentValue`, and the host fetches its
operands. Asynchronous launches start as soon as their inputs exist, before steps that must wait for results.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlc_core.arith import solve_dim
from dlc_core.diag import ArtifactError, DlcError, UnsupportedError
from dlc_core.graph.data_dims import data_dims
from dlc_core.graph.dims import NEEDS, dims_required_by
from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
    CONST,
    GET,
    PARAM,
    TUPLE,
    Function,
    Node,
    functions_of,
    post_order,
)
from dlc_core.ir.conditions import Condition, check_conditions, conditions_of
from dlc_core.ir.expr import Expr, Var, const, free_vars, substitute
from dlc_core.ir.plan import without_plan
from dlc_core.ir.types import TensorType, TupleType, Type, symbols_of
from dlc_core.op.declare import OpDecl, fresh_dims
from dlc_core.op.reference import apply, evaluate, evaluate_dim
from dlc_core.runtime.host_program.resident import fetch, hold

Run = Callable[[str, list[Any], int], list[Any]]
"""A function that runs a segment: (name, arrays, threads) -> results."""

MOVING = (GET, TUPLE)
PASSING = ("if_", "while_")
"""Control-flow ops whose reference only passes values on, and reads conditions by `item`."""
STACKING = ("scan", "loop")
"""Control-flow ops whose reference only passes the state on: the first `num_state` (or all) arguments, and as
many results of the body. The reference slices and stacks the other values, so these must be arrays.
"""

Symbols = dict[Var, int]
Step = Callable[[list[Any], Symbols, int], Any]
"""A function (slots, known dims, threads) -> the value of one node."""


class _Waiting:
    """While steps are ordered: the devices whose unfinished work each value may depend on."""

    def __init__(self, devices: Mapping[str, str]) -> None:
        self._devices = devices
        self._started: dict[str, int] = {}
        self._synced: dict[str, int] = {}
        self._needs: dict[Node, dict[str, int]] = {}
        """For each value the index of the last launch on each device that it depends on."""

    def device(self, n: Node) -> str | None:
        """The device of a node, if it is a launch; else None."""
        return self._devices.get(n.attrs["symbol"]) if n.op is CALL_PRIM else None

    def pending(self, n: Node) -> set[str]:
        """The devices that a node would have to wait for."""
        own = self.device(n)
        return {
            device
            for arg in n.args
            for device, number in self._needs.get(arg, {}).items()
            if device != own and number > self._synced.get(device, 0)
        }

    def done(self, n: Node) -> None:
        """Record that a node has been placed."""
        if n.op in MOVING:
            needs: dict[str, int] = {}
            for arg in n.args:
                needs |= self._needs.get(arg, {})
            self._needs[n] = needs
            return
        for device in self.pending(n):
            self._synced[device] = self._started[device]
        own = self.device(n)
        if own is not None:
            self._started[own] = self._started.get(own, 0) + 1
            self._needs[n] = {own: self._started[own]}


def launches_first(order: Sequence[Node], devices: Mapping[str, str]) -> list[Node]:
    """The nodes of a host program in an order that lets devices and the host work at the same time.

    Among the nodes whose inputs exist, the next one is the first launch that does not wait for another
    device, else the first other node that does not wait, else the first node. Host computations with symbolic
    dims keep their order, because they may determine these dims.
    """
    place = {n: i for i, n in enumerate(order)}
    users: dict[Node, list[Node]] = {n: [] for n in order}
    missing: dict[Node, int] = {}
    for n in order:
        needed = [a for a in dict.fromkeys(n.args) if a in place]
        missing[n] = len(needed)
        for arg in needed:
            users[arg].append(n)
    anchored = [n for n in reversed(order) if n.op not in (*MOVING, CALL_PRIM) and dims_required_by(n)]
    fixed = set(anchored)
    ready = [n for n in order if not missing[n]]
    waiting = _Waiting(devices)
    done: list[Node] = []

    def rank(n: Node) -> tuple[int, int]:
        if n.op in MOVING:
            return 0, place[n]
        if waiting.pending(n):
            return 3, place[n]
        return (1 if waiting.device(n) is not None else 2), place[n]

    while ready:
        n = min((n for n in ready if n not in fixed or n is anchored[-1]), key=rank)
        ready.remove(n)
        if n in fixed:
            anchored.pop()
        waiting.done(n)
        done.append(n)
        for user in users[n]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return done


class Steps:
    """A callable function: `steps(arrays, threads)` returns its result, a tuple for several.

    `devices` names the device of each segment that runs on a device with its own memory. With it, results are
    held values, and so are the arguments and results of `run`. Raises ArtifactError if the function calls a
    segment that is not among `segments`.
    """

    def __init__(
        self,
        function: Function,
        run: Run,
        segments: Container[str],
        devices: Mapping[str, str] | None = None,
    ) -> None:
        self._run = run
        self._segments = segments
        self._devices = devices
        self._template: list[Any] = []
        self._slots: dict[Node, int] = {}
        self._params = [p.tensor_type.shape for p in function.params]
        self._formulas = [
            (place, axis, dim)
            for place, shape in enumerate(self._params)
            for axis, dim in enumerate(shape)
            if isinstance(dim, Expr) and not isinstance(dim, Var)
        ]
        # The caller has checked all conditions that include host-computed dims.
        host_computed = {*data_dims(function)}
        called = host_computed.union(v for p in function.params for v in p.tensor_type.symbols())
        needs = [
            c
            for c in conditions_of(function.attrs.get(NEEDS, ()))
            if host_computed.isdisjoint(c.dims) or not called.issuperset(c.dims)
        ]
        for p in function.params:
            self._slot(p, None)
        order = [n for n in post_order(function.body) if n not in self._slots]
        for n in order:
            value = n.attrs["value"].data if n.op is CONST else None
            self._slot(n, value if devices is None or value is None else hold(value))
        computed = [n for n in order if n.op is not CONST]
        # All other dims are known before the first step: those of params, and of the function that contains a
        # body.
        left = {var for n in computed for var in _new_dims(n)}
        self._needs = [c for c in needs if left.isdisjoint(c.dims)]
        later = [c for c in needs if not left.isdisjoint(c.dims)]
        if devices is not None:
            computed = launches_first(computed, devices)
        last = {arg: i for i, n in enumerate(computed) for arg in n.args}
        last.pop(function.body, None)
        self.order: list[tuple[Node, list[Node]]] = []
        """The nodes in the order of execution, each with the arguments that no later node uses."""
        self.bodies: dict[Node, list[Steps]] = {}
        """The steps of the bodies of control flow."""
        self._steps: list[tuple[Step, int, tuple[int, ...], Node]] = []
        for i, n in enumerate(computed):
            dead = [a for a in dict.fromkeys(n.args) if last.get(a) == i and a.op is not CONST]
            at = [self._slots[a] for a in n.args]
            step = self._step(n, at) if devices is None else self._on_held(n, at)
            computed_here = _determined(n.type, [v for v in _new_dims(n) if v in left])
            if computed_here:
                left.difference_update(var for var, _, _ in computed_here)
                ready = [c for c in later if left.isdisjoint(c.dims)]
                later = [c for c in later if c not in ready]
                step = _checking(step, computed_here, ready, isinstance(n.type, TupleType))
            self._steps.append((step, self._slots[n], tuple(self._slots[a] for a in dead), n))
            self.order.append((n, dead))
        self._result = self._slots[function.body]

    def __call__(self, arrays: Sequence[Any], threads: int, around: Mapping[Var, int] | None = None) -> Any:
        """Run the steps. For a body of control flow, `around` has the dims of the function that
        contains it.
        """
        values = list(self._template)
        values[: len(arrays)] = arrays if self._devices is None else map(hold, arrays)
        dims: Symbols = dict(around or {})
        for shape, array in zip(self._params, arrays):
            for dim, size in zip(shape, array.shape):
                if isinstance(dim, Var):
                    dims[dim] = size
        for place, axis, formula in self._formulas:
            _solve(formula, arrays[place].shape[axis], dims)
        check_conditions(self._needs, dims, evaluate_dim)
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

    def _on_held(self, n: Node, at: Sequence[int]) -> Step:
        """A step on held values. Nodes that run on the host get arrays and return arrays."""
        if n.op in (*MOVING, CALL_PRIM) or n.op.name in (*PASSING, *STACKING):
            return self._step(n, at)
        inner = self._step(n, range(len(at)))
        return lambda values, dims, threads: hold(inner([fetch(values[i]) for i in at], dims, threads))

    def _step(self, n: Node, at: Sequence[int]) -> Step:
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

    def _segment(self, n: Node, at: Sequence[int]) -> Step:
        run, symbol = self._run, n.attrs["symbol"]
        if symbol not in self._segments:
            raise ArtifactError(f"the host program calls {symbol!r}, which does not exist", spans=n.spans)
        if isinstance(n.type, TensorType):
            return lambda values, dims, threads: run(symbol, [values[i] for i in at], threads)[0]
        return lambda values, dims, threads: tuple(run(symbol, [values[i] for i in at], threads))

    def _control(self, n: Node, decl: OpDecl, at: Sequence[int]) -> Step:
        bodies = {
            k: Steps(v, self._run, self._segments, self._devices)
            for k, v in n.attrs.items()
            if isinstance(v, Function)
        }
        self.bodies[n] = list(bodies.values())
        plain = {k: v for k, v in without_plan(n.attrs).items() if k not in bodies and k not in decl.fresh}
        symbolic = {k for k, v in plain.items() if isinstance(v, Expr)}
        determined = _determined(n.type, fresh_dims(n))
        reference = decl.reference
        assert reference is not None
        count: int | None = None if decl.name in PASSING else plain.get("num_state", len(at))
        held = self._devices is not None and decl.name in (*PASSING, *STACKING)

        def step(values: list[Any], dims: Symbols, threads: int) -> Any:
            on_values = partial(_on_held, count) if held else _on_arrays
            callables = {
                name: partial(on_values, partial(body, threads=threads, around=dims))
                for name, body in bodies.items()
            }
            given = _but_first(count, [values[i] for i in at]) if held else [values[i] for i in at]
            attrs = {k: evaluate_dim(v, dims) if k in symbolic else v for k, v in plain.items()}
            found = reference(*given, **attrs, **callables)
            results = found if isinstance(found, tuple) else (found,)
            dims.update((var, results[field].shape[axis]) for var, field, axis in determined)
            return hold(found) if held else found

        return step


def _checking(
    step: Step, determined: Sequence[tuple[Var, int, int]], needs: Sequence[Condition], several: bool
) -> Step:
    """A step whose results determine dims, followed by the checks of the conditions on these."""

    def checked(values: list[Any], dims: Symbols, threads: int) -> Any:
        found = step(values, dims, threads)
        results = found if several else (found,)
        dims.update((var, results[field].shape[axis]) for var, field, axis in determined)
        check_conditions(needs, dims, evaluate_dim)
        return found

    return checked


def _new_dims(n: Node) -> list[Var]:
    """The dims that become known when a node has run."""
    if n.op not in (CALL, CALL_PRIM):
        return fresh_dims(n)
    given = {var for arg in n.args for var in symbols_of(arg.type)}
    return [var for var in symbols_of(n.type) if var not in given]


def _solve(dim: Expr, size: int, dims: Symbols) -> None:
    """Record the one unknown symbol of a dim, if the dim's size determines it."""
    unknown = [var for var in free_vars(dim) if var not in dims]
    if len(unknown) == 1:
        known = {var: const(dims[var]) for var in free_vars(dim) if var in dims}
        solved = solve_dim(substitute(dim, known), size, unknown[0])
        if solved is not None:
            dims[unknown[0]] = solved


def _determined(type_: Type, wanted: Sequence[Var]) -> list[tuple[Var, int, int]]:
    """The positions, by result and axis, at which results determine dims."""
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    shapes = [field.shape for field in fields if isinstance(field, TensorType)]
    places = {d: (k, axis) for k, shape in enumerate(shapes) for axis, d in enumerate(shape) if d in wanted}
    return [(var, *place) for var, place in places.items() if isinstance(var, Var)]


def _on_arrays(body: Callable[[Sequence[Any]], Any], *arrays: Any) -> Any:
    return fetch(body([a if isinstance(a, np.ndarray) else np.asarray(a) for a in arrays]))


def _on_held(count: int | None, body: Callable[[Sequence[Any]], Any], *values: Any) -> Any:
    """Run a body on held values, of which the first `count` stay held; all if `count` is None."""
    found = body(values)
    if isinstance(found, tuple):
        return tuple(_but_first(count, found))
    (one,) = _but_first(count, [found])
    return one


def _but_first(count: int | None, values: Sequence[Any]) -> list[Any]:
    """ResidentValue values; those after the first `count` as arrays."""
    return [v if count is None or i < count else fetch(v) for i, v in enumerate(values)]


__all__ = ["Run", "Steps"]
