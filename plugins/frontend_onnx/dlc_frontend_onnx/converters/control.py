"""If, Loop, Scan.

A branch whose condition is constant is resolved by the importer. Loops with a known number of iterations
become `scan`, or are unrolled if shapes or sequences change between iterations. Loops with a condition become
`while_`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dlc_core.diag import ModelError, UnsupportedError
from dlc_core.graph.node import Node, get_item, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, maximum
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op import std
from dlc_core.op.infer import simplify
from dlc_frontend_onnx.closures import aligned, close
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.ragged import form_of, in_form, paired, rebuilt, tensors_in
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.model import Graph
from dlc_frontend_onnx.sizes import Frame
from dlc_frontend_onnx.symbols import identifier
from dlc_frontend_onnx.values import SequenceValue, Value

MAX_UNROLLED = 1024
"""Limit of iterations of an unrolled loop."""


@converter("If", 1, sequences=True)
def if_(c: Call, cond: Node) -> Sequence[Value]:
    branches = [c.graph("then_branch"), c.graph("else_branch")]
    _check_condition(c, cond)
    known = c.array(cond)
    if known is not None:
        return c.inline(branches[0 if known.reshape(()).item() else 1], ())
    holders = c.scope.session.holders
    given, frames = [], []
    for graph in branches:
        with holders.frame() as frame:
            given.append(_branch(c, graph))
        frames.append(frame)
    if len(given[0]) != len(given[1]) or len(given[0]) < len(c.node.outputs):
        raise c.error(f"the branches return {len(given[0])} and {len(given[1])} values")
    pairs = [paired(c, one, other) for one, other in zip(*given)]
    both = [[node for value in column for node in tensors_in(value)] for column in zip(*pairs)] or [[], []]
    names = [info.name for info, (one, _) in zip(branches[0].outputs, pairs) for _ in tensors_in(one)]
    for index, (one, other) in enumerate(zip(*both)):
        if one.dtype is not other.dtype:
            raise c.error(f"result {index} is {one.type} in one branch and {other.type} in the other")
        if len(one.shape) != len(other.shape):
            raise c.unsupported(
                f"result {index} is {one.type} or {other.type}: its rank depends on the condition",
            )
    # Dims that differ between the branches.
    changing = [
        (index, axis)
        for index, (one, other) in enumerate(zip(*both))
        for axis, (size, or_size) in enumerate(zip(one.shape, other.shape))
        if size != or_size and simplify(size - or_size) != 0
    ]
    captured = _captured(c)
    closed = [
        close(name, (), values, captured, holders, always_tuple=True, frame=frame, branch=True)
        for name, values, frame in zip(("then_branch", "else_branch"), both, frames)
    ]
    (chosen, other), outer = aligned(closed, 0)
    sizes = [Var(identifier(f"{names[index]}_{axis}")) for index, axis in changing]
    positions = [item for position in changing for item in position]
    made = std.if_(cond, *outer, sizes=sizes, changing=positions, then_branch=chosen, else_branch=other)
    fields = iter([get_item(made, index) for index in range(len(both[0]))])
    return [rebuilt(one, fields) for one, _ in pairs]


def _branch(c: Call, graph: Graph) -> Sequence[Value]:
    """Convert a branch. If it contradicts the shapes, it is unsupported, because it may be meant for other
    inputs.
    """
    try:
        return c.inline(graph, ())
    except ModelError as error:
        raise c.unsupported("a branch does not fit the inputs", why=error.what) from error


def _check_condition(c: Call, cond: Node) -> None:
    if not cond.dtype.is_bool or any(isinstance(dim, int) and dim != 1 for dim in cond.shape):
        raise c.error(f"the condition must be one bool, not {cond.type}")


def _tensors(c: Call, values: Sequence[Value], what: str) -> list[Node]:
    if not all(isinstance(value, Node) for value in values):
        raise c.unsupported(f"{what} returns a sequence that depends on data")
    return [value for value in values if isinstance(value, Node)]


def _captured(c: Call) -> list[Node]:
    """The outer tensors that the node's subgraphs use."""
    found: list[Node] = []
    pending: list[Any] = [c.scope.find(name) for name in c.node.captures]
    while pending:
        value = pending.pop()
        if isinstance(value, SequenceValue):
            pending += value.items
        elif isinstance(value, Node):
            found.append(value)
    return found


