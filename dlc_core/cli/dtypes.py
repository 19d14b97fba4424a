"""`dlc dtypes`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dlc_core.cli.options import Json
from dlc_core.cli.tables import print_records
from dlc_core.diag import UsageError, similar
from dlc_core.ir.dtype import DType
from dlc_core.ir.dtype_table import CORE_DTYPES
from dlc_core.op.declare import ALL
from dlc_core.plugin.registry import registry


def dtypes(
    name: Annotated[str | None, typer.Argument(help="Show only this dtype.", metavar="NAME")] = None,
    as_json: Json = False,
) -> None:
    """List the element types: those of the core, and those that plugins declare.

    `bits` are those of a code, `storage` those of an element in memory. Arithmetic is native where the target
    computes in the dtype, and else emulated. If it is not emulated, other targets refuse it. Nothing is
    computed in dtypes for storage.

    Examples:

    - `dlc dtypes`
    - `dlc dtypes posit8`
    - `dlc dtypes --json`
    """
    declared = registry().dtypes
    known = {each: _record(each) for each in (*CORE_DTYPES, *declared)}
    if name is None:
        print_records(list(known.values()), as_json=as_json)
        return
    if name not in known:
        close = similar(name, known)
        hint = f"did you mean {close[0]!r}?" if close else "`dlc dtypes` lists all"
        raise UsageError(f"there is no dtype {name!r}", hint=hint)
    print_records([known[name]], as_json=as_json)


def _record(name: str) -> dict[str, Any]:
    type_ = DType(name)
    decl, declared = type_.decl, registry().dtypes
    if decl is not None:
        arithmetic = "emulated" if decl.emulated else "native only"
    else:
        arithmetic = "native" if name in ALL or type_.kind == "complex" else "for storage"
    return {
        "dtype": name,
        "kind": type_.kind,
        "bits": type_.bits if decl is None else decl.bits,
        "storage": 8 * type_.itemsize,
        "arithmetic": arithmetic,
        "plugin": "core" if decl is None else declared.provider(name),
        "what": "" if decl is None else decl.doc,
    }


__all__ = ["dtypes"]
