"""`dlc rules`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dlc_core.cli.options import Json
from dlc_core.cli.tables import first_line, print_records, text_of
from dlc_core.decisions import declared
from dlc_core.diag import UsageError, similar
from dlc_core.heuristics import declared as declared_numbers
from dlc_core.passes.graph import RULES
from dlc_core.plugin.registry import registry


def rules(
    name: Annotated[
        str | None,
        typer.Argument(help="Show the details of this rule or decision.", metavar="NAME"),
    ] = None,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="List the rules that choose schedules instead.")
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="List the decisions of passes and schedule rules instead.")
    ] = False,
    heuristics: Annotated[
        bool, typer.Option("--heuristics", help="List the numbers of heuristics instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the rewrite rules of the graph, the rules that schedule kernels, or the decisions of both.

    An approximate rule may change bits of results within the ops' tolerances. It runs from level 2 on. A
    decision is a choice among alternatives that compute the same. `DLC_DECISIONS=name=alternative` forces it.
    With the name of a schedule rule, print when it applies, its loop nest and its decisions. The numbers of
    heuristics choose among correct programs. `DLC_HEURISTICS=name=value` sets one.

    Examples:

    - `dlc rules`
    - `dlc rules --schedule`
    - `dlc rules --decisions`
    - `dlc rules --heuristics`
    - `dlc rules cpu.contraction`
    - `dlc rules gemm.tile`
    - `dlc rules --json`
    """
    if name is not None:
        _print_one(name, as_json)
    elif decisions:
        print_records(list(_decisions().values()), as_json=as_json)
    elif heuristics:
        print_records(_numbers(), as_json=as_json)
    elif schedule:
        print_records(list(_schedule_rules().values()), as_json=as_json)
    else:
        print_records(list(_rewrite_rules().values()), as_json=as_json)


def _rewrite_rules() -> dict[str, dict[str, Any]]:
    given = registry().rules
    plugins = {rule.name: "core" for rule in RULES}
    plugins |= {rule.name: given.provider(rule.name) for rule in given.values() if rule not in RULES}
    return {
        rule.name: {
            "rule": rule.name,
            "at": [op.name for op in rule.roots],
            "approximate": rule.approximate,
            "plugin": plugins[rule.name],
            "what": first_line(rule.doc),
        }
        for rule in (*RULES, *(rule for rule in given.values() if rule not in RULES))
    }


def _schedule_rules() -> dict[str, dict[str, Any]]:
    known = registry().schedule_rules
    return {
        rule.name: {
            "rule": rule.name,
            "priority": rule.priority,
            "plugin": known.provider(rule.name),
            "what": first_line(type(rule).__doc__),
        }
        for rule in sorted(known.values(), key=lambda rule: -rule.priority)
    }


def _decisions() -> dict[str, dict[str, Any]]:
    registry().import_deciders()
    return {
        name: {"decision": name, "alternatives": list(each.alternatives), "what": each.about}
        for name, each in declared().items()
    }


def _numbers() -> list[dict[str, Any]]:
    registry().import_deciders()
    return [
        {"heuristic": name, "value": each.text, "what": each.about}
        for name, each in declared_numbers().items()
    ]


def _print_one(name: str, as_json: bool) -> None:
    """Print a schedule rule, a decision or a rewrite rule. Raises UsageError for an unknown name."""
    choices, scheduled, rewrites = _decisions(), _schedule_rules(), _rewrite_rules()
    if name in scheduled:
        rule = registry().schedule_rules[name]
        record = {**scheduled[name], "about": rule.about, "decisions": list(rule.decisions)}
    elif name in choices:
        makers = [rule.name for rule in registry().schedule_rules.values() if name in rule.decisions]
        record = {**choices[name], "values": declared()[name].has_values, "rules": makers}
    elif name in rewrites:
        rewrite = next(r for r in (*RULES, *registry().rules.values()) if r.name == name)
        record = {**rewrites[name], "about": rewrite.doc}
    else:
        close = similar(name, [*scheduled, *choices, *rewrites])
        hint = (
            f"did you mean {close[0]!r}?" if close else "`dlc rules --schedule` and `--decisions` list them"
        )
        raise UsageError(f"there is no rule or decision {name!r}", hint=hint)
    if as_json:
        print_records([record], as_json=True)
        return
    about = record.pop("about", "")
    given = record.pop("decisions", []) if name in scheduled else []
    for title, value in record.items():
        if title != "what" or not about:
            print(f"{title:13}{text_of(value)}")
    if about:
        print(f"\n{about}")
    if given:
        print("\ndecisions, each forced by --set NAME=ALTERNATIVE:")
        print_records([choices[each] for each in given])


__all__ = ["rules"]
