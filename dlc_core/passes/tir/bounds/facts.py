"""Facts at a statement: a chain of loops, conditions and names, and their analyzer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from dlc_core.arith import Analyzer
from dlc_core.arith.interval import Interval
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Const,
    Expr,
    Var,
    conjuncts,
    const,
    const_value,
    eq,
    free_vars,
    loads_in,
    post_order,
    substitute,
)
from dlc_core.passes.tir.bounds.ranges import LARGEST, Ranges
from dlc_core.passes.tir.effects import Memory
from dlc_core.passes.tir.safety import DIVISIONS
from dlc_core.support.record import record
from dlc_core.tir.functor import child_stmts
from dlc_core.tir.lanes import lane_of
from dlc_core.tir.sizes import SIZES
from dlc_core.tir.stmt import Block, For, If, Let, PrimFunc, Stmt, While


@record(frozen=True, eq=False)
class Fact:
    """A fact that holds in a statement `body`, and the outer facts."""

    outer: Fact | None
    depth: int
    body: Stmt | None


@record(frozen=True, eq=False)
class LoopRange(Fact):
    """`var` is in [begin, begin + extent)."""

    var: Var
    begin: Expr
    extent: Expr


@record(frozen=True, eq=False)
class Holds(Fact):
    """A condition holds, or with `negated` does not.  `body` is None for a side of an expression."""

    cond: Expr
    negated: bool = False


@record(frozen=True, eq=False)
class Named(Fact):
    """`var` is a name of `value`."""

    var: Var
    value: Expr


class FactAnalyzer:
    """An analyzer with the facts of a chain.  When the chain changes, the common prefix is kept."""

    def __init__(self, func: PrimFunc, ranges: Ranges, given: Sequence[Expr] = ()) -> None:
        self._func = func
        self._ranges = ranges
        self._memory: Memory | None = None
        self._chain: list[Fact] = []
        self._scopes: list[AbstractContextManager[None]] = []
        self._divisors: dict[Expr, tuple[Expr, ...]] = {}
        self.analyzer = Analyzer()
        self.dims = Analyzer()
        """An analyzer with facts about the program's sizes only."""
        for scalar in func.scalars:
            if scalar.dtype.is_int:
                self.analyzer.declare_dim(scalar, low=0)
                self.dims.declare_dim(scalar, low=0)
        for size in func.attrs.get(SIZES, ()):
            self.analyzer.add_assumptions(size >= 0)
            self.dims.add_assumptions(size >= 0)
        self.analyzer.add_assumptions(*given)
        self.dims.add_assumptions(*given)

    def at(self, fact: Fact | None) -> Analyzer:
        """Return the analyzer with a chain of facts."""
        new: list[Fact] = []
        while fact is not None and not self._is_entered(fact):
            new.append(fact)
            fact = fact.outer
        depth = 0 if fact is None else fact.depth + 1
        while len(self._chain) > depth:
            self._chain.pop()
            self._scopes.pop().__exit__(None, None, None)
        for one in reversed(new):
            scope = self.analyzer.scope()
            scope.__enter__()
            self._chain.append(one)
            self._scopes.append(scope)
            self._learn(one)
        return self.analyzer

    def open_divisors(self, *exprs: Expr) -> list[Expr]:
        """The divisors of integer divisions that the current facts do not prove to be positive.

        Proofs take divisors for different from zero, but a program may divide by zero and goes on with 0.
        """
        divisors = dict.fromkeys(d for e in exprs for d in self._divisors_of(e))
        return [d for d in divisors if d.dtype is not INDEX or not self.analyzer.prove(d > 0)]

    def _divisors_of(self, e: Expr) -> tuple[Expr, ...]:
        """The divisors in an expression that are no literals."""
        found = self._divisors.get(e)
        if found is None:
            parts = [
                p for p in post_order(e) if isinstance(p, Binary) and p.op in DIVISIONS and p.dtype.is_int
            ]
            divisors = (p.b.value if isinstance(p.b, Broadcast) else p.b for p in parts)
            found = self._divisors[e] = tuple(d for d in divisors if not const_value(d))
        return found

    def variables(self, fact: Fact | None) -> list[Var]:
        """Return the variables of the loops, blocks and names of a chain of facts, inner ones first."""
        found = []
        while fact is not None:
            if isinstance(fact, (LoopRange, Named)) and fact.var.dtype is INDEX:
                found.append(fact.var)
            fact = fact.outer
        return found

    def conditions(self, fact: Fact | None) -> list[Expr]:
        """Return the scalar conditions of a chain of facts, inner ones first; false ones are negated."""
        found = []
        while fact is not None:
            if isinstance(fact, Holds):
                parts = [part for part in self._unchanged_parts(fact) if not self.open_divisors(part)]
                found += [~part if fact.negated else part for part in parts]
            elif isinstance(fact, LoopRange) and self._is_exact(fact):
                found += _limits(fact)
            fact = fact.outer
        return found

    def lane_conditions(self, fact: Fact | None) -> list[Expr]:
        """Return the masks of a chain of facts, inner ones first."""
        found = []
        while fact is not None:
            if isinstance(fact, Holds) and fact.cond.dtype.lanes > 1 and fact.body is not None:
                found.append(fact.cond)
            fact = fact.outer
        return found

    def _is_entered(self, fact: Fact) -> bool:
        return fact.depth < len(self._chain) and self._chain[fact.depth] is fact

    def _learn(self, fact: Fact) -> None:
        az = self.analyzer
        if isinstance(fact, LoopRange):
            self._learn_range(fact)
        elif isinstance(fact, Holds):
            for part in self._unchanged_parts(fact):
                if not self.open_divisors(part):
                    az.add_assumptions(~part if fact.negated else part)
        elif isinstance(fact, Named) and fact.var.dtype.is_int and fact.var.dtype.lanes == 1:
            exact = not (
                loads_in(fact.value) or self.open_divisors(fact.value) or self._ranges.may_wrap(fact.value)
            )
            if fact.var.dtype is INDEX and exact:
                az.add_assumptions(eq(fact.var, fact.value))
            else:
                self._learn_interval(fact.var, self._ranges.of(fact.value))

    def _learn_range(self, fact: LoopRange) -> None:
        az, var = self.analyzer, fact.var
        if var.dtype is not INDEX or not self._is_exact(fact):
            self._learn_interval(var, self._ranges.of(var))
            return
        begin, extent = az.simplify(fact.begin), az.simplify(fact.extent)
        if free_vars(extent):
            # In a loop body, the loop has at least one iteration.
            self._learn_positive(extent)
            extent = az.simplify(fact.extent)
        az.bind(var, begin, extent)
        variables = self.variables(fact)
        if isinstance(extent, Const) or set(free_vars(begin, extent)).isdisjoint(variables):
            return
        # The union of the ranges over all outer iterations is not empty either; this may imply more.
        ends = az.bounds(var, variables)
        if ends is not None and free_vars(*ends):
            self._learn_positive(az.simplify(ends[1] - ends[0] + 1))

    def _learn_positive(self, e: Expr) -> None:
        """Learn that an extent is positive, and what follows for its dividends and its factors."""
        az = self.analyzer
        work = [e]
        while work:
            e = work.pop()
            az.add_assumptions(e > 0)
            if isinstance(e, Binary) and e.op in ("floordiv", "floormod"):
                if e.op == "floordiv" and az.prove(e.b > 0):
                    work.append(az.simplify(e.a - e.b + 1))
                elif az.prove(e.a >= 0):
                    work.append(e.a)
                continue
            terms, constant = az.linear(e)
            if constant or not terms:
                continue
            factors = [_factors(term) for term in terms]
            common = [f for f in dict.fromkeys(factors[0]) if all(f in own for own in factors[1:])]
            for one in common:
                if az.prove(one >= 0) and (len(terms) > 1 or len(factors[0]) > 1):
                    rest = sum(
                        (k * _product_without(own, one) for own, k in zip(factors, terms.values())), const(0)
                    )
                    work += [one, az.simplify(rest)]
                    break

    def _learn_interval(self, var: Var, known: Interval) -> None:
        low, high = known
        if var.dtype is not INDEX:
            return  # the analyzer knows the bounds of other types, and treats their casts as atoms
        if low > -LARGEST:
            self.analyzer.add_assumptions(var >= int(low))
        if high < LARGEST:
            self.analyzer.add_assumptions(var <= int(high))

    def _unchanged_parts(self, fact: Holds) -> list[Expr]:
        """Return the parts of a condition that the writes of the guarded statement cannot change. Parts whose
        arithmetic may wrap around are left out: proofs compute with unbounded integers.
        """
        if fact.cond.dtype.lanes > 1:
            return []
        parts = [fact.cond] if fact.negated else conjuncts(fact.cond)
        return [
            part
            for part in parts
            if not self._ranges.may_wrap(part) and (fact.body is None or self._is_invariant(fact.body, part))
        ]

    def _is_exact(self, fact: LoopRange) -> bool:
        """Whether the ends of a loop are the same in all iterations, do not wrap around, and divide by
        nothing that may be 0.
        """
        exprs = fact.begin, fact.extent
        return (
            self._is_invariant(fact.body, *exprs)
            and not self.open_divisors(*exprs)
            and not any(map(self._ranges.may_wrap, exprs))
        )

    def _is_invariant(self, body: Stmt | None, *exprs: Expr) -> bool:
        if body is None or not loads_in(*exprs):
            return True
        if self._memory is None:
            self._memory = Memory(self._func.body)
        return self._memory.preserves(body, *exprs)


