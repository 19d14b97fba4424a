"""Insertion of run-time checks: of accesses without a proof, and of indices that are data.

A statement with an access outside of its buffer is not executed, and the call fails. Indices that are data
(`report_index`) are checked outside of the loops that do not change them. The access itself uses an index in
range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Expr,
    Ramp,
    broadcast,
    const,
    const_value,
    free_vars,
    loads_in,
    logical_and,
    ne,
    post_order,
    select,
    transform,
)
from dlc_core.passes.tir.bounds.proof import Access
from dlc_core.passes.tir.effects import Memory
from dlc_core.passes.tir.safety import DIVISIONS
from dlc_core.support.record import record
from dlc_core.tir.failures import (
    ACCESS_KIND,
    CHECK_KIND,
    CHECKS,
    INDEX_CHECKS,
    REPORT,
    failed,
    parameters_of,
    with_parameters,
)
from dlc_core.tir.functor import (
    bound_vars,
    child_stmts,
    exprs_of,
    rename_bound,
    stmts,
    transform_stmt,
    with_children,
)
from dlc_core.tir.intrinsics import if_then_else, vector_reduce
from dlc_core.tir.lanes import lane_of
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, View, While, seq
from dlc_core.tir.threads import is_axis

Guards = tuple[tuple[Expr, bool], ...]
_TRUE, _FALSE = const(True, BOOL), const(False, BOOL)


@record(frozen=True)
class Check:
    """An index that must be in [low, extent) if `guard` holds; all are scalars."""

    guard: Expr
    index: Expr
    low: Expr
    extent: Expr
    code: int

    @property
    def inside(self) -> Expr:
        return logical_and(self.index >= self.low, self.index < self.extent)

    @property
    def holds(self) -> Expr:
        return self.inside if self.guard is _TRUE else if_then_else(self.guard, self.inside, _TRUE)


class _Writer:
    """The checks of one program: their codes, and the record of failures."""

    def __init__(self, func: PrimFunc) -> None:
        self.texts: dict[int, str] = {**func.attrs.get(INDEX_CHECKS, {}), **func.attrs.get(CHECKS, {})}
        self.func = with_parameters(func, self.texts)
        record = parameters_of(self.func)
        assert record is not None
        self.record, self.site = record
        self.codes = {text: code for code, text in self.texts.items()}

    def code(self, text: str) -> int:
        """Return the code of a check's text. Checks with the same text share a code."""
        found = self.codes.get(text)
        if found is None:
            found = self.codes[text] = max(self.texts, default=0) + 1
            self.texts[found] = text
        return found

    def guarded(self, stmt: Stmt, checks: Sequence[Check]) -> Stmt:
        """Run a statement only if all checks hold."""
        for one in reversed(checks):
            stmt = If(one.holds, stmt, self.failure(one))
        return stmt

    def as_statement(self, one: Check) -> Stmt:
        """Make a separate statement of a check."""
        outside = If(~one.inside, self.failure(one))
        return outside if one.guard is _TRUE else If(one.guard, outside)

    def failure(self, one: Check) -> Stmt:
        return failed(self.record, self.site, one.code, one.index, one.extent)

    def finished(self, body: Stmt) -> PrimFunc:
        return replace(with_parameters(self.func, self.texts), body=body)


def with_access_checks(
    func: PrimFunc, accesses: Sequence[Access], versions: bool = False, vectors: bool = True
) -> PrimFunc:
    """Insert a check before each of these accesses.

    A `while` loop ends if its condition would read out of bounds. With `versions`, accesses that are in
    bounds under a condition on sizes are versioned: the condition selects a copy of the program without their
    checks, or one with them. Without `vectors`, scalar code checks each lane; this is for machines that have
    vectors only for loads and stores.
    """
    if not accesses:
        return func
    writer = _Writer(func)
    checks_of: dict[Stmt, dict[Check, None]] = {}
    always: dict[Stmt, dict[Check, None]] = {}
    conditions: dict[Expr, None] = {}
    for access in accesses:
        checks = dict.fromkeys(_checks_of(access, writer, func.name, vectors))
        checks_of.setdefault(access.stmt, {}).update(checks)
        if versions and access.when is not None and const_value(access.when) is None:
            conditions[access.when] = None
        else:
            always.setdefault(access.stmt, {}).update(checks)
    body = _checked_body(func, checks_of, writer)
    if conditions:
        body = If(
            _evaluable(logical_and(*conditions)), _checked_body(func, always, writer), rename_bound(body)
        )
    return writer.finished(body)


