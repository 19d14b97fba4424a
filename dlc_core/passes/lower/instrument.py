"""A second entry for profiling, which reads the clock before and after every kernel call.

    <entry>__profile(inputs…, outputs…, weights, arena, profile, dims…)

`profile` is int64[sites, 2]: the entry adds for each call site its nanoseconds and its number of calls. The
module's attribute `sites` names them in order.
"""

from __future__ import annotations

from collections import defaultdict, deque
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
from dlc_core.target.cost import CYCLES
from dlc_core.target.reuse import OPERANDS
from dlc_core.tir.functor import copy_func, stmts_of, transform_stmt
from dlc_core.tir.intrinsics import STATUS, address_of, kernel_symbol
from dlc_core.tir.stmt import Eval, PrimFunc, Stmt, Store, seq


@record(frozen=True)
class Instrument(Pass):
    """Add an instrumented copy of the entry, for profiling."""

    name: ClassVar[str] = "instrument"
    stage: ClassVar[str] = "main"
    reads_kernels: ClassVar[bool] = False

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        main = module.functions.get(module.entry)
        if not isinstance(main, PrimFunc) or not main.attrs.get("entry"):
            return module
        recorded: dict[str, deque[Any]] = defaultdict(deque)
        for entry in module.attrs.get("calls", ()):
            recorded[entry["kernel"]].append(entry)
        sites: dict[Stmt, int] = {}
        described: list[dict[str, Any]] = []
        windows = windows_of(main)
        for stmt in stmts_of(main.body, Eval):
            symbol = kernel_symbol(stmt.value)
            if symbol is not None and stmt not in sites:
                sites[stmt] = len(sites)
                found = recorded[symbol]
                site: dict[str, Any] = dict(found.popleft()) if found else {"kernel": symbol, "nodes": []}
                assert isinstance(stmt.value, Call)
                operands = operands_of(stmt.value.args, site.pop(MOVED, ()), windows)
                site[OPERANDS] = [list(one) for one in map(astuple, operands)]
                described.append({**site, **_schedule(module.functions.get(symbol))})
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
        name = module.entry + PROFILE_SUFFIX
        twin = PrimFunc(name, (*main.buffers, profile, *main.scalars), body, main.attrs, main.spans)
        return module.with_function(name, copy_func(twin)).with_attrs(sites=tuple(described))


def _schedule(kernel: Any) -> dict[str, Any]:
    """Return the report of a kernel's schedule: rule, refusals, decisions, plan, and a trace if requested."""
    attrs = getattr(kernel, "attrs", {})
    facts: dict[str, Any] = {
        "rule": str(attrs.get("rule", "")),
        "why_not": [str(reason) for reason in attrs.get("why_not", ())],
        DECISIONS: [str(choice) for choice in attrs.get(DECISIONS, ())],
    }
    names = {"applied": "plan", "trace": "trace"}
    if CYCLES in attrs:
        facts[CYCLES] = attrs[CYCLES]
    return facts | {name: str(attrs[attr]) for attr, name in names.items() if attr in attrs}


__all__ = ["Instrument"]