@converter("Loop", 1, sequences=True)
def loop(
    c: Call, limit: Value | None = None, go: Value | None = None, *state: Value
) -> Sequence[Value | None]:
    body = c.graph("body")
    if len(body.inputs) != len(state) + 2 or len(body.outputs) < len(state) + 1:
        raise c.error(
            f"the body takes {len(body.inputs)} and returns {len(body.outputs)} values,"
            f" {len(state)} of them state"
        )
    iterations = None if limit is None else _trip_count(c, limit)
    started = None if go is None else _constant_condition(c, go)
    if go is not None and started is False:
        iterations = 0
    endless = go is None or started is True
    tensors = [value for value in state if isinstance(value, Node)]
    # Only stacked results need the number of iterations as a dim.
    stacks = any(c.uses_output(position) for position in range(len(state), len(body.outputs) - 1))
    by_trip_count = stacks and limit is not None and iterations not in (0, 1)
    known = endless and iterations is not None and iterations not in (0, 1)
    if len(tensors) == len(state) and (by_trip_count or known):
        count = (
            (lambda: iterations) if known else partial(_dynamic_iterations, c, limit, None if endless else go)
        )
        made = _scanned_loop(c, body, count, tensors)
        if made is not None:
            return made
    if isinstance(iterations, int):
        unrolled = _unrolled(c, body, iterations, state)
        if unrolled is not None:
            return unrolled
    return _while_loop(c, _Body(c, body, state), limit, iterations, go)


def _trip_count(c: Call, limit: Value) -> Dim | None:
    """The trip count if it does not depend on data."""
    if not isinstance(limit, Node) or not limit.dtype.is_int:
        raise c.error("the trip count must be an integer")
    known = c.known(limit)
    if known is None or known.size != 1:
        return None
    found = known.reshape(-1)[0]
    return found if isinstance(found, Expr) else max(int(found), 0)


def _constant_condition(c: Call, cond: Value) -> bool | None:
    if not isinstance(cond, Node):
        raise c.error("the condition must be a tensor")
    _check_condition(c, cond)
    known = c.array(cond)
    return None if known is None else bool(known.reshape(()).item())


def _declared(body: Graph, number: Node) -> Node:
    """The number of an iteration, a vector of one element if the body declares that."""
    shape = body.inputs[0].shape
    return number if shape is None or len(shape) != 1 else std.reshape(number, shape=(1,))


def _state_params(body: Graph, values: Sequence[Node]) -> list[Node]:
    return [param(info.name, value.type) for info, value in zip(body.inputs[2:], values)]


def _same_types(before: Sequence[Node], after: Sequence[Node]) -> bool:
    return all(a.type == b.type for a, b in zip(before, after))


def _dynamic_iterations(c: Call, limit: Value | None, go: Value | None) -> Dim | None:
    """The data-dependent trip count as a dim; 0 if the condition `go` is false at the start."""
    given = [
        value if value is limit else c.cast(value, "int64")
        for value in (limit, go)
        if isinstance(value, Node)
    ]
    if any(len(value.shape) > 1 for value in given):
        return None
    try:
        found = [c.elements(value, "the trip count") for value in given]
    except UnsupportedError:
        return None
    if any(len(elements) != 1 for elements in found):
        return None
    most, *started = (maximum(elements[0], 0) for elements in found)
    return c.size(most * started[0] if started else most, "the trip count")


MOST_SCANNED = 1 << 20
"""The most iterations of a loop that becomes a `scan`, whose iteration numbers are in memory."""


def _scanned_loop(
    c: Call, body: Graph, count: Callable[[], Dim | None], state: Sequence[Node]
) -> list[Value] | None:
    """The loop as a `scan` over the iteration numbers, of which there are `count()`; None if it cannot be
    one.
    """
    number = param(body.inputs[0].name, TensorType((), DType("int64")))
    given = _declared(body, number)
    params = _state_params(body, state)
    holders = c.scope.session.holders
    with holders.frame() as frame:
        results = c.attempt(body, (given, c.const(True, "bool"), *params))
    if results is None or not all(isinstance(value, Node) for value in results):
        return None
    cond, *values = (value for value in results if isinstance(value, Node))
    if _constant_condition(c, cond) is not True or not _same_types(params, values):
        return None
    iterations = count()
    if iterations is None or (isinstance(iterations, int) and iterations > MOST_SCANNED):
        return None
    function, outer = close(
        "body", (*params, number), values, _captured(c), holders, always_tuple=True, frame=frame
    )
    return _scan(c, function, params, outer, state, [std.arange(stop=iterations, dtype="int64")], len(values))


