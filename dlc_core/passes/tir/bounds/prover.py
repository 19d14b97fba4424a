"""Proofs that every access of a program is inside its buffer.

For each program, independently, these are proved:
  * loads and stores: each index is in [0, dim) of its buffer, in all lanes;
  * windows on buffers (`View`): their bytes are bytes of the base buffer;
  * addresses that are passed on: bulk copies stay in both buffers, and the parameters of a called kernel are
    no larger than its arguments.  For external functions see `bounds.regions`.

The first attempt uses constant ranges of loops, which prove nearly all accesses of programs with known sizes.
The others are proved by the surrounding loops, conditions and names, with symbolic sizes. Hints (`prefetch`)
need no proof. The proofs are sound and incomplete: an access without a proof may be correct.

An access under `if_then_else` happens only if the condition holds. Both sides of a `select` are evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.arith.interval import INF, Interval
from dlc_core.cancel import checkpoint
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    broadcast,
    conjuncts,
    const,
    const_value,
    free_vars,
    loads_in,
    logical_and,
    ne,
    ramp,
    substitute,
)
from dlc_core.passes.tir.bounds.facts import Fact, FactAnalyzer, Holds, in_lane, with_facts
from dlc_core.passes.tir.bounds.goals import Goal
from dlc_core.passes.tir.bounds.proof import Access, Proof
from dlc_core.passes.tir.bounds.ranges import Ranges
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.intrinsics import BULK, kernel_symbol, launch_symbol
from dlc_core.tir.stmt import Block, Eval, For, If, Let, PrimFunc, Stmt, Store, View
from dlc_core.tir.tensor_copy import tensor_copy_of

_TRUE = logical_and()
SMALL = 1 << 31
"""Data that are proved to be less than this count as small: sums and products of a few do not overflow."""
MAX_STEPS = 200_000
"""Goals that the proofs of one program may try together. Further accesses have no proof and are checked.

