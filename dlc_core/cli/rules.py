"""`dlc rules`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dlc_core.cli.options import Json
from dlc_core.cli.tables import first_line, print_records
from dlc_core.decisions import declared
from dlc_core.passes.graph import RULES
from dlc_core.plugin.registry import registry
from dlc_core.rewrite import Rule


def rules(
    schedule: Annotated[
        bool, typer.Option("--schedule", help="List the rules that choose schedules instead.")
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="List the decisions of passes and schedule rules instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the rewrite rules of the graph, the rules that schedule kernels, or the decisions of both.

    An approximate rule may change bits of results within the ops' tolerances. It runs from level 2 on. A
    decision is a choice among alternatives that compute the same. `DLC_DECISIONS=name=alternative` forces it.

    Examples:

    - `dlc rules`
    - `dlc rules --schedule`
    - `dlc rules --decisions`
    - `dlc rules --json`
    """
    records: list[dict[str, Any]]
    if decisions:
        registry()  # plugins declare decisions, too
        records = [
            {"decision": name, "alternatives": list(each.alternatives), "what": each.about}
            for name, each in declared().items()
        ]
    elif schedule:
        known = registry().schedule_rules
        chosen = sorted(known.values(), key=lambda rule: -getattr(rule, "priority", 0))
        records = [
            {
                "rule": rule.name,
                "priority": getattr(rule, "priority", 0),
                "plugin": known.giver(rule.name),
                "what": first_line(type(rule).__doc__),
            }
            for rule in chosen
        ]
    else:
        given = registry().rules
        records = [_record(rule, "core") for rule in RULES]
        records += [_record(rule, given.giver(rule.name)) for rule in given.values() if rule not in RULES]
    print_records(records, as_json=as_json)


def _record(rule: Rule, plugin: str) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "at": [op.name for op in rule.roots],
        "approximate": rule.approximate,
        "plugin": plugin,
        "what": first_line(rule.doc),
    }