def _scan(
    c: Call,
    function: Any,
    params: Sequence[Node],
    outer: Sequence[Node],
    state: Sequence[Node],
    items: Sequence[Node],
    count: int,
) -> list[Value]:
    """A `scan` whose body also takes outer values as state that does not change."""
    own = len(params)
    inner = function.params[own + len(items) :]
    results = [*function.results[:own], *inner, *function.results[own:]]
    ordered = (*function.params[:own], *inner, *function.params[own : own + len(items)])
    whole, rest = close("body", ordered, results, (), {}, always_tuple=True)
    if rest:
        raise AssertionError("a closed body reaches outside")
    whole = whole.with_attrs(**function.attrs)
    made = std.scan(*state, *outer, *items, num_state=own + len(outer), body=whole)
    positions = [*range(own), *range(own + len(outer), len(outer) + count)]
    return [get_item(made, position) for position in positions]


def _unrolled(c: Call, body: Graph, iterations: int, state: Sequence[Value]) -> list[Value] | None:
    """The unrolled loop; None if it is unknown whether another iteration follows."""
    if iterations > MAX_UNROLLED:
        return None
    count = len(state)
    columns: list[list[Node]] = [[] for _ in body.outputs[count + 1 :]]
    values: list[Value] = list(state)
    go: Value = c.const(True, "bool")
    for number in range(iterations):
        results = c.inline(body, (_declared(body, c.const(number, "int64")), go, *values))
        go, values = results[0], list(results[1 : count + 1])
        for column, item in zip(columns, results[count + 1 :]):
            if not isinstance(item, Node):
                raise c.error("a scan output of a loop is a sequence")
            column.append(item)
        more = _constant_condition(c, go)
        if more is None and number + 1 < iterations:
            return None
        if more is False:
            break
    return [*values, *(_stacked(c, body, index, column) for index, column in enumerate(columns))]


def _stacked(c: Call, body: Graph, index: int, column: Sequence[Node]) -> Node:
    if column:
        return std.stack(*column, axis=0)
    info = body.outputs[len(body.inputs) - 1 + index]
    if info.dtype is None or info.shape is None or not all(isinstance(dim, int) for dim in info.shape):
        raise c.unsupported(
            f"the loop has no iterations, and the type of its result {info.name!r} is not declared"
        )
    dtype = c.tensor_dtype(info.dtype)
    return std.full(shape=(0, *info.shape), value=0.0, dtype=dtype)


class _Body:
    """A loop's body over tensors only. Sequences in its state are ragged: each is two tensors of the
    state.
    """

    def __init__(self, c: Call, body: Graph, state: Sequence[Value]) -> None:
        self.c = c
        self.body = body
        self.number = param(body.inputs[0].name, TensorType((), DType("int64")))
        self.cond = param(body.inputs[1].name, TensorType((), DType("bool")))
        self.values = list(state) if all(isinstance(value, Node) for value in state) else self._formed(state)
        self.state = [node for value in self.values for node in tensors_in(value)]
        self.names = [
            info.name for info, value in zip(body.inputs[2:], self.values) for _ in tensors_in(value)
        ]
        self.frame = Frame()
        """The nodes of the latest conversion."""

    def _formed(self, state: Sequence[Value]) -> list[Value]:
        """The state with sequences as ragged ones. An empty sequence gets the dtype and rank that an
        iteration gives it.
        """
        c = self.c
        with c.scope.session.holders.frame():
            start = (_declared(self.body, self.number), self.cond, *state)
            after: Sequence[Value | None] | None = c.attempt(self.body, start)
        found: list[Value] = []
        for value, result in zip(state, after[1:] if after else [None] * len(state)):
            if isinstance(value, Node):
                found.append(value)
                continue
            form = form_of(value) or (None if result is None else form_of(result))
            made = in_form(c, value, form)
            if made is None:
                raise c.unsupported(
                    "the state is a sequence or optional that is not of tensors of one type and rank",
                    why="the number of iterations depends on data",
                )
            found.append(made)
        return found

    def __call__(self, params: Sequence[Node]) -> list[Node]:
        """The condition, the state after an iteration, and the stacked results."""
        c, tensors = self.c, iter(params)
        given = [rebuilt(value, tensors) for value in self.values]
        with c.scope.session.holders.frame() as self.frame:
            number = _declared(self.body, self.number)
            cond, *results = c.inline(self.body, (number, self.cond, *given))
        for index, value in enumerate(self.values):
            if isinstance(value, SequenceValue):
                made = in_form(c, results[index], form_of(value))
                if made is None:
                    raise c.unsupported(
                        "a sequence of the state changes its dtype or rank between iterations"
                    )
                results[index] = made
        count = len(self.values)
        after = [node for value in results[:count] for node in tensors_in(value)]
        if not all(isinstance(value, Node) for value in (cond, *results[count:])) or len(after) != len(
            params
        ):
            raise c.unsupported("the body returns a sequence that depends on data")
        return _tensors(c, [cond, *after, *results[count:]], "the body")


