"""`dlc ops`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from dlc_core.cli.options import Json
from dlc_core.cli.tables import first_line, print_records
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.op.declare import NUMBERS, REQUIRED, Attr, OpDecl
from dlc_core.plugin.registry import registry


def ops(
    names: Annotated[list[str] | None, typer.Argument(help="Show only these ops.")] = None,
    frontend: Annotated[
        str | None, typer.Option("--frontend", help="Show the operators that this frontend imports instead.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Show only rows with this value in a column: COLUMN=VALUE; repeatable."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Json = False,
) -> None:
    """List the operators, from their declarations.

    The column `runs` says how targets compute an op. `native` means by its lowering, or by its expansion into
    other ops. `reference` means on the host, by its NumPy reference.

    `--NAME` is short for `--frontend NAME`.

    Examples:

    - `dlc ops`
    - `dlc ops conv softmax --json`
    - `dlc ops --where runs=reference`
    - `dlc ops --frontend onnx --markdown`
    """
    for text in [name for name in names or () if name.startswith("--")]:
        if frontend is not None or text[2:] not in registry().frontends:
            raise UsageError(f"unknown option {text!r}", hint="`dlc ops --help` lists the options")
        frontend = text[2:]
    names = [name for name in names or () if not name.startswith("--")]
    if frontend is not None:
        records = _frontend(frontend)
        records = [r for r in records if not names or r.get("op") in names]
        print_records(filtered(records, where or ()), as_json=as_json, markdown=markdown)
        return
    known = registry().ops
    chosen = [known[name] for name in names] if names else list(known.values())
    records = [_record(each, known.provider(each.name)) for each in chosen]
    print_records(filtered(records, where or ()), as_json=as_json, markdown=markdown)


ops.__dict__["context_settings"] = {"ignore_unknown_options": True}


def filtered(records: Sequence[dict[str, Any]], where: Sequence[str]) -> list[dict[str, Any]]:
    """Return the records with the given value in each named column, alone or in a list."""
    kept = list(records)
    for text in where:
        column, equals, value = text.partition("=")
        if not equals or (records and column not in records[0]):
            known = ", ".join(records[0]) if records else "none"
            raise UsageError(f"--where {text!r} names no column", hint=f"COLUMN=VALUE; columns: {known}")
        kept = [r for r in kept if value in _texts(r[column])]
    return kept


def _texts(value: Any) -> list[str]:
    return list(map(str, value)) if isinstance(value, (list, tuple)) else [str(value)]


def _frontend(name: str) -> list[dict[str, Any]]:
    supported_ops = getattr(registry().frontends[name], "supported_ops", None)
    if supported_ops is None:
        raise UnsupportedError(f"frontend {name!r} does not list the operators that it imports")
    return [asdict(each) for each in supported_ops()]


def _record(decl: OpDecl, plugin: str) -> dict[str, Any]:
    return {
        "op": decl.name,
        "kind": decl.kind,
        "inputs": list(decl.inputs),
        "attributes": [_attribute(attr) for attr in decl.attrs.values()],
        "dtypes": _dtypes(decl.dtypes),
        "runs": "native" if decl.lower is not None or decl.is_composite else "reference",
        "samples": len(decl.samples),
        "plugin": plugin,
        "what": first_line(decl.doc),
    }


def _attribute(attr: Attr) -> str:
    return attr.name if attr.default is REQUIRED else f"{attr.name}={attr.default}"


def _dtypes(names: tuple[str, ...]) -> list[str]:
    """Return the names of dtypes; common sets have one name."""
    if set(names) >= set(NUMBERS):
        return ["all" if "bool" in names else "numbers"]
    return list(names)
