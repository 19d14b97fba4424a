"""The record of failed checks, which a running program writes and the caller reads afterwards.

A program with checks has two additional parameters: the record as its last buffer, four int64, and the `site`
of the call as its last scalar, the number of the site times 2**16. The first check that fails writes

    [0]  site + code      0: nothing has failed; codes and numbers of sites begin with 1
    [1]  the index
    [2]  the number of elements that it has to be below
    [3]  in guard mode: the number of the call that began last

and the program continues without the access. If threads write at the same time, the record has the numbers of
any of them. Each call has its own record, at the beginning of its scratch memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, Expr, Var, call, const, const_value, eq, post_order, transform
from dlc_core.tir.functor import exprs_of, stmts, transform_stmt
from dlc_core.tir.stmt import Block, If, PrimFunc, Stmt, Store, seq

CHECKS = "checks"
"""The attribute of a PrimFunc with the descriptions of its checks, by their codes."""
INDEX_CHECKS = "index_checks"
"""The attribute of a PrimFunc with the descriptions of its `report_index` calls, by their codes."""
CHECKED = "checked"
"""The annotation of a block whose `report_index` is a check of data: its text."""
RECORD_NAME = "failure"
"""The name of the record parameter."""
RECORD = 4
"""Elements of the record."""
CALL = 3
"""The index of the element with the number of the running call, which guard mode records."""
SITE = 1 << 16
"""Sites are multiples of this number, so that the codes of one program fit below it."""
REPORT = "report_index"
INDEX_KIND, ACCESS_KIND, CHECK_KIND = "index: ", "access: ", "check: "
"""Prefixes of descriptions: checks of indices that are data, of accesses, and `check` calls of the
program."""


def record_buffer() -> Buffer:
    return Buffer(RECORD_NAME, (RECORD,), INDEX)


def parameters_of(func: PrimFunc) -> tuple[Buffer, Var] | None:
    """The record buffer and the site variable of a program with checks; None for other programs."""
    return (func.buffers[-1], func.scalars[-1]) if CHECKS in func.attrs else None


def with_parameters(func: PrimFunc, checks: Mapping[int, str]) -> PrimFunc:
    """Add the two parameters if they are missing, and set the descriptions of the checks."""
    if parameters_of(func) is None:
        func = replace(func, params=(*func.buffers, record_buffer(), *func.scalars, Var("site")))
    return func.with_attrs(checks=MappingProxyType(dict(checks)))


def failed(record: Buffer, site: Expr, code: int, index: Expr, extent: Expr) -> Stmt:
    """Record an index that is out of range, if no failure is recorded yet."""
    first = eq(record[0], 0)
    numbers = (site + code, index.astype(INDEX), extent.astype(INDEX))
    order = (1, 2, 0)  # the code is written last, so a reader that sees it finds the numbers
    return If(first, seq(*(Store(record, (const(at),), numbers[at]) for at in order)))


def report_index(index: Expr, extent: Expr) -> Expr:
    """The value of `index`, an int64. The call fails if it is not in [-extent, extent)."""
    return call(REPORT, (index, extent, const(0)), index.dtype)


def report_codes(func: PrimFunc) -> frozenset[int]:
    """The codes of the `report_index` calls of a program; -1 for one that is no literal."""
    found: set[int] = set()
    for stmt in stmts(func.body):
        for e in post_order(*exprs_of(stmt)):
            if isinstance(e, Call) and e.name == REPORT:
                code = const_value(e.args[2])
                found.add(-1 if code is None else int(code))
    return frozenset(found)


def numbered(func: PrimFunc) -> PrimFunc:
    """Give each `report_index` a unique code. An attribute maps codes to their subjects: the
    blocks that contain them, or the texts of checks."""
    found: dict[Expr, Expr] = {}
    about: dict[int, str] = {}
    subject = f"{INDEX_KIND}{func.name}"
    for stmt in stmts(func.body):
        if isinstance(stmt, Block):
            what = stmt.annotations.get(CHECKED)
            subject = f"{INDEX_KIND}{stmt.name}" if what is None else f"{CHECK_KIND}{what!r}"
        for e in post_order(*exprs_of(stmt)):
            if isinstance(e, Call) and e.name == REPORT and e not in found:
                code = len(about) + 1
                about[code] = subject
                # An index may depend on other checked indices. These have their codes already.
                index, extent = (transform(arg, found.get) for arg in e.args[:2])
                made = call(REPORT, (index, extent, const(code)), e.dtype)
                found[e] = found[e.rebuild((index, extent, e.args[2]))] = made
    if not found:
        return func
    body = transform_stmt(func.body, expr_fn=found.get)
    return replace(func, body=body).with_attrs(index_checks=MappingProxyType(about))


__all__ = [
    "ACCESS_KIND",
    "CALL",
    "CHECKED",
    "CHECKS",
    "CHECK_KIND",
    "INDEX_CHECKS",
    "INDEX_KIND",
    "RECORD",
    "REPORT",
    "SITE",
    "failed",
    "numbered",
    "parameters_of",
    "record_buffer",
    "report_codes",
    "report_index",
    "with_parameters",
]