def _while_loop(
    c: Call, body: _Body, limit: Value | None, iterations: Dim | None, go: Value | None
) -> list[Value | None]:
    """A loop that a data-dependent condition may end before the limit of `rounds`."""
    state, number, cond = body.state, body.number, body.cond
    count, own_count = len(state), len(body.values)
    params, results, changing = _settled(body)
    _check_condition(c, results[0])
    next_go = std.reshape(results[0], shape=())
    step = [std.add(number, c.const(1, "int64")), next_go, *results[1 : count + 1]]
    stacked = [
        position for position in range(count, len(results) - 1) if c.uses_output(position - count + own_count)
    ]
    rows = [results[position + 1] for position in stacked]
    stacking = bool(rows or changing)
    most = None if stacking and iterations is not None else _scalar_tensor(c, limit, "int64")
    running = cond if most is None else std.logical_and(cond, std.less(number, most))
    first = c.const(True, "bool") if go is None else _scalar_tensor(c, go, "bool")
    own = (number, cond, *params)
    captured = [*_captured(c), *([most] if most is not None else [])]
    holders = c.scope.session.holders
    closed = [
        # The condition is evaluated once more than the body, so the checks are in the body.
        close("cond", own, [running], captured, holders, checks=False),
        close("body", own, [*step, *rows], captured, holders, always_tuple=True, frame=body.frame),
    ]
    (test, run), outer = aligned(closed, len(own))
    inner = run.params[len(own) :]
    after = [*run.results[: len(own)], *inner, *run.results[len(own) :]]
    attrs = run.attrs
    run, rest = close("body", run.params, after, (), {}, always_tuple=True)
    if rest:
        raise AssertionError("a closed body reaches outside")
    run = run.with_attrs(**attrs)
    assert first is not None
    given = (c.const(0, "int64"), first, *state, *outer)
    if stacking:
        sizes = [Var(identifier(f"{body.names[value]}_{axis}")) for value, axis in changing]
        positions = [item for value, axis in changing for item in (2 + value, axis)]
        dims = {
            "iterations": Var("iterations"),
            "max_iterations": iterations,
            "sizes": sizes,
            "changing": positions,
        }
        made = std.loop(*given, **dims, cond=test, body=run)
    else:
        made = std.while_(*given, cond=test, body=run)
    fields = iter([get_item(made, 2 + position) for position in range(count)])
    values: list[Value | None] = [rebuilt(value, fields) for value in body.values]
    values += [None] * (len(results) - 1 - count)
    for index, position in enumerate(stacked):
        values[position - count + own_count] = get_item(made, len(given) + index)
    return values


def _settled(body: _Body) -> tuple[list[Node], list[Node], list[tuple[int, int]]]:
    """Params for the state that are valid in every iteration, the results of the body, and the changing dims.

    A changing dim is given as (index of the value, axis). Dims that an iteration changes become new symbols.
    """
    c, state, names = body.c, body.state, body.names
    types = [value.tensor_type for value in state]
    changing: dict[tuple[int, int], Var] = {}
    while True:
        params = [param(name, type_) for name, type_ in zip(names, types)]
        c.scope.session.holders.update((var, params[value]) for (value, _), var in changing.items())
        results = body(params)
        found = []
        for value, (before, after) in enumerate(zip(types, results[1:])):
            if before.dtype is not after.dtype or before.ndim != len(after.shape):
                raise c.unsupported(
                    f"{quoted(names[value])} is {before} before an iteration and {after.type} after it",
                    why="the number of iterations depends on data",
                )
            sizes = enumerate(zip(before.shape, after.shape))
            found += [(value, axis) for axis, (size, other) in sizes if size != other]
        found = [position for position in found if position not in changing]
        if not found:
            break
        for value, axis in found:
            shape = list(types[value].shape)
            shape[axis] = changing[value, axis] = Var(identifier(f"{names[value]}_{axis}"))
            types[value] = TensorType(tuple(shape), types[value].dtype)
    for row in results[1 + len(state) :]:
        if not set(changing.values()).isdisjoint(row.tensor_type.symbols()):
            raise c.unsupported("the shapes of stacked results change between iterations")
    return params, results, list(changing)