It limits the time for programs with hundreds of accesses whose proofs fail. Ordinary programs take some
thousands.
"""
Bytes = tuple[Expr, Expr]
"""A range of bytes: begin and end."""


@record(frozen=True)
class _Group:
    """The common part of accesses that differ only by a constant in their last index."""

    fact: Fact | None
    guards: tuple[tuple[Expr, bool], ...]
    buffer: Buffer
    indices: tuple[Expr, ...]


def prove(
    func: PrimFunc,
    module: Mapping[str, object] | None = None,
    given: Sequence[Expr] = (),
    *,
    wraps: bool = True,
) -> Proof:
    """Prove which accesses of a program are inside their buffers for all values of its parameters.

    Programs may contain blocks: an axis is in its domain if that is proved of its binding. `module` has the
    kernels that the program calls; calls of other functions are not checked. `given` are conditions on the
    program's sizes that its callers fulfil. Without `wraps`, no arithmetic of the program wraps around, as in
    entry points: the numbers that they read are counts and sizes that kernels of dlc have computed.
    """
    return Prover(func, module or {}, given, wraps).run()


class Prover:
    def __init__(
        self, func: PrimFunc, module: Mapping[str, object], given: Sequence[Expr] = (), wraps: bool = True
    ) -> None:
        self.func = func
        self.module = module
        self.ranges = Ranges(func, wraps=wraps)
        self.facts = FactAnalyzer(func, self.ranges, given)
        self.proof = Proof()
        self.proved: set[Load] = set()
        """Loads that are in bounds by constant ranges, at any position."""
        self.unproved: set[Load | Stmt] = set()
        """Loads, stores and other statements that need the facts at their position."""
        self.groups: dict[_Group, list[tuple[int, Access]]] = {}
        """Accesses that differ only by a constant, with that constant."""
        self.guarded: dict[tuple[Fact | None, tuple[tuple[Expr, bool], ...]], Fact | None] = {}
        self.proved_goals: set[tuple[Fact | None, tuple[tuple[Expr, bool], ...], Expr, Expr]] = set()
        """Facts, guards, index and dim of proved goals: 0 <= index < dim."""
        self.stripped: dict[Expr, tuple[Expr, int]] = {}
        self.extents: dict[Buffer, Bytes] = {}
        self.param_extents: dict[tuple[Buffer, tuple[Expr, ...]], Bytes] = {}
        """The bytes of kernels' parameters, by the sizes that calls pass."""
        self.fits: dict[tuple[Fact | None, Bytes, Bytes], bool] = {}
        """Whether the first byte range is inside the second one under the facts."""
        self.lane_values: dict[Var, Expr] = {}
        """The values of vector names."""
        self.mask_branches: dict[Stmt, Stmt] = {}
        """Branches on conditions of lanes, by the statements in them."""

    def learn_ranges(self) -> None:
        """Compute the constant range of each loop, name and axis, and prove accesses by these ranges."""
        for stmt in stmts(self.func.body):
            self._by_ranges(stmt)

    def run(self) -> Proof:
        self.learn_ranges()
        self.proof.proved += len(self.proved)
        if self.unproved:
            for stmt, fact in with_facts(self.func.body):
                checkpoint()
                self._by_facts(stmt, fact)
            for group, members in self.groups.items():
                self._group(group, members)
        return self.proof

    # Proofs by constant ranges

    def _by_ranges(self, stmt: Stmt) -> None:
        match stmt:
            case Store():
                if self.ranges.inside(stmt.buffer, stmt.indices):
                    self.proof.proved += 1
                else:
                    self.unproved.add(stmt)
                self._loads_by_ranges(stmt.value)
                for index in stmt.indices:
                    self._loads_by_ranges(index)
                return
            case For():
                self.ranges.bind(stmt.var, stmt.begin, stmt.extent)
            case Let():
                if stmt.value.dtype.lanes > 1 and not loads_in(stmt.value):
                    self.lane_values[stmt.var] = substitute(stmt.value, self.lane_values)
                if not stmt.value.dtype.is_float and stmt.value.dtype.kind != "handle":
                    self.ranges.define(stmt.var, stmt.value)
            case Block():
                for axis in stmt.axes:
                    self.ranges.bind(axis.var, axis.dom.begin, axis.dom.extent)
                self.unproved.add(stmt)
            case View():
                self.unproved.add(stmt)
            case Eval() if _passes_addresses(stmt.value):
                self.unproved.add(stmt)
                return
        for e in exprs_of(stmt):
            self._loads_by_ranges(e)

    def _loads_by_ranges(self, e: Expr) -> None:
        kept = e.operand_loads
        if kept is None:
            kept = tuple(loads_in(e))
        elif type(e) is Load:
            kept = (*kept, e)
        for one in kept:
            if one not in self.proved and one not in self.unproved:
                fits = self.ranges.inside(one.buffer, one.indices)
                (self.proved if fits else self.unproved).add(one)

    # Proofs by all facts

    def _by_facts(self, stmt: Stmt, fact: Fact | None) -> None:
        unproved = self.unproved
        match stmt:
            case If() if stmt.cond.dtype.lanes > 1:
                # Checks are inserted around the `If`, because a single store may be under a mask.
                self.mask_branches.update(dict.fromkeys(stmts(stmt.then), stmt))
            case Eval() if stmt in unproved:
                self._addresses(stmt, fact)
                return
        for e in exprs_of(stmt):
            if any(one in unproved for one in loads_in(e)):
                for one, guards in _guarded_loads(e, unproved):
                    self._access(Access(stmt, "loads", one.buffer, one.indices, guards), fact)
        match stmt:
            case Store() if stmt in unproved:
                self._access(Access(stmt, "stores to", stmt.buffer, stmt.indices), fact)
            case View():
                self._window(stmt, fact)
            case Block():
                self._axes(stmt, fact)

    def _access(self, access: Access, fact: Fact | None) -> None:
        """Record an access, together with those that differ from it by a constant."""
        lanes = tuple((cond, True) for cond in self.facts.lane_conditions(fact))
        if lanes:
            branch = self.mask_branches[access.stmt]
            access = replace(access, stmt=branch, guards=(*lanes, *access.guards))
        for cond, holds in access.guards:
            scalar = cond.value if isinstance(cond, Broadcast) else cond
            if isinstance(scalar, Const) and bool(scalar.value) is not holds:
                self.proof.proved += 1  # the access is unreachable
                return
        *outer, last = access.indices or (const(0),)
        core, constant = self._strip(last)
        group = _Group(fact, access.guards, access.buffer, (*outer, core))
        self.groups.setdefault(group, []).append((constant, access))

    def _strip(self, e: Expr) -> tuple[Expr, int]:
        """Split an index into an expression and a constant summand."""
        found = self.stripped.get(e)
        if found is None:
            found = self.stripped[e] = self._stripped(e)
        return found

    def _stripped(self, e: Expr) -> tuple[Expr, int]:
        if isinstance(e, Const):
            return const(0, e.dtype), int(e.value)
        if isinstance(e, Binary) and e.op == "add":
            (a, one), (b, other) = self._strip(e.a), self._strip(e.b)
            return (a + b, one + other) if one or other else (e, 0)
        if isinstance(e, Binary) and e.op == "sub" and isinstance(e.b, Const):
            a, one = self._strip(e.a)
            return a, one - int(e.b.value)
        if isinstance(e, Ramp):
            base, one = self._strip(e.base)
            return (ramp(base, e.stride, e.lanes), one) if one else (e, 0)
        if isinstance(e, Broadcast):
            value, one = self._strip(e.value)
            return (broadcast(value, e.lanes), one) if one else (e, 0)
        return e, 0

    def _group(self, group: _Group, members: list[tuple[int, Access]]) -> None:
        """Prove the first and the last access of a group. The other accesses lie between these two."""
        fact = self._guarded(group)
        members.sort(key=lambda member: member[0])
        (low, first), (high, last) = members[0], members[-1]
        if self._is_inside(fact, first, high - low) is _TRUE or (
            low < high and all(self._is_inside(fact, access) is _TRUE for access in (first, last))
        ):
            self.proof.proved += len(members)
            return
        for _, access in members:
            when = self._is_inside(fact, access)
            if when is _TRUE:
                self.proof.proved += 1
            else:
                self.proof.open.append(replace(access, when=when))

    def _guarded(self, group: _Group) -> Fact | None:
        """Return the facts at a group of accesses; groups with the same guards share derived facts."""
        if not group.guards:
            return group.fact
        fact = self.guarded.get((group.fact, group.guards))
        if fact is None:
            fact = group.fact
            for cond, holds in group.guards:
                scalar = cond.value if isinstance(cond, Broadcast) else cond
                fact = Holds(fact, 0 if fact is None else fact.depth + 1, None, scalar, not holds)
            self.guarded[group.fact, group.guards] = fact
        return fact

    def _is_inside(self, fact: Fact | None, access: Access, span: int = 0) -> Expr | None:
        """Return true, a condition on sizes under which an access is in bounds, or None if none is known.

        With `span`, this also holds for accesses whose last index is larger by at most `span`.
        """
        shape = list(access.buffer.shape)
        if span:
            shape[-1] = shape[-1] - span
        scalars = all(cond.dtype.lanes == 1 for cond, _ in access.guards)
        result: Expr | None = _TRUE
        for index, dim in zip(access.indices, shape, strict=True):
            low, high = self.ranges.of(index)
            if low < 0 or high >= self.ranges.of(dim)[0]:
                found = _lowest_lane(index) if scalars else None
                if found is not None:
                    index, dim = found[0], dim - found[1]
                key = fact, access.guards, index, dim
                if key in self.proved_goals:
                    continue
                enough = self._index_is_inside(fact, access, index, dim)
                if enough is _TRUE:
                    self.proved_goals.add(key)
                    continue
                # Failures are not cached: a search is limited in steps, and a second one may go further.
                result = None if result is None or enough is None else logical_and(result, enough)
        return result

    def _index_is_inside(self, fact: Fact | None, access: Access, index: Expr, dim: Expr) -> Expr | None:
        """Return true if 0 <= index < dim in all accessed lanes, a sufficient condition on sizes, or None."""
        if self._is_exhausted() or (not self._is_in_range(index, dim) and self._may_wrap(index, fact)):
            return None
        among = {cond.dtype.lanes for cond, _ in access.guards} - {1}
        lanes = index.dtype.lanes
        if lanes == 1 and not among:
            return self.is_between(index, dim, fact)
        # A scalar under a mask is accessed if the mask is true in any lane.
        lanes = max((lanes, *among)) if lanes == 1 else lanes
        lane = Var("lane")
        scalar = in_lane(substitute(index, self.lane_values), lane)
        if scalar is None:
            return None
        az = self.facts.at(fact)
        conds = self.facts.conditions(fact)
        with az.scope():
            az.bind(lane, 0, lanes)
            for cond, holds in access.guards:
                vector = substitute(cond, self.lane_values)
                for part in conjuncts(vector) if holds else [vector]:
                    one = in_lane(part, lane) if part.dtype.lanes == lanes else None
                    if one is not None:
                        conds.append(one if holds else ~one)
                        az.add_assumptions(conds[-1])
            return self._sufficient(az, [*self.facts.variables(fact), lane], conds, scalar, dim)

    def is_between(self, index: Expr, dim: Expr, fact: Fact | None) -> Expr | None:
        """Return true if 0 <= index < dim under a fact, a sufficient condition on sizes, or None."""
        if self._is_in_range(index, dim):
            return _TRUE
        if self._is_exhausted() or self._may_wrap(index, fact):
            return None
        return self._sufficient(
            self.facts.at(fact), self.facts.variables(fact), self.facts.conditions(fact), index, dim
        )

    def _may_wrap(self, index: Expr, fact: Fact | None) -> bool:
        """Whether arithmetic of data in an index may wrap around under a fact. Proofs would not see it."""
        if not self.ranges.may_wrap(index):
            return False
        az = self.facts.at(fact)
        known: dict[Expr, Interval] = {}
        for data in self.ranges.data_in(index):
            if data.dtype is not INDEX or not az.prove(data >= 0):
                return True
            if az.prove(data < SMALL):
                known[data] = (0, SMALL)
            elif any(az.prove(data < size) for size in self.func.scalars if size.dtype is INDEX):
                known[data] = (0, INF)
            else:
                return True
        return not self.ranges.fits(index, known)

    def _is_in_range(self, index: Expr, dim: Expr) -> bool:
        """Whether 0 <= index < dim by ranges alone, which know that arithmetic wraps around."""
        low, high = self.ranges.of(index)
        return low >= 0 and high < self.ranges.of(dim)[0]

    def _sufficient(
        self, az: Analyzer, variables: Sequence[Var], conds: Sequence[Expr], index: Expr, dim: Expr
    ) -> Expr | None:
        goal = self._goal(az, variables, conds)
        if goal.is_between(index.astype(INDEX), dim.astype(INDEX)):
            return self._divides(index, dim)
        return goal.sufficient[-1] if goal.sufficient else None

    def _divides(self, *exprs: Expr) -> Expr | None:
        """Return true if no divisor can be zero, a condition on sizes that none is, or None."""
        divisors = self.facts.open_divisors(*exprs)
        if any(loads_in(d) or not set(self.func.scalars).issuperset(free_vars(d)) for d in divisors):
            return None
        return logical_and(*(ne(d, const(0, d.dtype)) for d in divisors))

    def _is_exhausted(self) -> bool:
        """Whether the proofs of this program have tried too many goals. Then nothing more is proved."""
        return self.facts.analyzer.steps + self.facts.dims.steps > MAX_STEPS

    def _goal(self, az: Analyzer, variables: Sequence[Var], conds: Sequence[Expr]) -> Goal:
        sizes = frozenset(self.func.scalars)
        return Goal(az, self.facts.dims, tuple(variables), tuple(conds), sizes)

    def _axes(self, block: Block, fact: Fact | None) -> None:
        """Check that the axes of a block are in their domains where its predicate holds."""
        values = {axis.var: value for axis, value in zip(block.axes, block.values, strict=True)}
        predicate = substitute(block.predicate, values)
        inside = Holds(fact, 0 if fact is None else fact.depth + 1, None, predicate)
        for axis, value in zip(block.axes, block.values, strict=True):
            (low, high), begin = self.ranges.of(value), self.ranges.of(axis.dom.begin)
            if begin[1] <= low and high < begin[0] + self.ranges.of(axis.dom.extent)[0]:
                continue
            az = self.facts.at(inside)
            goal = self._goal(az, self.facts.variables(fact), self.facts.conditions(inside))
            inside_domain = goal.is_between(az.simplify(value - axis.dom.begin), axis.dom.extent)
            if not inside_domain or self.facts.open_divisors(value, axis.dom.begin, axis.dom.extent):
                why = f"axis {axis.var.name} of block {block.name} is {value}"
                self.proof.open.append(Access(block, "binds", self.func.buffers[0], (), (), why))

    def _window(self, view: View, fact: Fact | None) -> None:
        """Check that the bytes of a view, counted from the common pointer, are bytes of the viewed buffer."""
        inner, outer = self._extent(view.buffer), self._extent(view.base)
        self._require_inside(
            view, fact, inner, outer, lambda: f"{view.buffer!r} is a window on {view.base!r}"
        )

    def _extent(self, buffer: Buffer) -> Bytes:
        found = self.extents.get(buffer)
        if found is None:
            found = self.extents[buffer] = extent_in_bytes(buffer)
        return found

    def _require_inside(
        self, stmt: Stmt, fact: Fact | None, inner: Bytes, outer: Bytes, what: Callable[[], str]
    ) -> None:
        """Check that the byte range `inner` is empty or inside `outer`."""
        (begin, end), (low, high) = inner, outer
        if all(type(e) is Const for e in (begin, end, low, high)):
            a, b, c, d = (int(e.value) for e in (begin, end, low, high) if isinstance(e, Const))
            fits = b <= a or (c <= a and b <= d)
        else:
            key = fact, inner, outer
            if key not in self.fits:
                self.fits[key] = self._fits(fact, inner, outer)
            fits = self.fits[key]
        if fits:
            self.proof.proved += 1
        else:
            buffer = stmt.buffer if isinstance(stmt, View) else self.func.buffers[0]
            why = f"{what()}: bytes {begin} to {end} of {low} to {high}"
            condition = logical_and(begin >= low, end <= high)
            is_of_sizes = not loads_in(condition) and set(self.func.scalars).issuperset(free_vars(condition))
            when = condition if is_of_sizes else None
            self.proof.open.append(Access(stmt, "passes", buffer, (), (), why, when))

    def _fits(self, fact: Fact | None, inner: Bytes, outer: Bytes) -> bool:
        if self._is_exhausted():
            return False
        (begin, end), (low, high) = inner, outer
        az = self.facts.at(fact)
        if self.facts.open_divisors(begin, end, low, high):
            return False
        if (begin is low or az.prove(begin >= low)) and (end is high or az.prove(end <= high)):
            return True
        if fact is None:
            return False
        goal = self._goal(az, self.facts.variables(fact), self.facts.conditions(fact))
        return goal.is_between(begin - low, high - low - (end - begin) + 1)

    def _addresses(self, stmt: Eval, fact: Fact | None) -> None:
        value = stmt.value
        assert isinstance(value, Call)
        symbol = kernel_symbol(value) or launch_symbol(value)
        if symbol is not None:
            self._kernel_call(stmt, value, symbol, fact)
            return
        for arg in value.args:
            address = address_argument(arg)
            for one in loads_in(*(address.indices if address is not None else (arg,))):
                if one in self.unproved:
                    self._access(Access(stmt, "loads", one.buffer, one.indices), fact)
            # An empty buffer has an address too. The callee accesses what its block declares.
            is_first = address is not None and all(const_value(i) == 0 for i in address.indices)
            if address is not None and value.name != BULK and not is_first:
                self._access(Access(stmt, "takes the address of", address.buffer, address.indices), fact)
        if value.name == BULK:
            self._bulk_copy(stmt, value, fact)

    def _kernel_call(self, stmt: Eval, value: Call, symbol: str, fact: Fact | None) -> None:
        """Prove that each kernel parameter is no larger than its argument."""
        callee = self.module.get(symbol)
        if not isinstance(callee, PrimFunc):
            return
        params = callee.params
        scalars = {
            p: arg for p, arg in zip(params, value.args) if isinstance(p, Var) and p.dtype is arg.dtype
        }
        for param, arg in zip(params, value.args):
            address = address_argument(arg)
            if not isinstance(param, Buffer) or address is None:
                continue
            key = param, tuple(scalars.values())
            found = self.param_extents.get(key)
            if found is None:
                begin, end = self._extent(param)
                found = self.param_extents[key] = substitute(begin, scalars), substitute(end, scalars)
            at = address.buffer.linear_index(address.indices) * address.buffer.dtype.itemsize
            self._require_inside(
                stmt,
                fact,
                (at + found[0], at + found[1]),
                self._extent(address.buffer),
                lambda given=address.buffer, param=param: f"{given!r} is parameter {param!r} of {symbol}",  # type: ignore[misc]
            )

    def _bulk_copy(self, stmt: Eval, value: Call, fact: Fact | None) -> None:
        """Check the shared memory and the tensor of a tensor copy.

        The hardware does not read elements outside of the tensor.
        """
        one = tensor_copy_of(value)
        last: Expr = const(1)
        for dim, step in zip(one.dims, one.strides, strict=True):
            last = last + (dim.astype(INDEX) - 1) * step.astype(INDEX)
        for buffer, begin, count in (
            (one.to, one.to.linear_index(one.at), const(math.prod(one.box))),
            (one.source, one.source.offset, last),
        ):
            size = buffer.dtype.itemsize
            inner = begin * size, (begin + count) * size
            self._require_inside(
                stmt, fact, inner, self._extent(buffer), lambda: f"a box is copied by {value}"
            )


