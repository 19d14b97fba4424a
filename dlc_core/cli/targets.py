"""`dlc targets`"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from inspect import getdoc
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlc_core.plugin.registry import registry
from dlc_core.schedule.rules import RULES
from dlc_core.target import Target, TargetKind
from dlc_core.target.facts import PREFIX


def targets(
    kind: Annotated[
        str | None, typer.Argument(help="Show the options of this kind, or the target of this tag.")
    ] = None,
    tags: Annotated[
        bool, typer.Option("--tags", help="List the names of boards and other machines.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show the machine: each fact with its origin."),
    ] = False,
    numbers: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Set a number of the machine, target.l2_bytes=1048576, to see it with -v."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the targets that models can be compiled for.

    A target is written as its kind with options, `kind -name=value`, or as a tag, the name of a board or of
    another machine. Compiling needs no hardware. The column "runs here" says whether this machine can run the
    result.

    Examples:

    - `dlc targets`
    - `dlc targets reference`
    - `dlc targets reference -v`
    - `dlc targets reference -v --set target.l2_bytes=1048576`
    - `dlc targets --tags`
    - `dlc targets --json`
    """
    known = registry().targets
    if tags:
        _print_tags(as_json)
        return
    if kind is not None and kind not in known and kind in registry().target_tags:
        _print_tag(kind, _facts(numbers), as_json)
        return
    kinds: list[TargetKind] = list(known.values()) if kind is None else [known[kind]]
    if as_json:
        print(json.dumps([_record(each, known.provider(each.name)) for each in kinds], indent=2))
        return
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("kind", "plugin", "runs here", "what"):
        table.add_column(title, overflow="fold")
    for each in kinds:
        problem = each.problem()
        runs = "[green]yes[/]" if problem is None else f"[yellow]{escape(problem)}[/]"
        table.add_row(each.name, known.provider(each.name), runs, escape(each.doc))
    console.print(table)
    if kind is not None:
        _print_options(console, kinds[0])
    if verbose:
        for each in kinds:
            if kind is None:
                for line in _restrictions(each):
                    console.print(f"\n{each.name}: {escape(line)}", highlight=False)
            _print_description(console, Target(each).with_facts(_facts(numbers)))
    for name, claimants in known.clashes.items():
        console.print(
            f"[red]{escape(name)} is declared by {escape(' and '.join(claimants))}[/]", highlight=False
        )


def _print_tags(as_json: bool) -> None:
    known = registry().target_tags
    if as_json:
        records = [
            {"name": each.name, "plugin": known.provider(each.name), "target": each.target, "doc": each.doc}
            for each in known.values()
        ]
        print(json.dumps(records, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("tag", "plugin", "what", "target"):
        table.add_column(title, overflow="fold")
    for each in known.values():
        table.add_row(each.name, known.provider(each.name), escape(each.doc), escape(each.target))
    Console().print(table)


def _print_tag(name: str, facts: dict[str, str], as_json: bool) -> None:
    """Print the target of a tag, and the machine that it describes."""
    target = Target(name).with_facts(facts)
    if as_json:
        print(target.to_json())
        return
    _print_description(Console(), target)


def _print_options(console: Console, kind: TargetKind) -> None:
    code = f"codegen {kind.codegen}" if kind.codegen else "no codegen: it takes parts of models"
    console.print(f"\n{code}, device {kind.device}", highlight=False)
    for line in _restrictions(kind):
        console.print(escape(line), highlight=False)
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("option", "type", "default", "meaning"):
        table.add_column(title, overflow="fold")
    for option in kind.options:
        table.add_row(f"-{option.name}", option.kind, escape(str(option.default)), escape(option.help))
    console.print(table)


def _restrictions(kind: TargetKind) -> list[str]:
    """Lines about the nodes, schedule rules and passes of a kind."""
    lines = []
    known = registry().codegens
    if kind.codegen in known and hasattr(known[kind.codegen], "supports"):
        about = (getdoc(known[kind.codegen].supports) or "").partition("\n")[0]
        lines.append(f"nodes: those that its code generator supports{f': {about}' if about else ''}")
    if kind.rules is not None:
        registry().import_deciders()
        names = [rule.name for rule in (*RULES, *registry().schedule_rules.values())]
        found = ", ".join(name for name in dict.fromkeys(names) if kind.allows_rule(name))
        lines.append(f"schedule rules: {', '.join(kind.rules)} ({found or 'none is known'})")
    if kind.disabled_passes:
        lines.append(f"disabled passes: {', '.join(kind.disabled_passes)}")
    return lines


def _facts(texts: list[str] | None) -> dict[str, str]:
    """Parse `--set target.NAME=VALUE`."""
    pairs = (text.strip().removeprefix(PREFIX).partition("=") for text in texts or ())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _print_description(console: Console, target: Target) -> None:
    """Print the machine that a target describes, as schedules and the cost model see it."""
    description = target.describe()
    console.print(f"\nmachine of {target}\n", highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("fact", "value", "origin"):
        table.add_column(title, overflow="fold")
    for field in fields(description):
        if field.name == "origins":
            continue
        value = getattr(description, field.name)
        shown = ", ".join(map(str, value)) if isinstance(value, tuple | frozenset) else str(value)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        origin = description.origins.get(field.name, "assumed" if value == default else "described")
        table.add_row(field.name, escape(shown or "none"), origin)
    console.print(table)
    rates = ", ".join(f"{rate:.3g}" for rate in description.bytes_per_cycle)
    console.print(f"bytes per cycle of one core, from each cache and from memory: {rates}", highlight=False)


def _record(kind: TargetKind, plugin: str) -> dict[str, object]:
    return {
        "name": kind.name,
        "plugin": plugin,
        "doc": kind.doc,
        "codegen": kind.codegen,
        "device": kind.device,
        "problem": kind.problem(),
        "options": [
            {"name": o.name, "type": o.kind, "default": o.default, "help": o.help} for o in kind.options
        ],
        "rules": kind.rules,
        "disabled_passes": kind.disabled_passes,
    }