def _scalar_tensor(c: Call, value: Value | None, dtype: str) -> Node | None:
    if value is None:
        return None
    if not isinstance(value, Node):
        raise c.error("a tensor is needed")
    return std.reshape(c.cast(value, dtype), shape=())


@converter("Scan", 8)
def scan_8(c: Call, lengths: Node | None = None, *args: Node) -> Sequence[Value]:
    """A scan along axis 1 for each element of a batch, which is axis 0."""
    if lengths is not None:
        raise c.unsupported("Scan over sequences of different lengths")
    sizes = {arg.shape[0] for arg in args if arg.shape}
    size = next(iter(sizes), None)
    if len(sizes) != 1 or not all(arg.shape for arg in args):
        raise c.error("the inputs of Scan have no batch in common")
    if not isinstance(size, int):
        raise c.unsupported(f"Scan over a batch of {size}", hint="pin the dim with shapes={...}")
    if size < 1:
        raise c.unsupported("Scan over an empty batch")
    backwards = c.integers("directions", None)
    rows = []
    for position in range(size):
        own = [
            std.squeeze(std.slice(arg, begins=(position,), ends=(position + 1,), axes=(0,)), axes=(0,))
            for arg in args
        ]
        rows.append(_scanned(c, own, backwards))
    columns = zip(*rows)
    return [std.stack(*(v for v in column if isinstance(v, Node)), axis=0) for column in columns]


@converter("Scan", 9)
def scan(c: Call, *args: Node) -> Sequence[Value]:
    return _scanned(c, args, c.integers("scan_input_directions", None))


def _scanned(c: Call, args: Sequence[Node], directions: Sequence[int] | None) -> list[Value]:
    body, scanned = c.graph("body"), c.integer("num_scan_inputs")
    count = len(args) - scanned
    if scanned < 1 or count < 0 or len(body.inputs) != len(args) or len(body.outputs) < count:
        raise c.error(f"{len(args)} inputs, {scanned} of them scanned, for a body of {len(body.inputs)}")
    state = list(args[:count])
    items = _scan_inputs(c, args[count:], directions)
    params = [param(info.name, value.type) for info, value in zip(body.inputs, state)]
    own = [
        param(info.name, TensorType(value.shape[1:], value.dtype))
        for info, value in zip(body.inputs[count:], items)
    ]
    holders = c.scope.session.holders
    with holders.frame() as frame:
        results = _tensors(c, c.inline(body, (*params, *own)), "the body")
    if not _same_types(params, results[:count]):
        raise c.unsupported("the shapes of the state change between iterations")
    function, outer = close(
        "body", (*params, *own), results, _captured(c), holders, always_tuple=True, frame=frame
    )
    made = _scan(c, function, params, outer, state, items, len(results))
    return [*made[:count], *_scan_outputs(c, made[count:])]


def _options(c: Call, name: str, count: int) -> tuple[int, ...]:
    found = c.integers(name, None) or (0,) * count
    if len(found) != count:
        raise c.error(f"attribute {name!r} has {len(found)} entries, {count} are needed")
    return tuple(found)


def _scan_inputs(c: Call, values: Sequence[Node], directions: Sequence[int] | None) -> list[Node]:
    """The scanned inputs with the scanned axis first, reversed if they are scanned backwards."""
    axes = _options(c, "scan_input_axes", len(values))
    backwards = tuple(directions or (0,) * len(values))
    if len(backwards) != len(values):
        raise c.error(f"{len(backwards)} directions for {len(values)} scanned inputs")
    made = []
    for value, axis, reverse in zip(values, axes, backwards):
        rank = len(value.shape)
        position = c.check_axis(axis, rank)
        moved = value
        if position:
            moved = std.transpose(value, axes=(position, *(k for k in range(rank) if k != position)))
        made.append(std.flip(moved, axes=(0,)) if reverse else moved)
    return made


def _scan_outputs(c: Call, values: Sequence[Value]) -> list[Value]:
    axes = _options(c, "scan_output_axes", len(values))
    backwards = _options(c, "scan_output_directions", len(values))
    made: list[Value] = []
    for value, axis, reverse in zip(values, axes, backwards):
        if not isinstance(value, Node):
            raise AssertionError("scan returns tensors")
        rank = len(value.shape)
        position = c.check_axis(axis, rank)
        moved = std.flip(value, axes=(0,)) if reverse else value
        order = [*range(1, rank)]
        order.insert(position, 0)
        made.append(std.transpose(moved, axes=tuple(order)) if position else moved)
    return made
