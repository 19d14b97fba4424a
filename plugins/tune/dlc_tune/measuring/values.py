"""Values of the parameters of a kernel, for measurements and for comparisons of results.

Floats are standard normal. Factors of long sums are divided by the square root of their length, so that
results are of magnitude one and the tolerances of their dtypes hold for every order of summation. Integers
have the full range of their dtype, except where a kernel uses them:

- as an index: they are in range, and zero where the range is not clear
- as the extent of a loop or in the condition of one: zero
- as a divisor: from 1
- as the distance of a shift: less than the width of the shifted number
- wide ones that become floats: from -1000 to 1000, because functions lose all digits of larger arguments
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.convert import convert
from dlc_core.ir.expr import (
    Binary,
    Call,
    Cast,
    Expr,
    Load,
    Var,
    const,
    const_value,
    loads_in,
    post_order,
    substitute,
    transform,
)
from dlc_core.op.declare import NDArray
from dlc_core.tir.failures import REPORT
from dlc_core.tir.functor import exprs_of, stmts, stores_in
from dlc_core.tir.stmt import Block, For, Let, PrimFunc, Store, While

DIVISIONS = ("div", "floordiv", "floormod", "truncdiv", "truncmod")
SHIFTS = ("shl", "shr")
LONG_SUM = 16
"""Sums of more terms have scaled factors."""
WIDE, LARGEST = 16, 1000
"""Integers of more than WIDE bits that become floats have at most this magnitude."""


class Values:
    """The values of the parameters of a kernel with these sizes of its dims."""

    def __init__(self, func: PrimFunc, dims: Mapping[Var, int], seed: int) -> None:
        self.func = func
        self.dims = dims
        self._seed = seed

    def of(self, buffer: Buffer) -> NDArray:
        """The array of a parameter. Raises UsageError for a dtype without numbers."""
        shape = [eval_expr(d, self.dims) for d in buffer.shape]
        dtype = buffer.dtype
        rng = np.random.default_rng((self._seed, self.func.params.index(buffer)))
        if dtype.is_bool:
            return rng.integers(0, 2, shape).astype(np.bool_)
        if dtype.is_int:
            low, high = self._range(buffer)
            kind = np.int64 if dtype.kind == "int" else np.uint64
            return rng.integers(low, high, shape, dtype=kind, endpoint=True).astype(dtype.numpy)
        if dtype.is_float:
            drawn = rng.standard_normal(shape, dtype=np.float32) * np.float32(self._scales.get(buffer, 1.0))
            return np.ascontiguousarray(convert(drawn, dtype)).reshape(shape)
        if dtype.kind == "complex":
            pair = rng.standard_normal((2, *shape))
            return np.asarray(pair[0] + 1j * pair[1], dtype.numpy)
        raise UsageError(f"no values for the parameter {buffer.name!r}", why=f"its dtype is {dtype.name}")

    def _range(self, buffer: Buffer) -> tuple[int, int]:
        """The least and the largest value of an integer parameter."""
        bits, signed = buffer.dtype.bits, buffer.dtype.kind == "int"
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        if buffer in self._counts:
            return 0, 0
        if buffer in self._indices:
            return 0, min(high, self._indices[buffer])
        if buffer in self._divisors:
            return 1, high
        if buffer in self._shifts:
            return 0, min(high, self._shifts[buffer])
        if bits > WIDE and buffer in self._floats:
            return (-LARGEST if signed else 0), LARGEST
        return low, high

    @cached_property
    def _exprs(self) -> list[Expr]:
        return post_order(*(e for stmt in stmts(self.func.body) for e in exprs_of(stmt)))

    @cached_property
    def _sources(self) -> dict[Buffer, set[Buffer]]:
        """The buffers from which the elements of each buffer are computed."""
        found: dict[Buffer, set[Buffer]] = {}
        for store in stores_in(self.func.body):
            value = substitute(store.value, self._lets)
            found.setdefault(store.buffer, set()).update(load.buffer for load in loads_in(value))
        return found

    @cached_property
    def _lets(self) -> dict[Var, Expr]:
        """The variables that stand for expressions, with these, in which no other such variable occurs."""
        found: dict[Var, Expr] = {}
        for stmt in stmts(self.func.body):
            if isinstance(stmt, Let):
                found[stmt.var] = substitute(stmt.value, found)
        return found

    def _behind(self, *roots: Expr) -> set[Buffer]:
        """The buffers on which expressions depend, directly or by temporaries."""
        work = [load.buffer for root in roots for load in loads_in(substitute(root, self._lets))]
        found: set[Buffer] = set()
        while work:
            buffer = work.pop()
            if buffer not in found:
                found.add(buffer)
                work.extend(self._sources.get(buffer, ()))
        return found

    def _positions(self) -> Iterator[tuple[Expr, Expr]]:
        """Every index of an access or of a check, with the size of the dim that it is in."""
        for expr in self._exprs:
            if isinstance(expr, Load):
                yield from zip(expr.indices, expr.buffer.shape, strict=False)
            elif isinstance(expr, Call) and expr.name == REPORT:
                yield expr.args[0], expr.args[1]
        for store in stores_in(self.func.body):
            yield from zip(store.indices, store.buffer.shape, strict=False)

    @cached_property
    def _indices(self) -> dict[Buffer, int]:
        """The buffers whose elements are indices, with the largest that is in range."""
        found: dict[Buffer, int] = {}
        for index, size in self._positions():
            for buffer in self._behind(index):
                largest = self._largest_index(index, size)
                found[buffer] = min(largest, found.get(buffer, largest))
        return found

    def _largest_index(self, index: Expr, size: Expr) -> int:
        """The largest value of the loads in an index for which it is in range; 0 if that is not clear."""
        try:
            extent = eval_expr(size, self.dims)
            if extent < 1 or self._index_at(index, 0) not in range(extent):
                return 0
            return extent - 1 if self._index_at(index, extent - 1) in range(extent) else 0
        except UsageError:
            return 0

    def _index_at(self, index: Expr, value: int) -> int:
        def replaced(expr: Expr) -> Expr | None:
            if isinstance(expr, Call) and expr.name == REPORT:
                return expr.args[0]
            return const(value, expr.dtype) if isinstance(expr, Load) and expr.dtype.is_int else None

        return eval_expr(transform(substitute(index, self._lets), replaced), self.dims)

    @cached_property
    def _counts(self) -> set[Buffer]:
        """The buffers that decide how often a loop runs."""
        found: set[Buffer] = set()
        for stmt in stmts(self.func.body):
            if isinstance(stmt, For):
                found |= self._behind(stmt.begin, stmt.extent)
            elif isinstance(stmt, While):
                found |= self._behind(stmt.cond)
        return found

    @cached_property
    def _divisors(self) -> set[Buffer]:
        return self._behind(*(e.b for e in self._exprs if isinstance(e, Binary) and e.op in DIVISIONS))

    @cached_property
    def _shifts(self) -> dict[Buffer, int]:
        """The buffers whose elements are distances of shifts, with the largest one."""
        found: dict[Buffer, int] = {}
        for expr in self._exprs:
            if isinstance(expr, Binary) and expr.op in SHIFTS:
                for buffer in self._behind(expr.b):
                    largest = expr.dtype.bits - 1
                    found[buffer] = min(largest, found.get(buffer, largest))
        return found

    @cached_property
    def _floats(self) -> set[Buffer]:
        """The buffers whose elements become floats."""
        return self._behind(*(e.a for e in self._exprs if isinstance(e, Cast) and e.dtype.is_float))

    @cached_property
    def _scales(self) -> dict[Buffer, float]:
        """The factors of float parameters that are multiplied in long sums: those of the last such parameter
        of each sum, which in most models is a weight.
        """
        found: dict[Buffer, float] = {}
        for stmt in stmts(self.func.body):
            length = self._sum_length(stmt) if isinstance(stmt, Block) else 1
            if length <= LONG_SUM or not isinstance(stmt, Block):
                continue
            read = self._behind(*(s.value for s in stmts(stmt.body) if isinstance(s, Store)))
            factors = [b for b in self.func.buffers if b in read and b.dtype.is_float]
            written = {s.buffer for s in stmts(stmt.body) if isinstance(s, Store)}
            factors = [b for b in factors if b not in written]
            if len(factors) > 1 and factors[-1] not in found:
                found[factors[-1]] = length**-0.5
        return found

    def _sum_length(self, block: Block) -> int:
        length = 1
        for axis in block.axes:
            if axis.kind == "reduce":
                known = const_value(axis.dom.extent)
                try:
                    length *= eval_expr(axis.dom.extent, self.dims) if known is None else known
                except UsageError:
                    return 1
        return length


__all__ = ["Values"]