def _evaluable(cond: Expr) -> Expr:
    """Make a condition on sizes false, without a division by zero, if one of its divisors is zero.

    The loops around the access do not run then, but the condition is evaluated before these loops. Divisors
    are replaced by `select`, because hosts that launch kernels can evaluate it.
    """
    divisors: dict[Expr, None] = {}

    def guarded(e: Expr) -> Expr | None:
        if not isinstance(e, Binary) or e.op not in DIVISIONS or const_value(e.b) is not None:
            return None
        is_nonzero = ne(e.b, const(0))
        divisors[is_nonzero] = None
        return e.rebuild((e.a, select(is_nonzero, e.b, const(1))))

    safe = transform(cond, guarded)
    return logical_and(*divisors, safe) if divisors else cond


def _checked_body(func: PrimFunc, checks_of: Mapping[Stmt, Mapping[Check, None]], writer: _Writer) -> Stmt:
    return _rebuilt(func.body, lambda old, new: _with_checks(old, new, list(checks_of.get(old, ())), writer))


def _with_checks(old: Stmt, new: Stmt, checks: list[Check], writer: _Writer) -> Stmt:
    if not checks:
        return new
    if not isinstance(new, While):
        return writer.guarded(new, checks)
    cond: Expr = new.cond
    after: list[Stmt] = []
    for one in reversed(checks):
        cond = if_then_else(one.holds, cond, _FALSE)
        after.insert(0, writer.as_statement(one))
    return seq(While(cond, new.body), *after)


def _checks_of(access: Access, writer: _Writer, name: str, vectors: bool) -> list[Check]:
    """Return the checks of an access, one set for each lane."""
    code = writer.code(f"{ACCESS_KIND}{name} {access}")
    guards = tuple((c.value if isinstance(c, Broadcast) else c, holds) for c, holds in access.guards)
    lanes = max((e.dtype.lanes for e in (*access.indices, *(cond for cond, _ in guards))), default=1)
    scalars = all(cond.dtype.lanes == 1 for cond, _ in guards)
    guard = _all_of(guards) if scalars else _TRUE
    checks: dict[Check, None] = {}
    for index, extent in zip(access.indices, access.buffer.shape, strict=True):
        limit = extent.astype(INDEX)
        if lanes == 1:
            checks[Check(guard, index.astype(INDEX), const(0), limit, code)] = None
            continue
        if not vectors:
            for lane in range(lanes):
                lane_guard = _all_of([(lane_of(cond, lane), holds) for cond, holds in guards])
                checks[Check(lane_guard, lane_of(index, lane).astype(INDEX), const(0), limit, code)] = None
            continue
        wide = index.astype(INDEX.with_lanes(index.dtype.lanes))
        if scalars and isinstance(index, Ramp):
            ends = [lane_of(index, lane).astype(INDEX) for lane in (0, index.lanes - 1)]
        elif scalars:
            ends = [vector_reduce(op, wide) for op in ("min", "max")] if wide.dtype.lanes > 1 else [wide]
        else:
            # Masked lanes count as in bounds. If the index itself is loaded, its loads are masked too.
            chosen = if_then_else if loads_in(wide) else select
            values = chosen(_in_all_lanes(guards, lanes), _wide(wide, lanes), _wide(const(0), lanes))
            ends = [vector_reduce(op, values) for op in ("min", "max")]
        checks.update(dict.fromkeys(Check(guard, end, const(0), limit, code) for end in ends))
    return list(checks)


def _wide(e: Expr, lanes: int) -> Expr:
    return e if e.dtype.lanes == lanes else broadcast(e, lanes)


