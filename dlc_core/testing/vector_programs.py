"""Random tensor programs, for comparing code generators with the interpreter.

    func = random_program(random.Random(7), "int32")
    interpreter.run(func, *feeds(func, seed))

They have serial, parallel, empty and nested loops, branches with and without an else, `while`, `let`, views,
temporaries in memory and in registers, vectors, masked and gathered loads. The parameters are two inputs, an
input of indices, two outputs, and the by-value integers `n` and `k`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    Expr,
    Var,
    binary,
    broadcast,
    cast_to,
    const,
    load,
    ramp,
    select,
    unary,
)
from dlc_core.op.declare import NDArray
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Alloc, For, If, Let, PrimFunc, Stmt, Store, View, While, seq

SIZE = 16
"""The number of elements of each buffer, except registers."""

LANES = 4
_INT_OPS = ("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor", "shl", "shr")
_FLOAT_OPS = ("min", "max", "add", "sub")
_ORDER = ("lt", "le", "gt", "ge", "eq", "ne")
Step = Callable[[], Stmt]


class _Writer:
    """Makes statements over the variables and buffers in scope."""

    def __init__(self, rng: random.Random, type_: DType) -> None:
        self.rng = rng
        self.type = type_
        self.names = 0
        self.loops: list[Var] = []
        self.values: list[Var] = []
        self.readable: list[Buffer] = []
        self.writable: list[Buffer] = []
        self.registers: list[Buffer] = []
        self.index_buffers: list[Buffer] = []
        self.scalars: list[Var] = []

    def name(self, hint: str) -> str:
        self.names += 1
        return f"{hint}{self.names}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # Expressions

    def literal(self) -> Expr:
        value = self.rng.choice((-3, -1, 0, 1, 2, 5, 100))
        return const(value % 7 if self.type.kind == "uint" else value, self.type)

    def index(self) -> Expr:
        """An index in [0, SIZE)."""
        options: list[Expr] = [const(self.rng.randrange(SIZE))]
        options += [binary("floormod", v * self.rng.choice((1, 2, 3)) + 1, SIZE) for v in self.loops]
        options += [binary("floormod", v + self.rng.randrange(9), SIZE) for v in self.scalars]
        return self.rng.choice(options)

    def value(self, depth: int = 3) -> Expr:
        kind = self.rng.choice(("literal", "load", "load", "op", "op", "choice", "lazy", "register", "let"))
        if depth == 0 or kind == "literal":
            return self.literal()
        if kind == "load":
            return load(self.rng.choice(self.readable), (self.index(),))
        if kind == "register" and self.registers:
            return load(self.rng.choice(self.registers), (const(self.rng.randrange(3)),))
        if kind == "let" and self.values:
            return self.rng.choice(self.values)
        if kind == "choice":
            return select(self.cond(depth - 1), self.value(depth - 1), self.value(depth - 1))
        if kind == "lazy":
            return if_then_else(self.cond(depth - 1), self.value(depth - 1), self.value(depth - 1))
        return self.operation(self.value(depth - 1), self.value(depth - 1))

    def operation(self, a: Expr, b: Expr) -> Expr:
        if self.type.is_float:
            op = self.rng.choice((*_FLOAT_OPS, "neg"))
            return unary("neg", a) if op == "neg" else binary(op, a, b)
        if self.chance(0.2):
            positive = const(self.rng.choice((1, 3, 4, 7)), self.type).dtype
            divisor: Expr = const(self.rng.choice((1, 3, 4, 7)), positive)
            divisor = divisor if a.dtype.lanes == 1 else broadcast(divisor, a.dtype.lanes)
            op = self.rng.choice(("floordiv", "floormod", "truncdiv", "truncmod"))
            return binary(op, a, divisor)
        if self.chance(0.1):
            narrow = dtype("int8").with_lanes(a.dtype.lanes)
            return cast_to(a.dtype, cast_to(narrow, a))
        return binary(self.rng.choice(_INT_OPS), a, b)

    def cond(self, depth: int) -> Expr:
        if self.loops and self.chance(0.4):
            made = binary(self.rng.choice(_ORDER), self.rng.choice(self.loops), self.rng.randrange(5))
        else:
            made = binary(self.rng.choice(_ORDER), self.value(depth), self.value(depth))
        return ~made if self.chance(0.1) else made

    # Vectors

    def lane_indices(self) -> Expr:
        """Indices of LANES elements in [0, SIZE): contiguous, strided, or loaded."""
        kind = self.rng.choice(("plain", "plain", "step", "back", "gather"))
        start: Expr = const(self.rng.randrange(SIZE - LANES + 1))
        if self.loops and self.chance(0.5):
            start = binary("floormod", self.rng.choice(self.loops) * LANES, SIZE)
        if kind == "step":
            return ramp(const(self.rng.randrange(4)), 3, LANES)
        if kind == "back":
            return ramp(const(SIZE - 1), -1, LANES)
        if kind == "gather" and self.index_buffers:
            loaded = load(self.rng.choice(self.index_buffers), (ramp(start, 1, LANES),))
            return cast_to(dtype("int64").with_lanes(LANES), loaded)
        return ramp(start, 1, LANES)

    def vector(self, depth: int = 2) -> Expr:
        kind = self.rng.choice(("load", "load", "op", "scalar", "choice", "lazy"))
        if depth == 0 or kind == "scalar":
            return broadcast(self.value(1), LANES)
        if kind == "load":
            return load(self.rng.choice(self.readable), (self.lane_indices(),))
        a, b = self.vector(depth - 1), self.vector(depth - 1)
        if kind == "op":
            return self.operation(a, b)
        test = binary(self.rng.choice(_ORDER), self.vector(depth - 1), self.vector(depth - 1))
        return select(test, a, b) if kind == "choice" else if_then_else(test, a, b)

    # Statements

    def stmts(self, depth: int) -> Stmt:
        return seq(*(self.stmt(depth) for _ in range(self.rng.randint(1, 3))))

    def stmt(self, depth: int) -> Stmt:
        steps: list[Step] = [self.store, self.store, self.vector_store]
        if self.registers:
            steps += [self.register_store, self.register_store]
        if depth > 0:
            inner = [self.serial, self.serial, self.branch, self.branch, self.let, self.window]
            inner += [self.temporary, self.register, self.counted]
            steps += [partial(step, depth - 1) for step in inner]
        return self.rng.choice(steps)()

    def store(self) -> Stmt:
        return Store(self.rng.choice(self.writable), (self.index(),), self.value())

    def vector_store(self) -> Stmt:
        start = const(self.rng.randrange(SIZE - LANES + 1))
        return Store(self.rng.choice(self.writable), (ramp(start, 1, LANES),), self.vector())

    def register_store(self) -> Stmt:
        target = self.rng.choice(self.registers)
        return Store(target, (const(self.rng.randrange(3)),), self.value())

    def serial(self, depth: int) -> Stmt:
        extent = self.rng.choice([const(0), const(1), const(3), const(5), *self.scalars])
        var = Var(self.name("i"))
        self.loops.append(var)
        begin = const(self.rng.choice((0, 0, 2)))
        made = For(var, begin, extent, self.stmts(depth))
        self.loops.remove(var)
        return made

    def branch(self, depth: int) -> Stmt:
        cond, then = self.cond(2), self.stmts(depth)
        return If(cond, then, self.stmts(depth) if self.chance(0.5) else None)

    def let(self, depth: int) -> Stmt:
        var = Var(self.name("v"), self.type)
        value = self.value()
        self.values.append(var)
        made = Let(var, value, self.stmts(depth))
        self.values.remove(var)
        return made

    def window(self, depth: int) -> Stmt:
        """A view of a buffer. Statements in it use both names."""
        base = self.rng.choice(self.writable)
        buffer = Buffer(self.name("w"), base.shape, base.dtype, scope=base.scope)
        self.readable.append(buffer)
        made = View(buffer, base, self.stmts(depth))
        self.readable.remove(buffer)
        return made

    def temporary(self, depth: int) -> Stmt:
        buffer = Buffer(self.name("t"), (SIZE,), self.type, scope=self.rng.choice(("global", "local")))
        var = Var(self.name("i"))
        fill = For(var, const(0), const(SIZE), Store(buffer, (var,), self.value(2)))
        self.readable.append(buffer)
        self.writable.append(buffer)
        made = Alloc(buffer, seq(fill, self.stmts(depth)))
        self.readable.remove(buffer)
        self.writable.remove(buffer)
        return made

    def register(self, depth: int) -> Stmt:
        """A temporary whose indices are all constant: it can be in registers."""
        buffer = Buffer(self.name("r"), (3,), self.type, scope="local")
        first = [Store(buffer, (const(i),), self.value(2)) for i in range(3)]
        self.registers.append(buffer)
        made = Alloc(buffer, seq(*first, self.stmts(depth)))
        self.registers.remove(buffer)
        return made

    def counted(self, depth: int) -> Stmt:
        """A `while` that terminates: its counter is a separate buffer."""
        counter = Buffer(self.name("c"), (1,), "int32", scope="local")
        limit = self.rng.choice((0, 1, 3))
        body = seq(self.stmts(depth), Store(counter, (const(0),), counter[0] + 1))
        begin = Store(counter, (const(0),), const(0, "int32"))
        return Alloc(counter, seq(begin, While(counter[0] < limit, body)))

    def parallel(self, output: Buffer, inputs: Sequence[Buffer]) -> Stmt:
        """A loop whose iterations each write their own element of `output`, and read no output."""
        var = Var(self.name("p"))
        saved = self.readable, self.writable
        local = Buffer(self.name("t"), (SIZE,), self.type, scope="local")
        fill_var = Var(self.name("i"))
        self.readable, self.writable = [*inputs], [local]
        self.loops.append(var)
        fill = For(fill_var, const(0), const(SIZE), Store(local, (fill_var,), self.value(1)))
        self.readable.append(local)
        body = seq(fill, self.stmts(1), Store(output, (var,), self.value()))
        self.loops.remove(var)
        self.readable, self.writable = saved
        extent = self.rng.choice([const(SIZE), *self.scalars])
        return For(var, const(0), extent, Alloc(local, body), "parallel")


def random_program(rng: random.Random, type_: str = "int32", name: str = "f") -> PrimFunc:
    """A program over values of one dtype, with no undefined reads and no accesses out of bounds.

    Floats are only added, subtracted, negated and compared, so the rounding of results is determined.
    """
    data = dtype(type_)
    a, b, out, more = (Buffer(n, (SIZE,), data) for n in ("a", "b", "out", "more"))
    indices = Buffer("indices", (SIZE,), "int32")
    n, k = Var("n"), Var("k")
    writer = _Writer(rng, data)
    writer.readable, writer.writable = [a, b, out], [out]
    writer.index_buffers, writer.scalars = [indices], [n, k]
    body = seq(
        *(writer.stmt(3) for _ in range(rng.randint(1, 4))),
        writer.parallel(more, [a, b]),
        *(writer.stmt(2) for _ in range(rng.randint(0, 2))),
    )
    return PrimFunc(name, (a, b, indices, out, more, n, k), body)


def feeds(func: PrimFunc, seed: int = 0) -> tuple[list[NDArray], list[int]]:
    """Arrays for the buffers of a random program, and its by-value integers."""
    rng = np.random.default_rng(seed)
    arrays: list[NDArray] = []
    for buffer in func.buffers:
        type_ = buffer.dtype
        values: NDArray
        if buffer.name == "indices":
            values = rng.integers(0, SIZE, SIZE)
        elif type_.is_float:
            values = rng.integers(-50, 50, SIZE) * 0.25
        else:
            low, high = type_.int_range()
            values = rng.integers(max(low, -1000), min(high, 1000), SIZE, endpoint=True)
        arrays.append(np.asarray(values).astype(type_.numpy))
    return arrays, [int(rng.integers(0, 6)), int(rng.integers(1, SIZE, endpoint=True))]


__all__ = ["LANES", "SIZE", "feeds", "random_program"]