def _limits(fact: LoopRange) -> list[Expr]:
    """Return conditions that the variable of a loop whose extent is a minimum is below each operand.

    A `max(..., 0)` around the minimum is dropped, because the extent is positive where the body runs.
    """
    found = []
    work = [(fact.extent, 0)]
    while work:
        e, more = work.pop()
        if isinstance(e, Binary) and e.op == "max" and const_value(e.b) == 0 and not more:
            work.append((e.a, 0))
        elif isinstance(e, Binary) and e.op == "add" and isinstance(e.b, Const):
            work.append((e.a, more + int(e.b.value)))
        elif isinstance(e, Binary) and e.op == "min":
            work += [(e.b, more), (e.a, more)]
        elif e is not fact.extent and fact.var.dtype is INDEX:
            found.append(fact.var < fact.begin + e + more)
    return found


def _factors(e: Expr) -> list[Expr]:
    """Return the factors of a product."""
    found: list[Expr] = []
    work = [e]
    while work:
        one = work.pop()
        if isinstance(one, Binary) and one.op == "mul":
            work += [one.b, one.a]
        else:
            found.append(one)
    return found


def _product_without(factors: list[Expr], one: Expr) -> Expr:
    """Return the product of all factors but one."""
    remaining = list(factors)
    remaining.remove(one)
    product: Expr = const(1)
    for factor in remaining:
        product = product * factor
    return product


