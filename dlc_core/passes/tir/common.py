"""Common subexpression elimination within PrimFuncs.

A value that is computed several times is bound to a name in the innermost statement that contains all its
uses, directly before the first use. The value is then evaluated even on paths that do not use it. So it must
not be able to fail, and must not depend on memory that changes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from operator import is_
from typing import ClassVar

from dlc_core.arith import Analyzer
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
    loads_in,
    post_order,
    transform,
)
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.effects import Memory
from dlc_core.passes.tir.safety import DIVISIONS, in_bounds
from dlc_core.support.record import record
from dlc_core.tir.functor import bound_buffers, child_stmts, exprs_of, stmts_of
from dlc_core.tir.grammar import Parts
from dlc_core.tir.intrinsics import has_effect
from dlc_core.tir.stmt import Alloc, Block, For, Let, PrimFunc, Seq, Stmt, View, seq

Path = tuple[int, ...]
"""The position of a statement: at each level the index of the child."""


@dataclass
class _Site:
    """The uses of an expression: their number, the first one, and the innermost statement around all."""

    uses: int
    first: Path
    common: Path

    def add(self, uses: int, first: Path, common: Path) -> None:
        self.uses += uses
        self.first = min(self.first, first)
        length = next(
            (k for k, (a, b) in enumerate(zip(self.common, common)) if a != b),
            min(len(self.common), len(common)),
        )
        self.common = self.common[:length]


class _Namer:
    """Names the common values of one program. The bodies of blocks are separate programs."""

    def __init__(self, func: PrimFunc, min_ops: int, loads: bool) -> None:
        self.min_ops = min_ops
        self.loads = loads
        self.memory = Memory(func.body)
        self.written = self.memory.written(func.body)
        self.analyzer = Analyzer()
        for scalar in func.scalars:
            if scalar.dtype.is_int:
                self.analyzer.declare_dim(scalar, low=0)
        for s in stmts_of(func.body, For):
            if s.var.dtype is INDEX and not loads_in(s.begin, s.extent):
                self.analyzer.bind(s.var, s.begin, s.extent)
        self.local = set(bound_buffers(func.body))
        self.ops: dict[Expr, int | None] = {}

    def rebuilt(self, root: Stmt) -> Stmt:
        """Return a body with names for its common values."""
        stmts_at: dict[Path, Stmt] = {}
        sites: dict[Expr, _Site] = {}
        roots: list[Expr] = []
        work: list[tuple[Path, Stmt]] = [((), root)]
        while work:
            path, stmt = work.pop()
            stmts_at[path] = stmt
            for e in _own(stmt):
                roots.append(e)
                _use(sites, e, 1, path, path)
            if not isinstance(stmt, Block):
                work += [((*path, k), child) for k, child in enumerate(child_stmts(stmt))]
        names: dict[Expr, Expr] = {}
        bound: dict[Path, list[Expr]] = defaultdict(list)
        order = post_order(*roots)
        for e in reversed(order):
            site = sites[e]
            uses, first, common = site.uses, site.first, site.common
            if site.uses > 1 and self.is_worth_naming(e):
                names[e] = Var("c", e.dtype)
                if isinstance(stmts_at[common], Seq):
                    common = first[: len(common) + 1]
                bound[common].append(e)
                uses, first = 1, common
            for child in e.children:
                _use(sites, child, uses, first, common)
        return _Rebuilder(self, names, bound).with_names(root, ())

    def is_worth_naming(self, e: Expr) -> bool:
        """Whether a value may be named, and costs enough operations."""
        count = self.ops_of(e)
        if e.dtype.kind == "handle" or (e.dtype.is_int and e.dtype.lanes > 1):
            return False  # memory locations are compared by identity
        return count is not None and count >= self.min_ops

    def ops_of(self, root: Expr) -> int | None:
        """Count the operations in an expression; None if it may fail, has side effects, or reads memory that
        may change."""
        for e in post_order(root):
            if e not in self.ops:
                inner = [self.ops[c] for c in e.children]
                counts = [n for n in inner if n is not None]
                fine = len(counts) == len(inner) and self.is_invariant(e)
                self.ops[e] = sum(counts) + self.weight(e) if fine else None
        return self.ops[root]

    def weight(self, e: Expr) -> int:
        if isinstance(e, Load):
            return self.min_ops  # every load that may be named is worth a name
        return 0 if isinstance(e, (Var, Const, Broadcast, Ramp)) else 1

    def is_invariant(self, e: Expr) -> bool:
        """Whether a node can be evaluated anywhere with the same value, if its operands can."""
        if isinstance(e, Load):
            base = self.memory.root(e.buffer)
            fixed = self.written is not None and base not in self.written and base not in self.local
            return self.loads and fixed and in_bounds(e.buffer, e.indices, self.analyzer)
        if isinstance(e, Binary) and e.op in DIVISIONS and not e.dtype.is_float:
            divisor = e.b.value if isinstance(e.b, Broadcast) else e.b
            return isinstance(divisor, Const) and bool(divisor.value)
        return not has_effect(e) and not (isinstance(e, Call) and e.name == "address_of")


def _own(stmt: Stmt) -> tuple[Expr, ...]:
    """Return the expressions of a statement that may use names, without those of buffers and blocks."""
    return () if isinstance(stmt, (Alloc, View, Block)) else exprs_of(stmt)


def _use(sites: dict[Expr, _Site], e: Expr, uses: int, first: Path, common: Path) -> None:
    found = sites.get(e)
    if found is None:
        sites[e] = _Site(uses, first, common)
    else:
        found.add(uses, first, common)


class _Rebuilder:
    """Inserts names into a body."""

    def __init__(self, namer: _Namer, names: dict[Expr, Expr], bound: dict[Path, list[Expr]]) -> None:
        self.namer = namer
        self.bound = bound
        self.memo = dict(names)

    def with_names(self, s: Stmt, path: Path) -> Stmt:
        """Wrap a statement in the names that are bound there."""
        return self.named(self.rebuilt_inside(s, path), path)

    def named(self, body: Stmt, path: Path) -> Stmt:
        for e in self.bound.get(path, ()):  # operands come last, so that their names are outermost
            var = self.memo[e]
            assert isinstance(var, Var)
            body = Let(var, e.rebuild([self.expr(c) for c in e.children]), body)
        return body

    def rebuilt_inside(self, s: Stmt, path: Path) -> Stmt:
        if isinstance(s, Seq):
            rest: list[Stmt] = []
            for k in reversed(range(len(s.stmts))):
                child_path = (*path, k)
                rest = [self.rebuilt_inside(s.stmts[k], child_path), *rest]
                if child_path in self.bound:
                    rest = [self.named(seq(*rest), child_path)]
            same = len(rest) == len(s.stmts) and all(map(is_, rest, s.stmts))
            return s if same else seq(*rest)
        if isinstance(s, Block):
            init = None if s.init is None else self.namer.rebuilt(s.init)
            body = self.namer.rebuilt(s.body)
            return s if init is s.init and body is s.body else replace(s, init=init, body=body)
        children = [self.with_names(child, (*path, k)) for k, child in enumerate(child_stmts(s))]
        own = [self.expr(e) for e in _own(s)]
        if all(map(is_, children, child_stmts(s))) and all(map(is_, own, _own(s))):
            return s
        return _rebuilt(s, own, children)

    def expr(self, e: Expr) -> Expr:
        return transform(e, lambda _: None, self.memo)


def _rebuilt(s: Stmt, own: list[Expr], children: list[Stmt]) -> Stmt:
    """Rebuild a statement with new expressions and child statements."""
    remaining = iter(own)
    return s.with_parts(children, Parts(lambda _: next(remaining), lambda buffer: buffer, lambda var: var))


@record(frozen=True)
class CommonSubexpressions(PrimFuncPass):
    """Compute values of at least `min_ops` operations once, if they are used several times.

    Values that contain loads are not shared. With `loads=True` they are, if the loads are in bounds and the
    program never writes the buffers. Run this pass at the end of a pipeline, because analyses do not look
    through names.

    Before:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), x: T.float32):
            for i in range(64):
                A[i] = T.exp(x * x + T.float32(1.0)) * T.float32(2.0)
                B[i] = T.exp(x * x + T.float32(1.0))

    After:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), x: T.float32):
            for i in range(64):
                c = T.let(T.exp(x * x + T.float32(1.0)))
                A[i] = c * T.float32(2.0)
                B[i] = c
    """

    name: ClassVar[str] = "common_subexpressions"
    min_ops: int = 2
    loads: bool = False

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        body = _Namer(func, self.min_ops, self.loads).rebuilt(func.body)
        return func if body is func.body else replace(func, body=body)


__all__ = ["CommonSubexpressions"]
