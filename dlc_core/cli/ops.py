"""`dlc ops`"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from dlc_core.cli.options import Json
from dlc_core.cli.tables import first_line, print_records
from dlc_core.diag import UnsupportedError
from dlc_core.op.declare import NUMBERS, REQUIRED, Attr, OpDecl
from dlc_core.registry import registry


def ops(
    names: Annotated[list[str] | None, typer.Argument(help="Show only these ops.")] = None,
    frontend: Annotated[
        str | None, typer.Option("--frontend", help="Show the operators that this frontend imports instead.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Json = False,
) -> None:
    """List the operators, from their declarations.

    `runs` says how a target without an implementation of its own computes an op: `native`, through the op's
    lowering or its expansion into other ops; `reference`, on the host by its NumPy reference.

    Examples:

    - `dlc ops`
    - `dlc ops conv softmax --json`
    - `dlc ops --frontend onnx --markdown`
    """
    if frontend is not None:
        print_records(_frontend(frontend), as_json=as_json, markdown=markdown)
        return
    known = registry().ops
    chosen = [known[name] for name in names] if names else list(known.values())
    records = [_record(each, known.giver(each.name)) for each in chosen]
    print_records(records, as_json=as_json, markdown=markdown)


def _frontend(name: str) -> list[dict[str, Any]]:
    tell = getattr(registry().frontends[name], "supported_ops", None)
    if tell is None:
        raise UnsupportedError(f"frontend {name!r} does not tell what it imports")
    return [asdict(each) for each in tell()]


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
    """Dtypes, the common sets by one word."""
    if set(names) >= set(NUMBERS):
        return ["all" if "bool" in names else "numbers"]
    return list(names)
