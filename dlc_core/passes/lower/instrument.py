"""A second entry for profiling, which reads the clock before and after every kernel call.

    <entry>__profile(inputs…, outputs…, weights, arena, profile, dims…)

`profile` is int64[sites, 2]: the entry adds for each call site its nanoseconds and its number of calls. The
module's attribute `sites` names them in order. In a host program, each segment has such an entry, and its
sites have the key `segment`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, ClassVar

from dlc_core.decisions import DECISIONS
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, call, const
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.lower.costs import MOVED
from dlc_core.passes.lower.operands import operands_of, windows_of
from dlc_core.runtime.measure.profile import PROFILE_SUFFIX
from dlc_core.support.record import record
from dlc_core.target.cost import CYCLES, SEGMENT, Work
from dlc_core.target.reuse import OPERANDS
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.functor import copy_func, stmts_of, transform_stmt
from dlc_core.tir.intrinsics import STATUS, address_of, kernel_symbol
from dlc_core.tir.stmt import Eval, PrimFunc, Stmt, Store, seq


@record(frozen=True)
class Instrument(Pass):
    """Add an instrumented copy of each native entry, for profiling."""

    name: ClassVar[str] = "instrument"
    stage: ClassVar[str] = "main"
    reads_kernels: ClassVar[bool] = False

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        recorded: dict[tuple[str, str], deque[Any]] = defaultdict(deque)
        for call_ in module.attrs.get("calls", ()):
            recorded[call_.get(SEGMENT, ""), call_["kernel"]].append(call_)
        described: list[dict[str, Any]] = []
        twins: dict[str, PrimFunc] = {}
        for name, segment in _entries(module).items():
            main: PrimFunc = module[name]
            sites: dict[Stmt, int] = {}
            windows = windows_of(main)
            for stmt in stmts_of(main.body, Eval):
                symbol = kernel_symbol(stmt.value)
                if symbol is None or stmt in sites:
                    continue
                sites[stmt] = len(sites)
                found = recorded[segment, symbol]
                site = dict(found.popleft()) if found else _body_site(module, segment, symbol)
                assert isinstance(stmt.value, Call)
                operands = operands_of(stmt.value.args, site.pop(MOVED, ()), windows)
                site[OPERANDS] = [list(one) for one in map(astuple, operands)]
                described.append({**site, **_schedule(module.functions.get(symbol))})
            twins[name + PROFILE_SUFFIX] = _instrumented(main, sites)
        if not twins:
            return module
        return module.with_functions(twins).with_attrs(sites=tuple(described))


def _entries(module: IRModule) -> dict[str, str]:
    """The native entries to instrument, with their segments: `main`, or the segments of a host program."""
    main = module.functions.get(module.entry)
    if isinstance(main, PrimFunc):
        return {module.entry: ""} if main.attrs.get("entry") else {}
    return {name: name for name in module.attrs.get("segments", ())}


def _instrumented(main: PrimFunc, sites: Mapping[Stmt, int]) -> PrimFunc:
    """A copy of an entry that measures its kernel calls, which are given with their indices."""
    profile = Buffer("profile", (max(1, len(sites)), 2), INDEX)

    def measured(stmt: Stmt) -> Stmt | None:
        site = sites.get(stmt)
        if site is None:
            return None
        time = address_of(profile, site, 0)
        begin, end = (Eval(call("clock", (time, const(sign)), STATUS)) for sign in (-1, 1))
        count = Store(profile, (const(site), const(1)), profile[site, 1] + 1)
        return seq(begin, stmt, end, count)

    body = transform_stmt(main.body, stmt_fn=measured)
    name = main.name + PROFILE_SUFFIX
    return copy_func(PrimFunc(name, (*main.buffers, profile, *main.scalars), body, main.attrs, main.spans))


def _body_site(module: IRModule, segment: str, symbol: str) -> dict[str, Any]:
    """The record of a call of a body of control flow: the work of its kernels, each once."""
    known: Mapping[str, Mapping[str, Any]] = module.attrs.get("body_work", {})
    names, pending = [], [symbol]
    for name in pending:
        names += [name] if name in known else []
        func = module.functions.get(name)
        pending += called_kernels(func.body) if isinstance(func, PrimFunc) and name not in known else []
    work = Work.total(Work.of_record(known[name]) for name in names)
    spans = dict.fromkeys(s.name or str(s) for name in names for s in module[name].spans)
    head = {SEGMENT: segment} if segment else {}
    return {**head, "kernel": symbol, "nodes": list(spans), **work.record()}


def _schedule(kernel: Any) -> dict[str, Any]:
    """Return the report of a kernel's schedule: rule, refusals, decisions, plan, and a trace if requested."""
    attrs = getattr(kernel, "attrs", {})
    facts: dict[str, Any] = {
        "rule": str(attrs.get("rule", "")),
        "why_not": [str(reason) for reason in attrs.get("why_not", ())],
        DECISIONS: [str(choice) for choice in attrs.get(DECISIONS, ())],
    }
    names = {"applied": "plan", "trace": "trace", "origin": "origin"}
    if CYCLES in attrs:
        facts[CYCLES] = attrs[CYCLES]
    return facts | {name: str(attrs[attr]) for attr, name in names.items() if attr in attrs}


__all__ = ["Instrument"]
