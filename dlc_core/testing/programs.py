"""Random tensor programs for tests of code that reads, writes or rewrites them.

Every program is well formed and runs: indices are in bounds, divisors are not zero, shifts are small, loops
are short. The same seed gives the same program.
"""

from __future__ import annotations

import random

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    Expr,
    Var,
    binary,
    broadcast,
    cast_to,
    const,
    ramp,
    select,
    unary,
)
from dlc_core.tir.intrinsics import if_then_else, intrinsic, vector_shuffle
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Region,
    Stmt,
    View,
    loop,
    seq,
    store,
)

SIZE = 8
DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "int8", "bool")
_FLOAT_CALLS = ("exp", "tanh", "sqrt", "floor", "abs", "sigmoid", "erf", "sign", "round", "trunc")


class ProgramMaker:
    """Makes a program from a seed."""

    def __init__(self, seed: int, *, dtypes: tuple[str, ...] = DTYPES, vectors: bool = True) -> None:
        self.random = random.Random(seed)
        self.dtypes = tuple(map(dtype, dtypes))
        self.vectors = vectors
        self.indices: list[Var] = []
        self.values: list[Var] = []
        self.buffers: list[Buffer] = []
        self.count = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def func(self) -> PrimFunc:
        """A PrimFunc over square buffers, one for each dtype, and two scalars."""
        self.buffers = [Buffer(f"A_{t}", (SIZE, SIZE), t) for t in self.dtypes]
        params = tuple(self.buffers)
        scalar, count = Var("x", "float32"), Var("n")
        if any(t.name == "float32" for t in self.dtypes):
            self.values.append(scalar)
        self.indices.append(count)
        body = self.nest(3)
        return PrimFunc("main", (*params, scalar, count), body)

    def dtype(self) -> DType:
        return self.random.choice(self.dtypes)

    # Expressions

    def index(self) -> Expr:
        """An index in bounds."""
        kind = self.random.randrange(4)
        if kind == 0 or not self.indices:
            return const(self.random.randrange(SIZE))
        var = self.random.choice(self.indices)
        if kind == 1:
            return var % SIZE
        other = self.random.choice(self.indices)
        return (var * self.random.randrange(1, 5) + other + self.random.randrange(4)) % SIZE

    def buffer(self, type_: DType) -> Buffer:
        return self.random.choice([b for b in self.buffers if b.dtype is type_])

    def expr(self, type_: DType, depth: int) -> Expr:
        """A scalar expression of a dtype."""
        if depth == 0:
            return self.leaf(type_)
        kind = self.random.randrange(8)
        if kind == 0:
            return self.leaf(type_)
        if kind == 1:
            source = self.dtype()
            return cast_to(type_, self.clamped(self.expr(source, depth - 1), type_))
        if kind == 2:
            cond = self.condition(depth - 1)
            return select(cond, self.expr(type_, depth - 1), self.expr(type_, depth - 1))
        if kind == 3:
            cond = self.condition(depth - 1)
            return if_then_else(cond, self.expr(type_, depth - 1), self.expr(type_, depth - 1))
        a, b = self.expr(type_, depth - 1), self.expr(type_, depth - 1)
        if type_.is_bool:
            return binary(self.random.choice(("and", "or", "bitxor")), a, b) if kind < 7 else unary("not", a)
        if type_.is_float:
            return self.float_expr(a, b, kind)
        if kind == 4:
            divisor = binary("max", b, const(1, type_))
            return binary(self.random.choice(("floordiv", "floormod", "truncdiv", "truncmod")), a, divisor)
        if kind == 5:
            amount = binary("bitand", b, const(3, type_))
            return binary(self.random.choice(("shl", "shr")), a, amount)
        ops = ("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor")
        return (
            binary(self.random.choice(ops), a, b)
            if kind < 7
            else unary(self.random.choice(("neg", "bitnot")), a)
        )

    def clamped(self, value: Expr, to: DType) -> Expr:
        """Make a float small before it is cast to an integer, because the result is unspecified for large
        values.
        """
        if not value.dtype.is_float or to.is_float or to.is_bool:
            return value
        small = binary("min", binary("max", value, const(0.0, value.dtype)), const(100.0, value.dtype))
        return select(intrinsic("isnan", value), const(1.0, value.dtype), small)

    def float_expr(self, a: Expr, b: Expr, kind: int) -> Expr:
        if kind == 4:
            return intrinsic(self.random.choice(_FLOAT_CALLS), a)
        if kind == 5:
            return intrinsic("fma", a, b, a)
        if kind == 6:
            return binary(self.random.choice(("min", "max", "div")), a, b)
        return binary(self.random.choice(("add", "sub", "mul")), a, b) if self.random.random() < 0.8 else -a

    def condition(self, depth: int) -> Expr:
        type_ = self.dtype()
        ops = ("eq", "ne") if type_.is_bool else ("eq", "ne", "lt", "le", "gt", "ge")
        return binary(self.random.choice(ops), self.expr(type_, depth), self.expr(type_, depth))

    def leaf(self, type_: DType) -> Expr:
        kind = self.random.randrange(4)
        variables = [v for v in (*self.values, *self.indices) if v.dtype is type_]
        if kind == 0 and variables:
            return self.random.choice(variables)
        if kind == 1:
            if type_.is_float:
                return const(self.random.choice((0.0, 1.0, -0.5, 2.25, 0.1, -3.0)), type_)
            return const(self.random.choice((0, 1, 2, 5, 100)), type_)
        return self.buffer(type_)[self.index(), self.index()]

    # Statements

    def nest(self, depth: int) -> Stmt:
        return seq(*(self.stmt(depth) for _ in range(self.random.randrange(1, 4))))

    def stmt(self, depth: int) -> Stmt:
        kind = self.random.randrange(10) if depth else 0
        if kind < 2:
            return self.store()
        if kind < 5:
            return self.loop(depth)
        if kind == 5:
            orelse = self.nest(depth - 1) if self.random.random() < 0.5 else None
            return If(self.condition(1), self.nest(depth - 1), orelse)
        if kind == 6:
            type_ = self.dtype()
            value = self.expr(type_, 2)
            var = Var(self.name("t"), type_)
            self.values.append(var)
            body = self.nest(depth - 1)
            self.values.pop()
            return Let(var, value, body)
        if kind == 7:
            return self.alloc(depth)
        if kind == 8 and self.vectors:
            return self.vector_store()
        return self.block(depth)

    def store(self) -> Stmt:
        type_ = self.dtype()
        return store(self.buffer(type_), (self.index(), self.index()), self.expr(type_, 3))

    def loop(self, depth: int) -> Stmt:
        var, begin = Var(self.name("i")), self.random.choice((0, 0, 0, 2))
        self.indices.append(var)
        body = self.nest(depth - 1)
        self.indices.pop()
        kind = self.random.choice(("serial", "serial", "serial", "unrolled"))
        notes = {"pragma": (1, "x", 0.5)} if self.random.random() < 0.2 else {}
        return loop(var, self.random.randrange(1, 4), body, kind, begin=begin, annotations=notes)

    def alloc(self, depth: int) -> Stmt:
        """An allocated buffer that is filled before use, sometimes through a view with another shape."""
        type_ = self.dtype()
        fresh = Buffer(self.name("S"), (SIZE, SIZE), type_, scope="local")
        i, j = Var(self.name("i")), Var(self.name("j"))
        value = self.expr(type_, 1)
        fill = loop(i, SIZE, loop(j, SIZE, store(fresh, (i, j), value)))
        self.buffers.append(fresh)
        if self.random.random() < 0.5:
            transposed = Buffer(self.name("V"), (SIZE, SIZE), type_, strides=(1, SIZE), scope="local")
            self.buffers.append(transposed)
            body: Stmt = View(transposed, fresh, self.nest(depth - 1))
            self.buffers.pop()
        else:
            body = self.nest(depth - 1)
        self.buffers.pop()
        return Alloc(fresh, seq(fill, body))

    def vector_store(self) -> Stmt:
        """A vector store computed from one load, sometimes with a permutation of lanes or a guard."""
        type_ = self.random.choice([t for t in self.dtypes if not t.is_bool])
        lanes = self.random.choice((2, 4))
        row, target = self.index(), self.buffer(type_)
        at = ramp(const(self.random.randrange(SIZE - lanes + 1)), 1, lanes)
        value: Expr = self.buffer(type_)[row, at]
        other = broadcast(self.expr(type_, 1), lanes)
        value = binary(self.random.choice(("add", "mul", "max")), value, other)
        if self.random.random() < 0.3:
            value = vector_shuffle(value, [self.random.randrange(lanes) for _ in range(lanes)])
        if self.random.random() < 0.3:
            value = if_then_else(binary("lt", at, broadcast(const(5), lanes)), value, other)
        if self.random.random() < 0.2 and type_.is_float:
            return store(target, (row, self.index()), intrinsic("vector_reduce_max", value))
        return store(target, (row, at), value)

    def block(self, depth: int) -> Stmt:
        """A loop nest around a block with a spatial and a reduce axis."""
        type_ = self.random.choice([t for t in self.dtypes if not t.is_bool])
        i, k = Var(self.name("i")), Var(self.name("k"))
        vi, vk = Var(self.name("v")), Var(self.name("v"))
        rows, steps = self.random.randrange(1, SIZE + 1), self.random.randrange(1, 4)
        target, source = self.buffer(type_), self.buffer(type_)
        axes = (
            IterVar(vi, Range(const(0), const(rows))),
            IterVar(vk, Range(const(0), const(steps)), "reduce"),
        )
        column = const(self.random.randrange(SIZE))
        shifted = self.random.random() < 0.3
        predicate = binary("lt", vi, const(rows - 1)) if shifted else const(True, "bool")
        write = Region(target, (Range(vi, const(1)), Range(column, const(1))))
        read = Region(source, (Range(vi, const(1)), Range(const(0), const(SIZE))))
        update = binary("add", target[vi, column], source[vi, vk])
        block = Block(
            self.name("block"),
            axes,
            (i, k),
            (read,),
            (write,),
            store(target, (vi, column), update),
            store(target, (vi, column), const(0, type_)),
            predicate,
            {"note": "x"} if shifted else {},
        )
        return loop(i, rows, loop(k, steps, block))


def random_prim_func(seed: int, *, dtypes: tuple[str, ...] = DTYPES, vectors: bool = True) -> PrimFunc:
    """A random valid program with the parameters `A_<dtype>`, buffers of 8 x 8, `x: float32` and `n: int64`
    (n >= 0).
    """
    return ProgramMaker(seed, dtypes=dtypes, vectors=vectors).func()