def _in_all_lanes(guards: Guards, lanes: int) -> Expr:
    """Return the mask of lanes in which all conditions hold.

    A condition with loads is evaluated only in lanes in which the earlier conditions hold.
    """
    wide = [_wide(cond if holds else ~cond, lanes) for cond, holds in guards]
    if not any(map(loads_in, wide[1:])):
        return logical_and(*wide)
    return reduce(lambda inner, cond: if_then_else(cond, inner, _wide(_FALSE, lanes)), wide[::-1])


def _all_of(guards: Guards | list[tuple[Expr, bool]]) -> Expr:
    """Return the conjunction of the conditions. Each is evaluated only if the earlier ones hold."""
    result: Expr = _TRUE
    for cond, holds in reversed(guards):
        own = cond if holds else ~cond
        result = own if result is _TRUE else if_then_else(own, result, _FALSE)
    return result


# Data-dependent indices


def with_own_checks(func: PrimFunc) -> PrimFunc:
    """Lower each `check` to a condition that writes to the failure record if the check fails."""
    calls = [s for s in stmts(func.body) if _check_call(s) is not None]
    if not calls:
        return func
    writer = _Writer(func)

    def noted(s: Stmt) -> Stmt | None:
        call = _check_call(s)
        if call is None:
            return None
        code = writer.code(f"{CHECK_KIND}{call.args[1]} of {func.name}")
        return If(~call.args[0], failed(writer.record, writer.site, code, const(0), const(0)))

    return writer.finished(transform_stmt(func.body, stmt_fn=noted))


def _check_call(s: Stmt) -> Call | None:
    return s.value if isinstance(s, Eval) and isinstance(s.value, Call) and s.value.name == "check" else None


def with_index_checks(func: PrimFunc, check: bool = True) -> PrimFunc:
    """Replace each `report_index` by its index, and insert a check before it unless `check` is false."""
    if INDEX_CHECKS not in func.attrs:
        return func
    if not check:
        attrs = {key: value for key, value in func.attrs.items() if key != INDEX_CHECKS}
        return replace(func, body=_without_reports(func.body), attrs=attrs)
    writer = _Writer(func)
    body, pending = _Indices(func, writer).with_hoisted(func.body)
    return writer.finished(_without_reports(seq(*map(writer.as_statement, pending), body)))


def _without_reports(root: Stmt) -> Stmt:
    return transform_stmt(root, expr_fn=_without_report)


def _without_report(e: Expr) -> Expr | None:
    return e.args[0] if isinstance(e, Call) and e.name == REPORT else None


class _Indices:
    """Inserts the checks of data-dependent indices."""

    def __init__(self, func: PrimFunc, writer: _Writer) -> None:
        self.writer = writer
        self.memory = Memory(func.body)

    def with_hoisted(self, stmt: Stmt) -> tuple[Stmt, list[Check]]:
        """Return a statement with the checks that must stay inside it, and the checks to hoist before it."""
        own = self._own(stmt)
        if isinstance(stmt, Seq):
            return self._in_order(stmt, own)
        children = child_stmts(stmt)
        if not children:
            return stmt, own
        parts: list[Stmt] = []
        for child in children:
            part, pending = self.with_hoisted(child)
            kept = [one for one in pending if not self._can_hoist(stmt, one)]
            moved = [_guarded_by_loop(stmt, one) for one in pending if one not in kept]
            own += [one for one in dict.fromkeys(moved) if one not in own]
            parts.append(seq(*map(self.writer.as_statement, kept), part))
        return with_children(stmt, parts), own

    def _in_order(self, stmt: Seq, own: list[Check]) -> tuple[Stmt, list[Check]]:
        parts: list[Stmt] = []
        for number, child in enumerate(stmt.stmts):
            part, pending = self.with_hoisted(child)
            for one in pending:
                if all(self.memory.preserves(before, one.index, one.guard) for before in stmt.stmts[:number]):
                    own += [one] if one not in own else []
                else:
                    parts.append(self.writer.as_statement(one))
            parts.append(part)
        return seq(*parts), own

    def _can_hoist(self, stmt: Stmt, one: Check) -> bool:
        """Whether a check can be hoisted out of a statement's body."""
        exprs = one.guard, one.index, one.extent
        if is_axis(stmt) or not set(bound_vars(stmt)).isdisjoint(free_vars(*exprs)):
            return False
        match stmt:
            case Alloc() | View():
                return all(e.buffer is not stmt.buffer for e in loads_in(*exprs))
            case For() | Let():
                return self.memory.preserves(stmt, *exprs)
            case _:
                return False

    def _own(self, stmt: Stmt) -> list[Check]:
        """Return the checks of a statement's own expressions, with a load's indices before its value."""
        found: dict[Check, None] = {}
        for e in exprs_of(stmt):
            for report, guards in _reports(e):
                index, extent, code = (transform(arg, _without_report) for arg in report.args)
                for check in _index_checks(index, extent, _constant_in(code), guards):
                    found[check] = None
        return list(found)


