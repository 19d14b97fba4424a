"""The record of failed checks in native entries: its position, and the calls of kernels that write it.

An entry keeps it at the beginning of its arena; bodies of branches and loops get it from their callers.  See
`tir/failures.py` for its form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlc_core.diag import PassError
from dlc_core.graph.node import CALL_PRIM, Node
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Var, call, const, free_vars, logical_and
from dlc_core.ir.module import IRModule
from dlc_core.passes.tir.bounds import Access
from dlc_core.passes.tir.prove_bounds import BOUNDS
from dlc_core.runtime.guard.failures import RECORD_BYTES, Site
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.failures import (
    CALL,
    CHECK_KIND,
    CHECKS,
    INDEX_KIND,
    SITE,
    failed,
    parameters_of,
    record_buffer,
    with_parameters,
)
from dlc_core.tir.functor import transform_each
from dlc_core.tir.intrinsics import NOTE, STATUS, address_of, kernel_symbol
from dlc_core.tir.stmt import Eval, If, PrimFunc, Stmt


class Record:
    """The record of one function, and the sites of its entry."""

    def __init__(self, functions: Mapping[str, object], outer: Record | None = None) -> None:
        """The record of a body (`of_body`) is a parameter; the body shares its entry's sites and calls."""
        self._functions = functions
        self.sites: list[Site] = [] if outer is None else outer.sites
        self.calls: list[Site] = [] if outer is None else outer.calls
        """The calls that guard mode numbers."""
        self.nested = outer is not None
        self.buffer = record_buffer()

    def of_body(self) -> Record:
        """Return the record of a function that this one calls."""
        return Record(self._functions, self)

    def is_written(self, steps: Sequence[Node], bodies: bool) -> bool:
        """Whether a step may write the record; `bodies` says whether a called body does."""
        kernels = (self._functions[n.attrs["symbol"]] for n in steps if n.op is CALL_PRIM)
        return bodies or any(isinstance(f, PrimFunc) and CHECKS in f.attrs for f in kernels)

    def reserved(self, align: int) -> int:
        """Return the bytes that the record takes at the beginning of an entry's arena."""
        return 0 if self.nested else -(-RECORD_BYTES // align) * align

    def arguments(self, n: Node, func: PrimFunc) -> tuple[list[Buffer], list[Expr]]:
        """Return the arguments of a kernel call for its checks: the record and the site's number."""
        if parameters_of(func) is None:
            return [], []
        checks = func.attrs[CHECKS]
        about = tuple(str(checks.get(code, "")) for code in range(1, max(checks) + 1))
        self.sites.append(Site(func.name, _nodes(n, func), about))
        return [self.buffer], [const(len(self.sites) * SITE)]

    def note_call(self, n: Node, func: PrimFunc, written: bool) -> list[Stmt]:
        """Return the statements before a kernel call in guard mode.

        They write the number of the call to the record, if it is `written`.
        """
        self.calls.append(Site(func.name, _nodes(n, func), ()))
        number = const(len(self.calls))
        return [Eval(call(NOTE, (address_of(self.buffer, CALL), number), STATUS))] if written else []

    def guarded(self, func: PrimFunc, calls: Stmt, accesses: Sequence[Access]) -> Stmt:
        """Guard the calls of a function by the conditions on sizes under which its windows are in bounds.

        Raises PassError if there are no such sizes.
        """
        conds = [access.when for access in accesses if access.when is not None and free_vars(access.when)]
        if len(conds) < len(accesses):
            raise PassError(
                f"the memory plan of {func.name} is wrong",
                spans=func.spans,
                details=[str(access) for access in accesses[:4]],
            )
        about = f"{CHECK_KIND}of the memory of {func.name}"
        self.sites.append(Site(func.name, (), (about,)))
        site = const(len(self.sites) * SITE)
        return If(logical_and(*conds), calls, failed(self.buffer, site, 1, const(0), const(0)))


def _nodes(n: Node, func: PrimFunc) -> tuple[str, ...]:
    """Return the names of the model nodes that a call computes."""
    return tuple(dict.fromkeys(span.name for span in n.spans or func.spans))


def pass_records(module: IRModule) -> IRModule:
    """Let kernels pass the record to the kernels with checks that they call."""
    kernels: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    if not any(CHECKS in func.attrs for func in kernels.values()):
        return module
    done: dict[str, PrimFunc] = {}
    for name in _callees_first(kernels):
        func = kernels[name]
        callees_with_checks = [
            done[s] for s in called_kernels(func.body) if s in done and CHECKS in done[s].attrs
        ]
        done[name] = (
            _with_record_passed(func, {callee.name: callee for callee in callees_with_checks})
            if callees_with_checks
            else func
        )
    return module.with_functions(done)


def _callees_first(kernels: Mapping[str, PrimFunc]) -> list[str]:
    """Return the names of kernels, callees before callers; cycles in any order."""
    order: dict[str, None] = {}
    work = [(name, False) for name in kernels]
    visited: set[str] = set()
    while work:
        name, callees_done = work.pop()
        if callees_done:
            order[name] = None
        elif name not in visited:
            visited.add(name)
            work.append((name, True))
            work += [(callee, False) for callee in called_kernels(kernels[name].body) if callee in kernels]
    return list(order)


def _with_record_passed(func: PrimFunc, callees: Mapping[str, PrimFunc]) -> PrimFunc:
    """Let a kernel pass on its record, with a site that maps the codes of a callee to its own codes."""
    about: dict[int, str] = dict(func.attrs.get(CHECKS, {}))
    made = with_parameters(func, about)
    record = parameters_of(made)
    assert record is not None
    first_codes: dict[str, int] = {}
    for symbol, callee in callees.items():
        first_codes[symbol] = max(about, default=0)
        about.update({first_codes[symbol] + code: text for code, text in callee.attrs[CHECKS].items()})

    def stmt(s: Eval) -> Stmt | None:
        symbol = kernel_symbol(s.value)
        if symbol is None or symbol not in callees or not isinstance(s.value, Call):
            return None
        buffers = len(callees[symbol].buffers) - 1
        args = s.value.args
        own = address_of(record[0]), record[1] + first_codes[symbol]
        return Eval(call(s.value.name, (*args[:buffers], own[0], *args[buffers:], own[1]), s.value.dtype))

    return with_parameters(replace(made, body=transform_each(made.body, Eval, stmt)), about)


def access_counts(funcs: Sequence[PrimFunc]) -> dict[str, int]:
    """Count the accesses that are proved to be in bounds, those that are checked at run time, and the checked
    data-dependent indices.
    """
    found = [func.attrs.get(BOUNDS, (0, 0)) for func in funcs]
    texts = [text for func in funcs for text in func.attrs.get(CHECKS, {}).values()]
    return {
        "proved": sum(proved for proved, _ in found),
        "checked": sum(left for _, left in found),
        "indices": sum(text.startswith(INDEX_KIND) for text in texts),
    }


def workspaces_of(func: PrimFunc) -> tuple[Buffer, ...]:
    """Return the temporaries of a kernel that its caller passes."""
    buffers = func.buffers if parameters_of(func) is None else func.buffers[:-1]
    return buffers[len(buffers) - func.attrs.get("workspaces", 0) :]


def dims_of(func: PrimFunc) -> tuple[Var, ...]:
    """Return the sizes that a kernel takes by value."""
    return func.scalars if parameters_of(func) is None else func.scalars[:-1]


__all__ = ["Record", "access_counts", "dims_of", "pass_records", "workspaces_of"]
