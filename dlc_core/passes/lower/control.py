"""Control flow in native entries: branches and loops around calls of bodies, which are functions.

A body is called like a kernel: inputs, outputs, weights, scratch memory, dims.  Loop-carried values are
double-buffered; invariant values are passed directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dlc_core.graph.node import CALL_PRIM, Function, Node, make_tuple, node
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Expr,
    Var,
    as_expr,
    cast_to,
    const,
    const_value,
    free_vars,
    load,
    logical_and,
    maximum,
    substitute,
)
from dlc_core.op.std.bounded_loops import BOUNDED_LOOP
from dlc_core.op.std.control import IF, SCAN, WHILE, body_dims
from dlc_core.passes.lower.arena import ALIGN
from dlc_core.passes.lower.guard_layout import GuardLayout, slot
from dlc_core.runtime.guard.mode import Slot
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import call_kernel
from dlc_core.tir.stmt import Eval, If, Let, Stmt, View, While, loop, seq, store


def is_control(value: Node) -> bool:
    """Whether a node is control flow that native entries support."""
    return value.op in (IF, WHILE, SCAN, BOUNDED_LOOP)


def is_step(value: Node) -> bool:
    """Whether a node is a step of a native entry, with its own memory for the results."""
    return value.op is CALL_PRIM or is_control(value)


def with_bodies(value: Node, args: Sequence[Node], change: Callable[[Function, int], Function]) -> Node:
    """Rebuild a node with new arguments and changed bodies. `change` gets a body and its state size."""
    attrs = {
        name: change(attr, 0 if name == "cond" else state_size(value)) if isinstance(attr, Function) else attr
        for name, attr in value.attrs.items()
    }
    return node(value.op, args, attrs, value.type)


def state_size(value: Node) -> int:
    """Return the number of a loop's arguments that are its state."""
    if value.op is SCAN:
        count: int = value.attrs["num_state"]
        return count
    return len(value.args) if value.op in (WHILE, BOUNDED_LOOP) else 0


def invariant_state(function: Function, count: int) -> tuple[bool, ...]:
    """Return which of the first `count` state values a body returns unchanged."""
    pairs = zip(function.results[:count], function.params, strict=False)
    return tuple(result is own for result, own in pairs)


@record(frozen=True)
class NativeBody:
    """A native body of a branch or loop: its name, the dims that it takes by value, bytes of scratch memory,
    and whether it has the record of failed checks as a parameter.
    """

    symbol: str
    symbols: tuple[Var, ...]
    arena: Expr
    checked: bool
    slots: tuple[Slot, ...] = ()
    """In guard mode: the values in the scratch memory."""


@record(frozen=True)
class BodyCall:
    """A call of a NativeBody, with the values of its dims."""

    symbol: str
    scalars: tuple[Expr, ...]
    arena: Expr
    checked: bool
    slots: tuple[Slot, ...]

    @staticmethod
    def of(made: NativeBody, dims: Mapping[Var, Expr]) -> BodyCall:
        """Return the body for these values of its dims."""
        scalars = tuple(dims[v] for v in made.symbols)
        slots = tuple(
            replace(s, offset=substitute(s.offset, dims), size=substitute(s.size, dims)) for s in made.slots
        )
        return BodyCall(made.symbol, scalars, substitute(made.arena, dims), made.checked, slots)


@record(frozen=True)
class Memory:
    """The memory of a node's statements: arguments, results, whether results are read, all weights, and the
    failure record.
    """

    args: Sequence[Buffer]
    outs: Sequence[Buffer]
    used: Sequence[bool]
    weights: Buffer
    workspaces: Mapping[Buffer, Buffer]
    """The window on memory of each workspace."""
    record: Buffer