def _guarded_by_loop(stmt: Stmt, one: Check) -> Check:
    """Guard a check that is hoisted before a loop, so that it runs only if the loop has iterations."""
    extent = stmt.extent if isinstance(stmt, For) else None
    if extent is None or (const_value(extent) or 0) > 0:
        return one
    return replace(one, guard=_all_of([(extent > 0, True), (one.guard, True)]))


def _constant_in(code: Expr) -> int:
    values = [int(e.value) for e in post_order(code) if not e.children and hasattr(e, "value")]
    return values[0] if values else 0


def _index_checks(index: Expr, extent: Expr, code: int, guards: Guards) -> list[Check]:
    """Return the checks of an index for all lanes, each with the guards of its lane."""
    lanes = max((index.dtype.lanes, *(cond.dtype.lanes for cond, _ in guards)))
    if lanes == 1:
        return [Check(_all_of(guards), index, -extent, extent, code)]
    size = lane_of(extent, 0)
    if all(cond.dtype.lanes == 1 for cond, _ in guards):
        ends = [vector_reduce(op, index) for op in ("min", "max")]
        return [Check(_all_of(guards), end, -size, size, code) for end in ends]
    made = []
    for lane in range(lanes):
        guard = _all_of([(lane_of(transform(cond, _without_report), lane), holds) for cond, holds in guards])
        made.append(Check(guard, lane_of(index, lane), -size, size, code))
    return made


def _reports(root: Expr) -> list[tuple[Call, Guards]]:
    """Return the `report_index` calls of an expression with their guards, inner ones first."""
    if not any(isinstance(e, Call) and e.name == REPORT for e in post_order(root)):
        return []
    found: dict[tuple[Call, Guards], None] = {}
    seen: set[tuple[Expr, Guards]] = set()
    work: list[tuple[Expr, Guards, bool]] = [(root, (), False)]
    while work:
        e, guards, children_done = work.pop()
        if children_done:
            if isinstance(e, Call) and e.name == REPORT:
                found[e, guards] = None
            continue
        if (e, guards) in seen:
            continue
        seen.add((e, guards))
        work.append((e, guards, True))
        if isinstance(e, Call) and e.name == "if_then_else":
            cond, a, b = e.args
            plain = transform(cond, _without_report)
            work += [(b, (*guards, (plain, False)), False), (a, (*guards, (plain, True)), False)]
            work.append((cond, guards, False))
            continue
        work += [(child, guards, False) for child in reversed(e.children)]
    return list(found)


def _rebuilt(root: Stmt, change: Callable[[Stmt, Stmt], Stmt]) -> Stmt:
    """Rebuild a statement bottom-up by `change(old, new)`, without recursion."""
    done: dict[Stmt, Stmt] = {}
    work: list[tuple[Stmt, bool]] = [(root, False)]
    while work:
        stmt, children_done = work.pop()
        if children_done:
            done[stmt] = change(stmt, with_children(stmt, [done[child] for child in child_stmts(stmt)]))
        else:
            work.append((stmt, True))
            work += [(child, False) for child in reversed(child_stmts(stmt))]
    return done[root]


__all__ = ["Check", "with_access_checks", "with_index_checks", "with_own_checks"]