def extent_in_bytes(buffer: Buffer) -> Bytes:
    """Return the byte range of a buffer, relative to its pointer."""
    count = buffer.num_elements()
    if buffer.strides is not None:
        count = const(1)
        for size, stride in zip(buffer.shape, buffer.strides, strict=True):
            count = count + (size - 1) * stride
    begin = buffer.offset * buffer.dtype.itemsize
    return begin, begin + count * buffer.dtype.itemsize


def _lowest_lane(index: Expr) -> tuple[Expr, int] | None:
    """Return the smallest lane of a vector index and its constant distance to the largest, if known."""
    if isinstance(index, Broadcast):
        return index.value, 0
    if isinstance(index, Ramp):
        stride = const_value(index.stride)
        return (index.base, stride * (index.lanes - 1)) if stride is not None and stride >= 0 else None
    if isinstance(index, Binary) and index.op == "add":
        a, b = _lowest_lane(index.a), _lowest_lane(index.b)
        return (a[0] + b[0], a[1] + b[1]) if a is not None and b is not None else None
    return None


def _passes_addresses(value: Expr) -> bool:
    return (
        isinstance(value, Call)
        and value.name != "prefetch"
        and any(address_argument(arg) is not None for arg in value.args)
    )


def address_argument(arg: Expr) -> Load | None:
    """Return the element whose address is passed, if the argument is an address."""
    if isinstance(arg, Call) and arg.name == "address_of" and isinstance(arg.args[0], Load):
        return arg.args[0]
    return None


def _guarded_loads(
    root: Expr, loads: set[Load | Stmt]
) -> Iterator[tuple[Load, tuple[tuple[Expr, bool], ...]]]:
    """Yield the given loads of an expression, with the conditions that guard each."""
    seen: set[tuple[Expr, tuple[tuple[Expr, bool], ...]]] = set()
    work: list[tuple[Expr, tuple[tuple[Expr, bool], ...]]] = [(root, ())]
    while work:
        e, guards = work.pop()
        if (e, guards) in seen or not any(one in loads for one in loads_in(e)):
            continue
        seen.add((e, guards))
        if isinstance(e, Call) and e.name == "if_then_else":
            cond, a, b = e.args
            work += [(b, (*guards, (cond, False))), (a, (*guards, (cond, True))), (cond, guards)]
            continue
        if isinstance(e, Call) and e.name == "address_of":
            work += [(index, guards) for arg in e.args for index in arg.children]
            continue
        if isinstance(e, Load) and e in loads:
            yield e, guards
        work += [(child, guards) for child in e.children]


__all__ = ["Prover", "extent_in_bytes", "prove"]
