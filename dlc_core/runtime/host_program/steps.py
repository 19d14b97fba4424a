"""Host graphs as lists of steps. The lists are prepared once, so that a loop iteration costs little more than
its segments.

Inputs are checked on entry. Between steps, shapes and dtypes are those that inference proved. Conditions on
the function's dims are checked first, those on data-dependent dims after the step that computes them. A
control-flow op runs by its reference, with callables that run the steps of its bodies. Functions that are
called by name, such as recursive ones, have steps of their own.

If segments run on devices with their own memory, values are `ResidentValue`, and the host fetches its
operands. Asynchronous launches start as soon as their inputs exist, before steps that must wait for results.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlc_core.cancel import checkpoint
from dlc_core.diag import ArtifactError, DlcError, UnsupportedError
from dlc_core.graph.data_dims import data_dims
from dlc_core.graph.dims import CONDITIONS, dims_required_by
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
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.plan import without_plan
from dlc_core.ir.types import TensorType, TupleType, Type, symbols_of
from dlc_core.op.declare import OpDecl, fresh_dims
from dlc_core.op.depth import nested_call
from dlc_core.op.reference import apply, evaluate, evaluate_dim, solve_formula
from dlc_core.runtime.host_program.nodes import FUNCTIONS
from dlc_core.runtime.host_program.overlap import (
    Running,
    end_all,
    launches_beside,
    run_beside,
    tuples_last,
)
from dlc_core.runtime.host_program.resident import to_host, to_resident

Run = Callable[[str, list[Any], int], list[Any]]
"""A function that runs a segment: (name, arrays, threads) -> results."""

TUPLE_OPS = (GET, TUPLE)
FORWARDING_OPS = ("if_", "while_")
"""Control-flow ops whose reference only passes values on, and reads conditions by `item`."""
STACKING_OPS = ("scan", "loop")
"""Control-flow ops whose reference only passes the state on: the first `num_state` (or all) arguments, and as
many results of the body. The reference slices and stacks the other values, so these must be arrays.
"""

Symbols = dict[Var, int]
Step = Callable[[list[Any], Symbols, int], Any]
"""A function (slots, known dims, threads) -> the value of one node."""
Watch = Callable[[Node, Step], Step]
"""A function that replaces the step of a node by another one, such as one that measures it."""


class _Pending:
    """The devices whose unfinished work values depend on, while steps are ordered."""

    def __init__(self, devices: Mapping[str, str]) -> None:
        self._devices = devices
        self._started: dict[str, int] = {}
        self._synced: dict[str, int] = {}
        self._launches: dict[Node, dict[str, int]] = {}
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
            for device, number in self._launches.get(arg, {}).items()
            if device != own and number > self._synced.get(device, 0)
        }

    def done(self, n: Node) -> None:
        """Record that a node has been ordered."""
        if n.op in TUPLE_OPS:
            launches: dict[str, int] = {}
            for arg in n.args:
                launches |= self._launches.get(arg, {})
            self._launches[n] = launches
            return
        for device in self.pending(n):
            self._synced[device] = self._started[device]
        own = self.device(n)
        if own is not None:
            self._started[own] = self._started.get(own, 0) + 1
            self._launches[n] = {own: self._started[own]}


def launches_first(order: Sequence[Node], devices: Mapping[str, str]) -> list[Node]:
    """The nodes of a host program in an order that lets devices and the host work at the same time.

    Among the nodes whose inputs exist, the next one is the first launch that does not wait for another
    device, else the first other node that does not wait, else the first node. Host computations with symbolic
    dims keep their order, because they may determine these dims.
    """
    position = {n: i for i, n in enumerate(order)}
    users: dict[Node, list[Node]] = {n: [] for n in order}
    missing: dict[Node, int] = {}
    for n in order:
        operands = [a for a in dict.fromkeys(n.args) if a in position]
        missing[n] = len(operands)
        for arg in operands:
            users[arg].append(n)
    in_order = [n for n in reversed(order) if n.op not in (*TUPLE_OPS, CALL_PRIM) and dims_required_by(n)]
    fixed = set(in_order)
    ready = [n for n in order if not missing[n]]
    work = _Pending(devices)
    ordered: list[Node] = []

    def rank(n: Node) -> tuple[int, int]:
        if n.op in TUPLE_OPS:
            return 0, position[n]
        if work.pending(n):
            return 3, position[n]
        return (1 if work.device(n) is not None else 2), position[n]

    while ready:
        n = min((n for n in ready if n not in fixed or n is in_order[-1]), key=rank)
        ready.remove(n)
        if n in fixed:
            in_order.pop()
        work.done(n)
        ordered.append(n)
        for user in users[n]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return ordered


class Functions:
    """The functions that a host program calls by name, and the steps of those that have been called."""

    def __init__(self, entry: Function) -> None:
        self._functions: dict[str, Function] = {f.name: f for f in entry.attrs.get(FUNCTIONS, ())}
        self.steps: dict[str, Steps] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]


class Steps:
    """A callable function: `steps(arrays, threads)` returns its result, a tuple if there are several.

    `devices` names the device of each segment that runs on a device with its own memory. With it, results are
    resident values, and so are the arguments and results of `run`. Raises ArtifactError if the function calls
    a segment that is not among `segments`.
    """

    def __init__(
        self,
        function: Function,
        run: Run,
        segments: Container[str],
        devices: Mapping[str, str] | None = None,
        functions: Functions | None = None,
        watch: Watch | None = None,
        lanes: Mapping[str, str] | None = None,
        serial: Callable[[], bool] | None = None,
    ) -> None:
        """`watch` may replace the step of a node that the host computes. It is given arrays. `lanes` names
        the device of each segment that may run in another thread, at the same time as later steps; none does
        in calls for which `serial` holds.
        """
        self._run = run
        self._watch = watch
        self._segments = segments
        self._functions = Functions(function) if functions is None else functions
        self._devices = devices
        self._lanes = lanes or {}
        self._serial = serial
        self._template: list[Any] = []
        self._slots: dict[Node, int] = {}
        self._params = [p.tensor_type.shape for p in function.params]
        self._param_formulas = [
            (position, axis, dim)
            for position, shape in enumerate(self._params)
            for axis, dim in enumerate(shape)
            if isinstance(dim, Expr) and not isinstance(dim, Var)
        ]
        # The caller has checked all conditions that include host-computed dims.
        host_computed = {*data_dims(function)}
        called = host_computed.union(v for p in function.params for v in p.tensor_type.symbols())
        conditions = [
            c
            for c in conditions_of(function.attrs.get(CONDITIONS, ()))
            if host_computed.isdisjoint(c.dims) or not called.issuperset(c.dims)
        ]
        for p in function.params:
            self._slot(p, None)
        order = [n for n in post_order(function.body) if n not in self._slots]
        for n in order:
            value = n.attrs["value"].data if n.op is CONST else None
            self._slot(n, value if devices is None or value is None else to_resident(value))
        computed = [n for n in order if n.op is not CONST]
        # All other dims are known before the first step: those of params, and of the function that contains a
        # body.
        unknown = {var for n in computed for var in _new_dims(n)}
        self._conditions = [c for c in conditions if unknown.isdisjoint(c.dims)]
        deferred = [c for c in conditions if not unknown.isdisjoint(c.dims)]
        if devices is not None:
            computed = launches_first(computed, devices)
        beside: dict[Node, int] = {}
        if lanes:
            order = tuples_last(launches_first(computed, {**(devices or {}), **lanes}))
            found = launches_beside(order, lanes, self._functions)
            beside = {n: needed for n, needed in found.items() if unknown.isdisjoint(_new_dims(n))}
            computed = order if beside else computed
        last = {arg: i for i, n in enumerate(computed) for arg in n.args}
        for n, needed in beside.items():  # its arguments live until it has ended
            last.update((arg, max(last[arg], needed)) for arg in n.args)
        last.pop(function.body, None)
        self.order: list[tuple[Node, list[Node]]] = []
        """The nodes in the order of execution, each with the arguments that no later node uses."""
        self.bodies: dict[Node, list[Steps]] = {}
        """The steps of the bodies of control flow."""
        self._steps: list[tuple[Step, int, tuple[int, ...], Node]] = []
        dying: dict[int, list[Node]] = {}
        for arg in dict.fromkeys(a for n in computed for a in n.args if a.op is not CONST):
            dying.setdefault(last.get(arg, -1), []).append(arg)
        self._joins: dict[int, list[int]] = {}
        """By the index of a step, the slots of launches that it waits for."""
        for n, needed in beside.items():
            self._joins.setdefault(needed, []).append(self._slots[n])
        for i, n in enumerate(computed):
            dead = dying.get(i, [])
            slots = [self._slots[a] for a in n.args]
            step = self._step(n, slots) if devices is None else self._resident_step(n, slots)
            computed_here = _dim_sources(n.type, [v for v in _new_dims(n) if v in unknown])
            if computed_here:
                unknown.difference_update(var for var, _, _ in computed_here)
                ready = [c for c in deferred if unknown.isdisjoint(c.dims)]
                deferred = [c for c in deferred if c not in ready]
                step = _checking(step, computed_here, ready, isinstance(n.type, TupleType))
            if beside and n.op is CALL_PRIM and n.attrs["symbol"] in self._lanes:
                step = _in_lane(step, self._lanes[n.attrs["symbol"]], n in beside)
            self._steps.append((step, self._slots[n], tuple(self._slots[a] for a in dead), n))
            self.order.append((n, dead))
        self._result = self._slots[function.body]
        self._node_at = {self._slots[n]: n for n in beside}

    def __call__(self, arrays: Sequence[Any], threads: int, outer: Mapping[Var, int] | None = None) -> Any:
        """Run the steps. For a body of control flow, `outer` has the dims of the function that
        contains it.
        """
        values = list(self._template)
        values[: len(arrays)] = arrays if self._devices is None else map(to_resident, arrays)
        dims: Symbols = dict(outer or {})
        for shape, array in zip(self._params, arrays):
            for dim, size in zip(shape, array.shape):
                if isinstance(dim, Var):
                    dims[dim] = size
        for position, axis, formula in self._param_formulas:
            solve_formula(formula, arrays[position].shape[axis], dims)
        check_conditions(self._conditions, dims, evaluate_dim)
        if self._joins:
            self._run_beside(values, dims, threads)
            return values[self._result]
        for step, slot, dead, n in self._steps:
            checkpoint()
            try:
                values[slot] = step(values, dims, threads)
            except DlcError as error:
                raise error.at(n.spans) from error.__cause__
            for index in dead:
                values[index] = None
        return values[self._result]

    def _run_beside(self, values: list[Any], dims: Symbols, threads: int) -> None:
        """Run the steps, some of which run in other threads. All have ended when this returns or raises."""
        values.append(None if self._serial and self._serial() else {})
        try:
            for i, (step, slot, dead, n) in enumerate(self._steps):
                self._join(i, values)
                checkpoint()
                try:
                    values[slot] = step(values, dims, threads)
                except DlcError as error:
                    raise error.at(n.spans) from error.__cause__
                for index in dead:
                    values[index] = None
            self._join(len(self._steps), values)
        except BaseException:
            end_all(values)
            raise

    def _join(self, step: int, values: list[Any]) -> None:
        """Wait for the launches that a step needs."""
        for slot in self._joins.get(step, ()):
            running = values[slot]
            try:
                if isinstance(running, Running):
                    values[slot] = running.result()
            except DlcError as error:
                raise error.at(self._node_at[slot].spans) from error.__cause__

    def _slot(self, n: Node, value: Any) -> None:
        self._slots[n] = len(self._template)
        self._template.append(value)

    def _resident_step(self, n: Node, slots: Sequence[int]) -> Step:
        """A step on resident values. Nodes that run on the host get arrays and return arrays."""
        if n.op in (*TUPLE_OPS, CALL_PRIM) or n.op.name in (*FORWARDING_OPS, *STACKING_OPS):
            return self._step(n, slots)
        inner = self._step(n, range(len(slots)))
        return lambda values, dims, threads: to_resident(
            inner([to_host(values[i]) for i in slots], dims, threads)
        )

    def _step(self, n: Node, slots: Sequence[int]) -> Step:
        if n.op is GET:
            source, index = slots[0], n.attrs["index"]
            return lambda values, dims, threads: values[source][index]
        if n.op is TUPLE:
            return lambda values, dims, threads: tuple([values[i] for i in slots])
        if n.op is CALL_PRIM:
            return self._segment(n, slots)
        if n.op is PARAM or not isinstance(n.op, OpDecl):
            if functions_of(n):
                group = n.attrs["function"]
                return self._watched(
                    n, lambda values, dims, threads: evaluate(group, [values[i] for i in slots], symbols=dims)
                )
            raise UnsupportedError(f"a host program cannot have the node {n!r}", spans=n.spans)
        if functions_of(n):
            return self._control(n, n.op, slots)
        decl, attrs, type_ = n.op, n.attrs, n.type
        return self._watched(
            n, lambda values, dims, threads: apply(decl, [values[i] for i in slots], attrs, type_, dims)
        )

    def _watched(self, n: Node, step: Step) -> Step:
        return step if self._watch is None else self._watch(n, step)

    def _segment(self, n: Node, slots: Sequence[int]) -> Step:
        run, symbol = self._run, n.attrs["symbol"]
        if symbol in self._functions:
            return self._call(symbol, slots)
        if symbol not in self._segments:
            raise ArtifactError(f"the host program calls {symbol!r}, which does not exist", spans=n.spans)
        if isinstance(n.type, TensorType):
            return lambda values, dims, threads: run(symbol, [values[i] for i in slots], threads)[0]
        return lambda values, dims, threads: tuple(run(symbol, [values[i] for i in slots], threads))

    def _call(self, symbol: str, slots: Sequence[int]) -> Step:
        """A call of a function by name. Its steps are made at the first call, because it may be recursive."""
        made, functions = self._functions, self._functions.steps

        def step(values: list[Any], dims: Symbols, threads: int) -> Any:
            if symbol not in functions:
                functions[symbol] = self._inner(made[symbol])
            return nested_call(symbol, lambda: functions[symbol]([values[i] for i in slots], threads))

        return step

    def _inner(self, function: Function) -> Steps:
        """The steps of a body, or of a function that is called by name."""
        shared = (self._run, self._segments, self._devices, self._functions, self._watch)
        return Steps(function, *shared, self._lanes, self._serial)

    def _control(self, n: Node, decl: OpDecl, slots: Sequence[int]) -> Step:
        bodies = {k: self._inner(v) for k, v in n.attrs.items() if isinstance(v, Function)}
        self.bodies[n] = list(bodies.values())
        plain = {k: v for k, v in without_plan(n.attrs).items() if k not in bodies and k not in decl.fresh}
        symbolic = {k for k, v in plain.items() if isinstance(v, Expr)}
        sources = _dim_sources(n.type, fresh_dims(n))
        reference = decl.reference
        assert reference is not None
        count: int | None = None if decl.name in FORWARDING_OPS else plain.get("num_state", len(slots))
        resident = self._devices is not None and decl.name in (*FORWARDING_OPS, *STACKING_OPS)

        def step(values: list[Any], dims: Symbols, threads: int) -> Any:
            on_values = partial(_on_resident, count) if resident else _on_arrays
            callables = {
                name: partial(on_values, partial(body, threads=threads, outer=dims))
                for name, body in bodies.items()
            }
            given = [values[i] for i in slots]
            if resident:
                given = _to_host_after(count, given)
            attrs = {k: evaluate_dim(v, dims) if k in symbolic else v for k, v in plain.items()}
            found = reference(*given, **attrs, **callables)
            results = found if isinstance(found, tuple) else (found,)
            dims.update((var, results[field].shape[axis]) for var, field, axis in sources)
            return to_resident(found) if resident else found

        return step


def _in_lane(step: Step, lane: str, is_beside: bool) -> Step:
    """A launch after the earlier ones of its device that run in other threads; with `is_beside` it runs in
    another thread itself, and its value is `Running`. The last of `values` has the last such launch of each
    device; it is None in a serial call.
    """

    def launch(values: list[Any], dims: Symbols, threads: int) -> Any:
        latest: dict[str, Running] | None = values[-1]
        if latest is None:
            return step(values, dims, threads)
        before = latest.get(lane)
        if is_beside:
            latest[lane] = run_beside(lambda: step(values, dims, threads), before)
            return latest[lane]
        if before is not None:
            before.wait()
        return step(values, dims, threads)

    return launch


def _checking(
    step: Step, sources: Sequence[tuple[Var, int, int]], conditions: Sequence[Condition], is_tuple: bool
) -> Step:
    """A step whose results determine dims, followed by the checks of the conditions on these."""

    def checked(values: list[Any], dims: Symbols, threads: int) -> Any:
        found = step(values, dims, threads)
        results = found if is_tuple else (found,)
        dims.update((var, results[field].shape[axis]) for var, field, axis in sources)
        check_conditions(conditions, dims, evaluate_dim)
        return found

    return checked


def _new_dims(n: Node) -> list[Var]:
    """The dims that become known when a node has run."""
    if n.op not in (CALL, CALL_PRIM):
        return fresh_dims(n)
    given = {var for arg in n.args for var in symbols_of(arg.type)}
    return [var for var in symbols_of(n.type) if var not in given]


def _dim_sources(type_: Type, unknown: Sequence[Var]) -> list[tuple[Var, int, int]]:
    """The unknown dims of a type, each with the index of a result and an axis that has its size."""
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    shapes = [field.shape for field in fields if isinstance(field, TensorType)]
    sources = {d: (k, axis) for k, shape in enumerate(shapes) for axis, d in enumerate(shape) if d in unknown}
    return [(var, *source) for var, source in sources.items() if isinstance(var, Var)]


def _on_arrays(body: Callable[[Sequence[Any]], Any], *arrays: Any) -> Any:
    return to_host(body([a if isinstance(a, np.ndarray) else np.asarray(a) for a in arrays]))


def _on_resident(count: int | None, body: Callable[[Sequence[Any]], Any], *values: Any) -> Any:
    """Run a body on resident values, and convert its results after the first `count` to host arrays; none if
    `count` is None.
    """
    found = body(values)
    if isinstance(found, tuple):
        return tuple(_to_host_after(count, found))
    (one,) = _to_host_after(count, [found])
    return one


def _to_host_after(count: int | None, values: Sequence[Any]) -> list[Any]:
    """Convert the values after the first `count` to host arrays; none if `count` is None."""
    return [v if count is None or i < count else to_host(v) for i, v in enumerate(values)]


__all__ = ["Run", "Step", "Steps", "Symbols", "Watch"]
