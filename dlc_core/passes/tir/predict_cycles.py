"""predict_cycles: predict the cycles in which a core issues the instructions of a scheduled kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import ClassVar

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
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
    Unary,
    Var,
    const,
    const_value,
    loads_in,
    post_order,
    substitute,
)
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.support.record import record
from dlc_core.target.cost import CYCLES
from dlc_core.target.description import Description
from dlc_core.target.heuristics import ISSUE
from dlc_core.target.source.formulas import SourceCode
from dlc_core.target.vmath import FORMULAS
from dlc_core.tir.functor import exprs_of, stmts, stmts_of
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, While

_DIVISIONS = frozenset({"div", "floordiv", "floormod", "truncdiv", "truncmod"})
_LIBRARY = frozenset({"sin", "cos", "tan", "atan2", "pow"})
"""Functions with long code that is not a shared formula."""
_LEAVES = frozenset({Const, Var})
_FREE = frozenset({"vector_concat", "reinterpret", "address_of", "prefetch"})


@record(frozen=True)
class PredictCycles(PrimFuncPass):
    """Predict the cycles of each kernel for CPU cores, as the attribute `cycles`.

    The instructions of the final loops are counted: how wide their vectors are, which loads are strided, what
    a loop computes once and what in every iteration.  Memory beyond L1 is not considered.  A kernel whose
    loops depend on dims gets no prediction.
    """

    name: ClassVar[str] = "predict_cycles"
    min_level: ClassVar[int] = 1

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if context.target is None or "rule" not in func.attrs:
            return func
        machine = context.target.describe()
        if machine.thread_axes or machine.units:
            return func
        cycles = issue_cycles(func, machine)
        return func if cycles is None else func.with_attrs(**{CYCLES: round(cycles)})


@record(frozen=True)
class IssueParts:
    """The cycles of a program by kind of instruction, and those of iterations that wait for values in memory,
    one after the other."""

    vector: float
    loads: float
    stores: float
    scalar: float
    carried: float

    @property
    def cycles(self) -> float:
        """The cycles of all: the slowest kind determines them; a part of the others is added."""
        *others, most = sorted((self.vector, self.loads, self.stores, self.scalar))
        return max(most + ISSUE.overlap * sum(others), self.carried)


def issue_parts(func: PrimFunc, machine: Description) -> IssueParts | None:
    """Return the cycles in which one thread issues the instructions of a program, by kind; None if they
    depend on dims.

    Loads, stores, vector arithmetic and scalar arithmetic are issued at the same time, each at its own rate.
    Loops of kind "unrolled" that are not unrolled yet count as the code that they become.  Iterations that
    read what the one before stored wait for it.
    """
    counter = _Counter(func, machine)
    counter.visit(func.body)
    if counter.is_unknown:
        return None
    return IssueParts(counter.vector, counter.loads, counter.stores, counter.scalar, counter.carried)


def issue_cycles(func: PrimFunc, machine: Description) -> float | None:
    """Return the cycles of `issue_parts` in total; None if they depend on dims."""
    parts = issue_parts(func, machine)
    return None if parts is None else parts.cycles


_Copies = tuple[int, Var, int]
"""An unrolled loop: its index among the enclosing loops, its variable, and its extent."""


class _Counter:
    """Adds the cycles of instructions by kind.

    An expression counts once for each iteration of the innermost loop whose variable it uses, because code
    generators move it out of other loops.  Loads of memory that the kernel writes are not moved.
    """

    def __init__(self, func: PrimFunc, machine: Description) -> None:
        self.vector = self.loads = self.stores = self.scalar = 0.0
        self.carried = 0.0
        """The cycles of iterations that wait for a value in memory, one after the other."""
        self.is_unknown = False
        self._rates = machine.rates
        units = machine.vector_units / machine.fma_per_cycle
        self._unit = max(64.0, machine.vector_bits * units)
        """The bits that a vector unit computes at once."""
        self._written = {one.buffer for one in stmts_of(func.body, Store)}
        self._registers = _registers(func)
        self._times = [1.0]
        """How often the body of each enclosing loop runs; the outermost is the function."""
        self._innermost = [0]
        """The indices in `_times` of the enclosing loops that are not unrolled."""
        self._level: dict[Expr, int] = {}
        """The innermost loop, not unrolled, that each variable or expression depends on, by its index in
        `_times`."""
        self._copies: dict[Expr, frozenset[_Copies]] = {}
        """The unrolled loops that each variable or expression depends on."""
        self._of_loop: list[list[Expr]] = [[]]
        self._waits: list[float] = [0.0]
        """The cycles for which an iteration of each loop waits for the one before."""
        self._middle: dict[Var, Expr] = {}
        self._data: set[Expr] = set()
        """Names of values that are loaded."""

    def visit(self, stmt: Stmt) -> None:
        while isinstance(stmt, Alloc | View | Let | Block):
            if isinstance(stmt, Let):
                self._expressions((stmt.value,))
                self._level[stmt.var] = self._level.get(stmt.value, 0)
                if stmt.value in self._copies:
                    self._copies[stmt.var] = self._copies[stmt.value]
                if loads_in(stmt.value):
                    self._data.add(stmt.var)
            stmt = stmt.body
        match stmt:
            case Seq():
                for each in stmt.stmts:
                    self.visit(each)
            case For():
                self._loop(stmt)
            case If():
                # The other side is the rarer one: checks fail, and borders are thin.
                self._expressions((stmt.cond,))
                self.visit(stmt.then)
            case Store():
                self._expressions((*stmt.indices, stmt.value))
                self._access(stmt.buffer, stmt.indices, self._times[-1], is_store=True)
                self._carry(stmt)
            case Eval():
                self._expressions((stmt.value,))
            case While():
                self.is_unknown = True

    def _loop(self, loop: For) -> None:
        extent, begin = (const_value(substitute(e, self._middle)) for e in (loop.extent, loop.begin))
        if extent is None:
            self.is_unknown = True
            return
        self._expressions((loop.begin, loop.extent))
        is_loop = loop.kind != "unrolled"
        if is_loop:
            self.scalar += ISSUE.loop_cycles * self._times[-1]
            self._level[loop.var] = len(self._times)
        else:
            self._copies[loop.var] = frozenset({(len(self._times), loop.var, extent)})
        if begin is not None:
            self._middle[loop.var] = const(begin + extent // 2, loop.var.dtype)
        self._times.append(self._times[-1] * max(0, extent))
        self._of_loop.append([])
        if is_loop:
            self.scalar += ISSUE.iteration_cycles * self._times[-1]
            self._innermost.append(len(self._times) - 1)
        self._waits.append(0.0)
        self.visit(loop.body)
        wait, times = self._waits.pop(), self._times.pop()
        if is_loop:
            self._innermost.pop()
            self.carried += wait * times
        else:
            self._waits[-1] = max(self._waits[-1], wait)
        for e in self._of_loop.pop():
            self._level.pop(e, None)

    def _carry(self, store: Store) -> None:
        """Count a store to memory of which the next iteration may read the same element."""
        if store.buffer in self._registers or len(self._innermost) == 1:
            return
        same = [e for e in loads_in(store.value) if e.buffer is store.buffer and e.indices == store.indices]
        index = store.indices[-1] if store.indices else None
        if not same or index is None:
            return
        known = self._level.get(index, 0) < self._innermost[-1]
        if known or not self._data.isdisjoint(post_order(index)):
            self._waits[-1] = ISSUE.forward_cycles + self._rates.fma_latency

    def _expressions(self, roots: Sequence[Expr]) -> None:
        order = self._uncounted(roots)
        part = _evaluated(roots, order)
        for e in order:
            level = max((self._level.get(child, 0) for child in e.children), default=0)
            if isinstance(e, Load) and e.buffer in self._written:
                level = self._innermost[-1]
            self._level[e] = level
            self._of_loop[level].append(e)
            times = self._times[level] * part.get(e, 1.0)
            if self._copies:
                copies = frozenset[_Copies]().union(*(self._copies.get(child, ()) for child in e.children))
                if copies:
                    self._copies[e] = copies
                    times *= prod(extent for depth, _, extent in copies if depth > level)
            self._expression(e, times)

    def _uncounted(self, roots: Sequence[Expr]) -> list[Expr]:
        """Return the operations that have not been counted, operands first.

        The operands of a counted operation have been counted, so the walk stops there.
        """
        known, found = self._level, dict[Expr, None]()
        for root in roots:
            work = [root]
            while work:
                e = work[-1]
                if e not in found and e not in known and type(e) not in _LEAVES:
                    waiting = [
                        operand
                        for operand in reversed(e.children)
                        if type(operand) not in _LEAVES and operand not in found and operand not in known
                    ]
                    if waiting:
                        work += waiting
                        continue
                    found[e] = None
                work.pop()
        return list(found)

    def _expression(self, e: Expr, times: float) -> None:
        match e:
            case Load():
                self._access(e.buffer, e.indices, times, is_store=False)
            case Binary():
                self._binary(e, times)
            case Cast():
                wider = max(e.dtype, e.a.dtype, key=lambda each: each.bits)
                self._simple(wider, times)
            case Select() | Unary():
                self._simple(e.dtype, times)
            case Call() if e.name not in _FREE:
                self._call(e, times)

    def _binary(self, e: Binary, times: float) -> None:
        operand = e.a.dtype
        if e.op in _DIVISIONS and not operand.is_float:
            self._integer_division(e, times)
        elif e.op == "div" and not isinstance(_scalar(e.b), Const):
            self.vector += ISSUE.division_cycles * self._units(operand) * times
        elif operand.is_float:
            # A product that is added to something is one multiply-add with it.
            joined = e.op == "add" and any(isinstance(x, Binary) and x.op == "mul" for x in (e.a, e.b))
            if not joined:
                self.vector += self._units(operand) * times / self._rates.fma_per_cycle
        else:
            self._simple(operand, times)

    def _integer_division(self, e: Binary, times: float) -> None:
        divisor = const_value(_scalar(e.b))
        if divisor is not None and divisor & (divisor - 1) == 0:
            self._simple(e.a.dtype, 2 * times)
            return
        cycles = ISSUE.integer_division_cycles if divisor is None else ISSUE.multiplied_division_cycles
        self.scalar += cycles * e.dtype.lanes * times

    def _call(self, e: Call, times: float) -> None:
        if e.name == "report_index":
            self.vector += ISSUE.index_cycles * e.dtype.lanes * times
            return
        if not e.dtype.is_float or e.name in ("if_then_else", "vector_shuffle"):
            self._simple(e.dtype, times)
            return
        operations, divisions = _formula(e.name, 64 if e.dtype.bits == 64 else 32)
        self._simple(e.dtype, operations * times)
        self.vector += ISSUE.division_cycles * divisions * self._units(e.dtype) * times

    def _simple(self, type_: DType, times: float) -> None:
        """Add an instruction of integers, of bits, or among others of a formula."""
        if type_.lanes == 1 and not type_.is_float:
            self.scalar += ISSUE.scalar_cycles * times
        else:
            self.vector += self._units(type_) * times / (2 * self._rates.fma_per_cycle)

    def _units(self, type_: DType) -> float:
        """The instructions of vector units for a value."""
        return max(1.0, type_.bits * type_.lanes / self._unit)

    def _access(self, buffer: Buffer, indices: Sequence[Expr], times: float, *, is_store: bool) -> None:
        if buffer in self._registers or not indices:
            return
        index = indices[-1]
        lanes = index.dtype.lanes
        rate = 1.0 if is_store else self._rates.loads_per_cycle
        if lanes == 1 or _is_contiguous(index):
            cycles = self._units(buffer.dtype.with_lanes(lanes)) / rate
        else:
            cycles = ISSUE.lane_cycles * lanes
        if is_store:
            self.stores += cycles * times
        else:
            self.loads += cycles * times


def _registers(func: PrimFunc) -> set[Buffer]:
    """Return the temporaries that code generators keep in registers: all of their indices are constant when
    loops are unrolled."""
    found = {one.buffer for one in stmts_of(func.body, Alloc)}
    steps = {loop.var: const(0) for loop in stmts_of(func.body, For) if loop.kind == "unrolled"}
    for stmt in stmts(func.body):
        accesses: list[Load | Store] = [*loads_in(*exprs_of(stmt))]
        if isinstance(stmt, Store):
            accesses.append(stmt)
        for access in accesses:
            if access.buffer in found:
                bases = (i.base if isinstance(i, Ramp) else i for i in access.indices)
                if any(const_value(substitute(base, steps) if steps else base) is None for base in bases):
                    found.remove(access.buffer)
    return found


def _scalar(e: Expr) -> Expr:
    """Return the value of all lanes, if they are equal by construction; else the vector."""
    return e.value if isinstance(e, Broadcast) else e


def _is_contiguous(index: Expr) -> bool:
    """Whether the lanes of a vector index are neighbours."""
    while isinstance(index, Binary) and index.op in ("add", "sub") and isinstance(index.b, Broadcast):
        index = index.a
    return isinstance(index, Ramp) and const_value(index.stride) == 1


def _evaluated(roots: Sequence[Expr], order: Sequence[Expr]) -> dict[Expr, float]:
    """Return how often each expression is evaluated, if scalar conditions choose each of their sides as often
    as the other; empty if there are no such conditions."""
    if not any(_is_branch(e) for e in order):
        return {}
    found = dict.fromkeys(roots, 1.0)
    for e in reversed(order):
        for number, child in enumerate(e.children):
            part = found[e] / 2 if number and _is_branch(e) else found[e]
            found[child] = max(found.get(child, 0.0), part)
    return found


def _is_branch(e: Expr) -> bool:
    if not isinstance(e, Call) or e.name != "if_then_else":
        return False
    return isinstance(e.args[0], Broadcast) or e.args[0].dtype.lanes == 1


@lru_cache(maxsize=256)
def _formula(name: str, bits: int) -> tuple[int, int]:
    """Return the numbers of operations and divisions of a function."""
    if name in ("sqrt", "rsqrt"):
        return 0, 2 if name == "sqrt" else 3
    if name not in FORMULAS:
        return (ISSUE.library_steps, 0) if name in _LIBRARY else (1, 0)
    element = dtype(f"float{bits}")
    code = SourceCode(element, lambda helper, _: helper, lambda each: each.name)
    FORMULAS[name](code, "x")
    return len(code.lines), sum(" / " in line for line in code.lines)


__all__ = ["IssueParts", "PredictCycles", "issue_cycles", "issue_parts"]
