"""Work that depends on dims, for the sizes of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_core import arith
from dlc_core.diag import UsageError
from dlc_core.ir.expr import free_vars
from dlc_core.runtime.interface.encode import decode_expressions
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.interface.untrusted import decoding, integer
from dlc_core.target.cost import Work

SYMBOLIC = "symbolic"
"""The key of a record with the fields of a work that depend on dims: rows of a `Table`, and for each field
the index of its row."""


def work_at(record: Mapping[str, Any], dims: Mapping[str, int]) -> Work:
    """The work of a record, with the fields that depend on dims evaluated for the dims `dims`, given by name.

    A field is None if a dim that it depends on is missing.
    """
    if SYMBOLIC not in record or not dims:
        return Work.of_record(record)
    found = dict(record)
    with decoding("the work of a kernel"):
        exprs = decode_expressions(record[SYMBOLIC]["rows"])
        for name, row in dict(record[SYMBOLIC]["fields"]).items():
            expr = exprs[integer(row, 0, len(exprs) - 1)]
            given = {var: dims[var.name] for var in free_vars(expr) if var.name in dims}
            if len(given) == len(free_vars(expr)):
                found[name] = int(arith.eval_expr(expr, given))
    return Work.of_record(found)


def check_dims(signature: Signature, dims: Mapping[str, int]) -> None:
    """Raise UsageError for a name that is no dim of the model, and for a size that is no size."""
    known = [var.name for var in signature.symbols]
    for name, size in dims.items():
        if name not in known:
            raise UsageError(f"there is no dim {name!r}", hint=f"dims: {', '.join(known) or 'none'}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise UsageError(f"dim {name!r} is {size!r}, which is not a size")


__all__ = ["SYMBOLIC", "check_dims", "work_at"]
