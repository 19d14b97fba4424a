"""Supported operators: the check of a whole model before conversion, and the table in the docs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnx import defs

from dlc_core.diag import UnsupportedError
from dlc_frontend_onnx.converters import TABLE, find_entry
from dlc_frontend_onnx.entries import Entries
from dlc_frontend_onnx.functions import standard_function
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.model import FunctionDef, Graph, Model, NodeDef
from dlc_frontend_onnx.operators import Operator
from dlc_frontend_onnx.schema import default_attributes, find_schema, function_body, has_body
from dlc_frontend_onnx.scope import located

SHOWN = 50
"""Limit of different reasons that an error lists."""


def live_nodes(graph: Graph, more: Iterable[str] = ()) -> list[NodeDef]:
    """The nodes that the outputs and the `more` values depend on, in order."""
    needed = {*(info.name for info in graph.outputs), *more}
    kept = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
            needed.update(node.captures)
    return kept[::-1]


def check_support(model: Model, nodes: Sequence[NodeDef]) -> None:
    """Raise an UnsupportedError that names every unsupported node, at any depth."""
    problems: list[UnsupportedError] = []
    seen: set[object] = set()
    pending: list[tuple[Iterable[NodeDef], dict[str, int]]] = [(nodes, model.opsets)]
    while pending:
        current, opsets = pending.pop()
        for node in current:
            for _, graph in node.subgraphs():
                pending.append((graph.nodes, opsets))
            key = (node.domain, node.op, node.overload)
            own = model.functions.get(key)
            version = opsets.get(node.domain, 0)
            if own is None:
                reason = _reason(node, version, model.importers)
                if reason:
                    problem = node.loc.unsupported(reason)
                    located(problem, node)
                    problems.append(problem)
                    continue
                own = _body(node, version, model.importers)
            if own is not None and (key, version) not in seen:
                seen.add((key, version))
                pending.append((own.nodes, own.opsets))
    if problems:
        raise combined(model, problems)


def _body(node: NodeDef, version: int, own: Entries) -> FunctionDef | None:
    """The standard's function body of a node, if it does not depend on types."""
    if find_entry(node.domain, node.op, version, own) is not None:
        return None
    schema = find_schema(node.domain, node.op, version)
    if schema is None or not schema.has_function:
        return None
    body = function_body(node, version, ())
    return None if body is None else standard_function(body, version, default_attributes(node, version))


def _reason(node: NodeDef, version: int, own: Entries) -> str:
    """Why a node is not supported; empty if it is."""
    entry = find_entry(node.domain, node.op, version, own)
    if entry is not None:
        return (entry.check(node) or "") if entry.check is not None else ""
    if has_body(node.domain, node.op, version):
        return ""
    what = f"operator {quoted(node.op)}"
    known = TABLE.get((node.domain, node.op))
    if known:
        return f"{what} of opset {version} is not supported, only from opset {known[0].since} on"
    newer = own.get((node.domain, node.op))
    if newer:
        return f"the importer of {what} supports versions from {newer[0].since} on, not {version}"
    schema = find_schema(node.domain, node.op, version)
    if schema is not None:
        return f"{what} is not supported"
    if node.domain in {domain for domain, _ in TABLE} and node.domain == "":
        return f"{what} is not an operator of opset {version}"
    return f"{what} of domain {quoted(node.domain)} is not known"


def combined(model: Model, problems: Sequence[UnsupportedError]) -> UnsupportedError:
    """One error for all problems: its spans name every node, its details count each reason."""
    if len(problems) == 1:
        return problems[0]
    counts: Counter[str] = Counter()
    for problem in problems:
        domain = problem.details[0].partition(" of domain ")[2].partition(",")[0] if problem.details else ""
        reason = f", because {problem.why}" if problem.why else ""
        counts[f"{problem.what}{reason}" + (f" (domain {domain})" if domain else "")] += 1
    details = [f"{count} times: {what}" if count > 1 else what for what, count in counts.most_common(SHOWN)]
    if len(counts) > SHOWN:
        details.append(f"and {len(counts) - SHOWN} more reasons")
    hints = list(dict.fromkeys(problem.hint for problem in problems if problem.hint))
    return UnsupportedError(
        f"{len(problems)} nodes of the model are not supported",
        spans=list(dict.fromkeys(span for problem in problems for span in problem.spans)),
        details=details,
        hint="; ".join(hints[:3]),
    )


@dataclass(frozen=True)
class SupportedOp:
    """A row of the table of operators: the converted versions of an operator, and how it is converted."""

    domain: str
    op: str
    versions: tuple[int, ...]
    how: str


def supported_ops() -> list[SupportedOp]:
    """Every operator that can be imported, with the versions that the installed `onnx` defines.

    `how` is "converter", or "function" for operators imported by the standard's function body.
    """
    history: dict[tuple[str, str], list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        history.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    rows = []
    for key in sorted({*history, *TABLE}):
        domain, op = key
        versions = sorted(history.get(key, ())) or [entry.since for entry in TABLE[key]]
        by_converter = tuple(v for v in versions if find_entry(domain, op, v) is not None)
        if by_converter:
            rows.append(SupportedOp(domain, op, by_converter, "converter"))
        elif domain == "" and any(has_body(domain, op, v) for v in versions):
            known = tuple(v for v in versions if has_body(domain, op, v))
            rows.append(SupportedOp(domain, op, known, "function"))
    return rows


def untried(rows: Iterable[Operator]) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Operators with a converter but without a row in the table, by domain: names and versions.

    Operators that are always refused before conversion are left out.
    """
    tried = {(row.domain, row.op) for row in rows}
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for domain, op in sorted({*TABLE} - tried):
        versions = tuple(entry.since for entry in TABLE[domain, op] if entry.check is None)
        if versions:
            found.setdefault(domain, []).append((op, versions))
    return found


__all__ = ["SupportedOp", "check_support", "combined", "live_nodes", "supported_ops", "untried"]
