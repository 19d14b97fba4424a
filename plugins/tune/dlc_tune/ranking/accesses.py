"""The statements of lowered loops with their accesses: their strides, and their distinct bytes at each loop.

    found = statements(lowered.loops, Lines.of(description))
    found[0].accesses[0].touched         the memory that it reaches, at each loop

Indices are affine functions of loop variables, as far as these features see: quotients are scaled, the sides
of minima count alike, and addresses that are data are gathers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Var,
    const,
    const_value,
    loads_in,
    substitute,
)
from dlc_core.support.record import record
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Stmt, Store, View
from dlc_tune.ranking.operations import operations
from dlc_tune.ranking.touched import Lines, Touched, touched

Strides = Mapping[Var, float]
"""The elements by which an index moves when a variable grows by one."""


@record(frozen=True, eq=False)
class Loop:
    """A loop around a statement, with its extent as a number: that in the middle of outer loops."""

    var: Var
    extent: int
    kind: str
    thread: str = ""


@record(frozen=True, eq=False)
class Access:
    """The accesses of a statement to a buffer at one index."""

    buffer: Buffer
    is_store: bool
    strides: tuple[float, ...]
    """The stride in elements along each loop of the statement."""
    lanes: int
    """The lanes of the index itself."""
    lane_stride: float
    is_gather: bool
    """Whether the address is data."""
    in_register: bool
    """Whether code generators keep the element in a register."""
    touched: tuple[Touched, ...]
    """The memory that the loops from each one inwards access; the last entry is that of one iteration."""

    @property
    def innermost(self) -> float:
        """The stride along the innermost loop or the lanes of the index."""
        return self.lane_stride if self.lanes > 1 else self.strides[-1] if self.strides else 0.0


@record(frozen=True, eq=False)
class Statement:
    """A store or an evaluated call, the loops around it, outer before inner, and its accesses."""

    stmt: Store | Eval
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    conditions: int
    """The conditions around it."""

    @cached_property
    def operations(self) -> Mapping[str, int]:
        """The operations of one run, by kind."""
        return operations(self.stmt.exprs())

    @cached_property
    def times(self) -> float:
        """How often it runs."""
        return math.prod([loop.extent for loop in self.loops])

    def copies(self, kind: str) -> int:
        """The iterations of its loops of a kind."""
        return math.prod([loop.extent for loop in self.loops if loop.kind == kind])


def statements(func: PrimFunc, lines: Lines) -> list[Statement]:
    """The statements of a program over flat buffers, in order of execution."""
    walk = _Walk(lines)
    walk.visit(func.body, (), 0)
    return walk.found


class _Walk:
    def __init__(self, lines: Lines) -> None:
        self.found: list[Statement] = []
        self._lines = lines
        self._middle: dict[Var, Expr] = {}
        self._affine: dict[Expr, tuple[dict[Var, float], bool]] = {}
        self._allocated: set[Buffer] = set()

    def visit(self, root: Stmt, loops: tuple[Loop, ...], conditions: int) -> None:
        work: list[tuple[Stmt, tuple[Loop, ...], int]] = [(root, loops, conditions)]
        while work:
            stmt, loops, conditions = work.pop()
            match stmt:
                case For():
                    loops = (*loops, self._loop(stmt))
                case If():
                    conditions += 1
                case Let():
                    self._affine[stmt.var] = self._of(stmt.value)
                case Alloc():
                    self._allocated.add(stmt.buffer)
                case Store() | Eval():
                    self.found.append(self._statement(stmt, loops, conditions))
                case Block() | View():
                    pass
            work += [(child, loops, conditions) for child in reversed(stmt.child_stmts())]

    def _loop(self, stmt: For) -> Loop:
        extent, begin = (const_value(substitute(e, self._middle)) for e in (stmt.extent, stmt.begin))
        size = 1 if extent is None else max(1, extent)
        self._middle[stmt.var] = const((begin or 0) + size // 2, stmt.var.dtype)
        return Loop(stmt.var, size, stmt.kind, stmt.thread)

    def _statement(self, stmt: Store | Eval, loops: tuple[Loop, ...], conditions: int) -> Statement:
        wanted = [(e.buffer, e.indices, False) for e in loads_in(*stmt.exprs())]
        if isinstance(stmt, Store):
            wanted.append((stmt.buffer, stmt.indices, True))
        kept: dict[tuple[Buffer, tuple[Expr, ...]], bool] = {}
        for buffer, indices, is_store in wanted:
            kept[buffer, indices] = kept.get((buffer, indices), False) or is_store
        accesses = tuple(
            self._access(buffer, indices[-1], loops, is_store)
            for (buffer, indices), is_store in kept.items()
            if indices
        )
        return Statement(stmt, loops, accesses, conditions)

    def _access(self, buffer: Buffer, index: Expr, loops: tuple[Loop, ...], is_store: bool) -> Access:
        lanes, lane_stride = index.dtype.lanes, 0.0
        while isinstance(index, Binary) and isinstance(index.b, Broadcast):
            index = index.a
        if isinstance(index, Ramp):
            lane_stride = float(const_value(index.stride) or 0)
            index = index.base
        strides, is_gather = self._of(index)
        along = tuple([abs(strides.get(loop.var, 0.0)) for loop in loops])
        moves = [loop.kind for loop, stride in zip(loops, along) if stride]
        in_register = (
            buffer in self._allocated
            and not is_gather
            and all(kind in ("unrolled", "vectorized") for kind in moves)
        )
        dims = [(stride, loop.extent) for stride, loop in zip(along, loops)]
        if lanes > 1:
            dims.append((abs(lane_stride), lanes))
        levels = range(len(loops) + 1)
        if is_gather:
            # Each iteration may access a line of its own.
            line = float(self._lines.line)
            times = [math.prod([loop.extent for loop in loops[level:]]) for level in levels]
            reached = tuple(Touched(line * count, line, line * count) for count in times)
        else:
            reached = tuple(touched(dims[level:], buffer.dtype.itemsize, self._lines) for level in levels)
        return Access(buffer, is_store, along, lanes, lane_stride, is_gather, in_register, reached)

    def _of(self, root: Expr) -> tuple[dict[Var, float], bool]:
        """The strides of an index, and whether it is data."""
        known = self._affine.get(root)
        if known is None:
            known = self._affine[root] = self._parsed(root)
        return known

    def _parsed(self, e: Expr) -> tuple[dict[Var, float], bool]:
        match e:
            case Const():
                return {}, False
            case Var():
                return {e: 1.0}, False
            case Load():
                return {}, True
            case Broadcast(value=value) | Cast(a=value):
                return self._of(value)
            case Ramp():
                return self._of(e.base)
            case Binary():
                return self._binary(e)
            case Select(a=a, b=b):
                return _joined(self._of(a), self._of(b))
            case Call(args=args):
                found: tuple[dict[Var, float], bool] = ({}, False)
                for arg in args:
                    found = _joined(found, self._of(arg))
                return found
        return {}, bool(loads_in(e))

    def _binary(self, e: Binary) -> tuple[dict[Var, float], bool]:
        (a, data), (b, more) = self._of(e.a), self._of(e.b)
        is_data = data or more
        number = const_value(e.b)
        match e.op:
            case "add" | "sub":
                sign = 1.0 if e.op == "add" else -1.0
                total = dict(a)
                for var, stride in b.items():
                    total[var] = total.get(var, 0.0) + sign * stride
                return total, is_data
            case "mul" if number is not None:
                return {var: stride * number for var, stride in a.items()}, is_data
            case "floordiv" | "truncdiv" | "div" if number:
                return {var: stride / number for var, stride in a.items()}, is_data
            case "floormod" | "truncmod" if number:
                return {var: stride for var, stride in a.items() if abs(stride) < abs(number)}, is_data
        return _joined((a, data), (b, more))


def _joined(
    a: tuple[dict[Var, float], bool], b: tuple[dict[Var, float], bool]
) -> tuple[dict[Var, float], bool]:
    """The larger strides of two alternatives."""
    total = dict(a[0])
    for var, stride in b[0].items():
        total[var] = max(total.get(var, 0.0), stride, key=abs)
    return total, a[1] or b[1]


__all__ = ["Access", "Loop", "Statement", "statements"]