class Control:
    """The statements of one node of control flow, and the workspaces that they need."""

    def __init__(
        self, value: Node, make: Callable[[Function, str], NativeBody], guard: GuardLayout | None = None
    ) -> None:
        """`make(body, name)` builds a native function. `guard` is the memory layout of guard mode."""
        self.value = value
        self._guard = guard
        count = state_size(value)
        self.invariant = invariant_state(value.attrs["body"], count) if count else ()
        self.bodies: dict[str, BodyCall] = {}
        for name, function in value.attrs.items():
            if isinstance(function, Function):
                made = _without_invariants(function, self.invariant) if name == "body" else function
                self.bodies[name] = BodyCall.of(make(made, name), body_dims(value, function))
        self.checked = any(body.checked for body in self.bodies.values())
        self.arenas = self._arenas()
        self.buffers = {
            i: Buffer("turns", (self._double_buffer(value.args[i])[0],), "uint8", align=ALIGN)
            for i, invariant in enumerate(self.invariant)
            if not invariant
        }
        self.counter = Buffer("rounds", (1,), INDEX, align=ALIGN)
        self.flag = Buffer("going", (), "bool", align=ALIGN)

    @property
    def workspaces(self) -> list[Buffer]:
        """Return the workspaces."""
        loops = [self.counter, self.flag] if self.value.op in (WHILE, BOUNDED_LOOP) else []
        return [*dict.fromkeys(self.arenas.values()), *self.buffers.values(), *loops]

    def _arenas(self) -> dict[str, Buffer]:
        """Return the scratch memory of each body. All bodies share one buffer, except in guard mode."""
        if self._guard is not None:
            return {n: Buffer("scratch", (b.arena,), "uint8", align=ALIGN) for n, b in self.bodies.items()}
        size: Expr = const(0)
        for body in self.bodies.values():
            size = maximum(size, body.arena)
        return dict.fromkeys(self.bodies, Buffer("scratch", (size,), "uint8", align=ALIGN))

    def _double_buffer(self, value: Node) -> tuple[Expr, Expr, Expr]:
        """Return the bytes of both buffers of a loop-carried value, of one, and of the padding before it."""
        if self._guard is None:
            return 2 * _rounded(value), _rounded(value), const(0)
        size = _bytes(value)
        return *self._guard.pair(size), self._guard.padding_before(size)

    @property
    def slots(self) -> dict[Buffer, list[Slot]]:
        """Return the slots of values in the workspaces that hold several values."""
        found = {self.arenas[name]: list(body.slots) for name, body in self.bodies.items()}
        for i, buffer in self.buffers.items():
            arg = self.value.args[i]
            _, step, padding = self._double_buffer(arg)
            offsets = (padding, padding + step)
            found[buffer] = [slot(f"state {i} of a loop", at, _bytes(arg), arg.dtype) for at in offsets]
        return found

    def symbols(self) -> list[Var]:
        """Return the symbolic dims that the statements use, except those of shapes."""
        lengths = [as_expr(d) for arg in self.value.args for d in arg.shape]
        if self.value.op is BOUNDED_LOOP:
            lengths.append(as_expr(self.value.attrs["capacity"]))
        return free_vars(*lengths, *(e for body in self.bodies.values() for e in body.scalars))

    def statements(self, memory: Memory) -> Stmt:
        """Emit the statements of the node."""
        if self.value.op is IF:
            return self._branch(memory)
        if self.value.op is BOUNDED_LOOP:
            return self._bounded(memory)
        return self._scan(memory) if self.value.op is SCAN else self._while(memory)

    def _call(self, name: str, ins: Sequence[Buffer], outs: Sequence[Buffer], memory: Memory) -> Stmt:
        body = self.bodies[name]
        scratch = memory.workspaces[self.arenas[name]]
        record = [memory.record] if body.checked else []
        return Eval(call_kernel(body.symbol, *ins, *outs, memory.weights, scratch, *record, *body.scalars))

    def _branch(self, memory: Memory) -> Stmt:
        cond, *args = memory.args
        calls = [self._call(name, args, memory.outs, memory) for name in ("then_branch", "else_branch")]
        return If(load(cond, [0] * cond.ndim), *calls)

    def _state_view(self, i: int, parity: Expr, memory: Memory, views: list[tuple[Buffer, Buffer]]) -> Buffer:
        """Return a view of one of the two buffers of a loop-carried value."""
        arg, base = self.value.args[i], memory.workspaces[self.buffers[i]]
        itemsize = arg.dtype.itemsize
        _, step, padding = self._double_buffer(arg)
        align = ALIGN if self._guard is None else self._guard.align_of(arg.dtype)
        offset = (base.offset + padding) // itemsize + parity * (step // itemsize)
        made = Buffer("state", arg.tensor_type.dim_exprs(), arg.dtype, offset=offset, align=align)
        views.append((made, base))
        return made

    def _state(self, parity: Expr, memory: Memory, views: list[tuple[Buffer, Buffer]]) -> list[Buffer]:
        """Return the buffers of the loop state; `parity` selects one buffer of each pair."""
        return [
            memory.args[i] if invariant else self._state_view(i, parity, memory, views)
            for i, invariant in enumerate(self.invariant)
        ]

    def _copy_in(self, memory: Memory) -> Stmt:
        """Copy the arguments to the buffers of the first iteration."""
        views: list[tuple[Buffer, Buffer]] = []
        parts = [_copy(memory.args[i], self._state_view(i, const(0), memory, views)) for i in self.buffers]
        return _viewed(views, seq(*parts))

    def _copy_out(self, parity: Expr, memory: Memory) -> Stmt:
        """Copy the final state to the results that are read."""
        views: list[tuple[Buffer, Buffer]] = []
        state = self._state(parity, memory, views)
        parts = [_copy(own, memory.outs[i]) for i, own in enumerate(state) if memory.used[i]]
        return _viewed(views, seq(*parts))

    def _scan(self, memory: Memory) -> Stmt:
        count = len(self.invariant)
        iterations = as_expr(self.value.args[count].shape[0])
        t = Var("t", INDEX)
        views: list[tuple[Buffer, Buffer]] = []
        items, made = (
            [_row(b, t, views) for b in rows] for rows in (memory.args[count:], memory.outs[count:])
        )
        before = self._state(t % 2, memory, views)
        after = [self._state_view(i, (t + 1) % 2, memory, views) for i in self.buffers]
        call = self._call("body", [*before, *items], [*after, *made], memory)
        return seq(
            self._copy_in(memory),
            loop(t, iterations, _viewed(views, call)),
            self._copy_out(iterations % 2, memory),
        )

    def _while(self, memory: Memory) -> Stmt:
        parity, last = Var("turn", INDEX), Var("last", INDEX)
        iterations = load(memory.workspaces[self.counter], [0])
        condition = load(memory.workspaces[self.flag], [])
        return seq(
            self._prologue(memory),
            While(condition, Let(parity, iterations % 2, self._iteration(parity, iterations, [], memory))),
            Let(last, iterations % 2, self._copy_out(last, memory)),
        )

    def _bounded(self, memory: Memory) -> Stmt:
        *rows, made, more = memory.outs[len(self.invariant) :]
        limit = as_expr(self.value.attrs["capacity"])
        iterations = load(memory.workspaces[self.counter], [0])
        condition = load(memory.workspaces[self.flag], [])
        iteration, parity, last, total = (Var(name, INDEX) for name in ("now", "turn", "last", "total"))
        body = Let(parity, iteration % 2, self._iteration(parity, iteration, rows, memory))
        # The range of the counter is unknown, because it is loaded. This condition bounds the row index.
        body = Let(iteration, iterations, If(logical_and(iteration >= 0, iteration < limit), body))
        epilogue = seq(
            self._copy_out(last, memory),
            *(_zero_after(row, total) for row in rows if const_value(limit) != 0),
            store(made, [0], cast_to(made.dtype, total)),
            store(more, [0] * more.ndim, condition),
        )
        return seq(
            self._prologue(memory),
            While(logical_and(condition, iterations < limit), body),
            Let(total, maximum(iterations, 0), Let(last, total % 2, epilogue)),
        )

    def _prologue(self, memory: Memory) -> Stmt:
        """Emit the statements before the first iteration of a loop with a condition."""
        first: list[tuple[Buffer, Buffer]] = []
        test = self._call(
            "cond", self._state(const(0), memory, first), [memory.workspaces[self.flag]], memory
        )
        reset = store(memory.workspaces[self.counter], [0], const(0))
        return seq(self._copy_in(memory), reset, _viewed(first, test))

    def _iteration(self, parity: Expr, iteration: Expr, rows: Sequence[Buffer], memory: Memory) -> Stmt:
        """Emit an iteration of a loop with a condition. Its stacked values are the rows with its number."""
        views: list[tuple[Buffer, Buffer]] = []
        before = self._state(parity, memory, views)
        changed = {i: self._state_view(i, 1 - parity, memory, views) for i in self.buffers}
        after = [changed.get(i, own) for i, own in enumerate(before)]
        made = [_row(row, iteration, views) for row in rows]
        return _viewed(
            views,
            seq(
                self._call("body", before, [*changed.values(), *made], memory),
                store(memory.workspaces[self.counter], [0], iteration + 1),
                self._call("cond", after, [memory.workspaces[self.flag]], memory),
            ),
        )


