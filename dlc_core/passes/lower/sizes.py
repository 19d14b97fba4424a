"""Work that depends on dims: its fields as expressions, and their records in executables.

A record has the fields of `Work`, None for those that depend on dims. Under the key SYMBOLIC it has these as
expressions, which `runtime.measure.dims` evaluates for the sizes of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from dlc_core import arith
from dlc_core.diag import UnsupportedError
from dlc_core.ir.expr import Expr, Var, as_expr, const_value, minimum, post_order, substitute
from dlc_core.runtime.interface.encode import Table
from dlc_core.runtime.measure.dims import SYMBOLIC
from dlc_core.target.cost import Work

Size = int | Expr | None
"""A count: a number, an expression over dims, or None if it is not known."""
Sizes = dict[str, Size]
"""The fields of `Work` as sizes."""
MAX_NODES = 200
"""The largest number of nodes of an expression that is recorded."""


def smaller(a: int | Expr, b: int | Expr) -> int | Expr:
    """The smaller of two sizes."""
    first, second = const_value(a), const_value(b)
    if first is not None and second is not None:
        return min(int(first), int(second))
    return minimum(as_expr(a), as_expr(b))


def total(terms: Iterable[Size]) -> Size:
    """The sum of sizes; None if one is not known."""
    found: Size = 0
    for term in terms:
        if term is None or found is None:
            return None
        found = found + term
    return found


def known_work(sizes: Mapping[str, Size]) -> Work:
    """The fields that do not depend on dims; the others are None."""
    return Work(**{one.name: _number(sizes.get(one.name)) for one in fields(Work)})


def size_record(sizes: Mapping[str, Size], dims: Mapping[Var, Any] | None = None) -> dict[str, Any]:
    """The record of a work. `dims` are the values of dims that its caller passes."""
    record = known_work(sizes).record()
    table, symbolic = Table(), {}
    for name, size in sizes.items():
        if isinstance(size, Expr) and record[name] is None:
            given = substitute(size, {var: as_expr(value) for var, value in (dims or {}).items()})
            plain = arith.Analyzer().simplify(given)
            if sum(1 for _ in post_order(plain)) <= MAX_NODES:
                try:
                    symbolic[name] = table.add(plain)
                except UnsupportedError:  # it is no arithmetic on dims
                    continue
    return {**record, SYMBOLIC: {"rows": table.rows, "fields": symbolic}} if symbolic else record


def _number(size: Size) -> int | None:
    known = None if size is None else const_value(size)
    return None if known is None else int(known)


__all__ = ["Size", "Sizes", "known_work", "size_record", "smaller", "total"]