def in_lane(expr: Expr, lane: Expr) -> Expr | None:
    """Return one lane of a vector expression as a scalar; None if an operand has no such form."""
    if expr.dtype.lanes == 1:
        return expr
    made = lane_of(expr, lane)
    return made if made.dtype.lanes == 1 else None


def with_facts(root: Stmt) -> Iterator[tuple[Stmt, Fact | None]]:
    """Yield every statement with the facts at its position, in order of execution."""
    work: list[tuple[Stmt, Fact | None]] = [(root, None)]
    while work:
        stmt, fact = work.pop()
        yield stmt, fact
        depth = 0 if fact is None else fact.depth + 1
        inside: Fact | None = fact
        match stmt:
            case For():
                if isinstance(stmt.extent, Const) and stmt.extent.value <= 0:
                    continue  # unreachable
                inside = LoopRange(fact, depth, stmt.body, stmt.var, stmt.begin, stmt.extent)
            case While():
                inside = Holds(fact, depth, stmt.body, stmt.cond)
            case Let():
                inside = Named(fact, depth, stmt.body, stmt.var, stmt.value)
            case If():
                always = const_value(stmt.cond)
                if stmt.orelse is not None and not always:
                    work.append((stmt.orelse, Holds(fact, depth, stmt.orelse, stmt.cond, negated=True)))
                if always is None or always:
                    work.append((stmt.then, Holds(fact, depth, stmt.then, stmt.cond)))
                continue
            case Block():
                inside = facts_in_block(stmt, fact)
        work += [(child, inside) for child in reversed(child_stmts(stmt))]


def facts_in_block(block: Block, fact: Fact | None) -> Fact | None:
    """Return the facts inside a block: its axes equal their bindings, which are in their domains, and its
    predicate holds.
    """
    values = {axis.var: value for axis, value in zip(block.axes, block.values, strict=True)}
    conds = [block.predicate] if const_value(block.predicate) is not True else []
    for axis, value in zip(block.axes, block.values, strict=True):
        fact = Named(fact, 0 if fact is None else fact.depth + 1, block, axis.var, value)
        conds.append((value >= axis.dom.begin) & (value < axis.dom.begin + axis.dom.extent))
    for cond in conds:
        fact = Holds(fact, 0 if fact is None else fact.depth + 1, block, substitute(cond, values))
    return fact


__all__ = ["Fact", "FactAnalyzer", "Holds", "LoopRange", "Named", "facts_in_block", "in_lane", "with_facts"]