def _without_invariants(function: Function, invariant: Sequence[bool]) -> Function:
    """Remove the results of a body that are its own params."""
    kept = [r for i, r in enumerate(function.results) if i >= len(invariant) or not invariant[i]]
    return function.with_body(kept[0] if len(kept) == 1 else make_tuple(kept))


def _bytes(value: Node) -> Expr:
    size: Expr = const(value.dtype.itemsize)
    for extent in value.tensor_type.dim_exprs():
        size = size * extent
    return size


def _rounded(value: Node) -> Expr:
    return (_bytes(value) + (ALIGN - 1)) // ALIGN * ALIGN


def _count(shape: Sequence[Expr]) -> Expr:
    total: Expr = const(1)
    for extent in shape:
        total = total * extent
    return total


def _row(buffer: Buffer, t: Expr, views: list[tuple[Buffer, Buffer]]) -> Buffer:
    """Return a view of element t of a buffer along its first axis."""
    shape = buffer.shape[1:]
    made = Buffer("row", shape, buffer.dtype, offset=buffer.offset + t * _count(shape))
    views.append((made, buffer))
    return made


def _zero_after(rows: Buffer, made: Expr) -> Stmt:
    """Zero the rows after the first `made` rows."""
    size, count = _count(rows.shape[1:]), _count(rows.shape)
    flat = Buffer("flat", (count,), rows.dtype, offset=rows.offset)
    i = Var("i", INDEX)
    begin = made * size
    return View(flat, rows, loop(i, count - begin, store(flat, [i], const(0, rows.dtype)), begin=begin))


def _copy(source: Buffer, target: Buffer) -> Stmt:
    count = _count(source.shape)
    a, b = (Buffer("flat", (count,), x.dtype, offset=x.offset) for x in (source, target))
    i = Var("i", INDEX)
    return View(a, source, View(b, target, loop(i, count, store(b, [i], load(a, [i])))))


def _viewed(views: Sequence[tuple[Buffer, Buffer]], body: Stmt) -> Stmt:
    for buffer, base in reversed(views):
        body = View(buffer, base, body)
    return body


__all__ = [
    "BodyCall",
    "Control",
    "Memory",
    "NativeBody",
    "invariant_state",
    "is_control",
    "is_step",
    "state_size",
    "with_bodies",
]
