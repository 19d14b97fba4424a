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
    formats: Annotated[
        bool, typer.Option("--formats", help="List the quantisation formats of weights instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the element types: those of the core, and those that plugins declare.

    `bits` are those of a code, `storage` those of an element in memory. Arithmetic is native where the target
    computes in the dtype, and else emulated. If it is not emulated, other targets refuse it. Nothing is
    computed in dtypes for storage. A quantisation format stores groups of weights with a scale each.

    Examples:

    - `dlc dtypes`
    - `dlc dtypes posit8`
    - `dlc dtypes --formats`
    - `dlc dtypes --json`
    """
    if formats:
        known = {each: _format(each) for each in registry().quant_formats}
    else:
        known = {each: _record(each) for each in (*CORE_DTYPES, *registry().dtypes)}
    if name is None:
        print_records(list(known.values()), as_json=as_json)
        return
    if name not in known:
        close = similar(name, known)
        hint = f"did you mean {close[0]!r}?" if close else "`dlc dtypes` lists all"
        raise UsageError(f"there is no {'format' if formats else 'dtype'} {name!r}", hint=hint)
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


def _format(name: str) -> dict[str, Any]:
    declared = registry().quant_formats
    made = declared[name]
    return {
        "format": name,
        "element": made.element,
        "group": made.group,
        "scale": made.scale,
        "zero": "for each group" if made.zero else str(made.offset) if made.offset else "no",
        "bits per weight": made.bits_per_weight,
        "plugin": declared.provider(name),
        "what": made.doc,
    }


__all__ = ["dtypes"]
