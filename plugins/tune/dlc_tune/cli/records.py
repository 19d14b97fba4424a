"""`dlc records`"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from dlc_core.cli.options import Json, console
from dlc_core.cli.tables import print_records
from dlc_core.diag import UsageError
from dlc_core.schedule import Trace
from dlc_tune.cli.selecting import State, id_of, opened, row, select, wanted, when
from dlc_tune.records.database import Database
from dlc_tune.records.lines import to_line
from dlc_tune.records.pack import best_of_each, write_package
from dlc_tune.records.record import Record
from dlc_tune.records.transfer import export_lines, import_lines, problem

app = typer.Typer(
    help="""List, show, export, import and pack the records of tuned kernels.

    Compiles take the schedules of chosen records; `dlc explain` shows which. The database is a file of the
    user by default (the setting `records_url`, `DLC_RECORDS_URL`), or a path or a SQLAlchemy URL that
    `--database` gives. `DLC_RECORDS=off` lets compiles ignore all records.

    Examples:

    - `dlc records list`
    - `dlc records best --target llvm`
    - `dlc records show fused_matmul_add --state tried`
    - `dlc records export tuned.jsonl --state chosen`
    - `dlc records import tuned.jsonl -d postgresql://user@host/records`
    - `dlc records pack acme-records --out dist`
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


REFUSED = 5
"""The refused lines of a file that an import prints."""
Url = Annotated[
    str | None,
    typer.Option("--database", "-d", help="A path or a SQLAlchemy URL; the user's own by default."),
]
OfTarget = Annotated[str | None, typer.Option("--target", "-t", help="Only records of this target.")]
OfKernel = Annotated[
    str | None, typer.Option("--kernel", "-k", help="Only kernels of this name, or whose hash begins so.")
]
OfState = Annotated[State, typer.Option("--state", help="Only chosen schedules, only others, or all.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest.")]


@app.command("list")
def list_records(
    kernel: OfKernel = None,
    target: OfTarget = None,
    state: OfState = State.chosen,
    limit: Limit = 50,
    database: Url = None,
    as_json: Json = False,
) -> None:
    """List records, the newest last.

    Examples:

    - `dlc records list`
    - `dlc records list --state all --kernel fused_conv2d --limit 10`
    - `dlc records list --target llvm --json`
    """
    with opened(database) as found:
        records = select(found, kernel, target, state)
    shown = sorted(records, key=lambda one: one.time)[-limit:]
    print_records([row(one) for one in shown], as_json=as_json)
    if not as_json:
        console().print(f"{len(shown)} of {len(records)} records", highlight=False)


@app.command()
def show(
    kernel: Annotated[
        str,
        typer.Argument(help="The name of a kernel, the begin of its hash, or the begin of a record's id."),
    ],
    target: OfTarget = None,
    state: OfState = State.chosen,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, the fastest.")] = 3,
    database: Url = None,
    as_json: Json = False,
) -> None:
    """Show records with all fields and their schedules.

    Of chosen records, the best one of the kernel on each target and machine is shown. Other records, whose
    schedules were measured and not chosen, are shown with `--state tried`, the fastest first. `dlc records
    list --state tried` lists them with their ids.

    Examples:

    - `dlc records show fused_matmul_add`
    - `dlc records show fused_matmul_add --state tried --limit 1`
    - `dlc records show 3fa9c1 --json`
    """
    with opened(database) as found:
        records, more = wanted(select(found, None, target, State.all), kernel, state, limit)
    if as_json:
        typer.echo(json.dumps([json.loads(to_line(one)) for one in records], indent=2))
        return
    for one in records:
        console().print(f"{'id':<16} {id_of(one)}", highlight=False)
        for name in (each.name for each in fields(Record) if each.name != "trace"):
            value = getattr(one, name)
            text = when(one) if name == "time" else str(dict(value) if hasattr(value, "items") else value)
            console().print(f"{name:<16} {escape(text)}", highlight=False, soft_wrap=True)
        why = problem(one)
        text = f"refused: {why}" if why else Trace.from_json(one.trace).as_python() if one.trace else ""
        console().print(escape(text) + "\n", highlight=False, soft_wrap=True)
    if more:
        console().print(f"the fastest {len(records)} of {len(records) + more} records", highlight=False)


@app.command()
def best(target: OfTarget = None, database: Url = None, as_json: Json = False) -> None:
    """Show the best record of each kernel, the largest gain first.

    Examples:

    - `dlc records best`
    - `dlc records best --target llvm --json`
    """
    with opened(database) as found:
        records = best_of_each(select(found, None, target, State.chosen))
    print_records([row(one) for one in sorted(records, key=lambda one: one.gain)], as_json=as_json)
    if not as_json:
        console().print(f"{len(records)} kernels have chosen records", highlight=False)


@app.command("export")
def export_records(
    file: Annotated[Path, typer.Argument(help="The file to write, of one JSON record a line.")],
    kernel: OfKernel = None,
    target: OfTarget = None,
    state: OfState = State.all,
    database: Url = None,
) -> None:
    """Write records to a file of JSON lines.

    Examples:

    - `dlc records export all.jsonl`
    - `dlc records export chosen.jsonl --state chosen --target llvm`
    """
    with opened(database) as found:
        count = export_lines(file, select(found, kernel, target, state))
    console().print(f"{count} records in {file}", highlight=False, markup=False)


@app.command("import")
def import_records(
    files: Annotated[list[Path], typer.Argument(help="Files of JSON lines.")], database: Url = None
) -> None:
    """Add the records of files of JSON lines. Lines that are no records are left out; the first are shown.

    The exit code is 1 if lines were refused.

    Examples:

    - `dlc records import colleague.jsonl`
    - `dlc records import *.jsonl --database postgresql://user@host/records`
    """
    refused = 0
    with Database(database) as found:
        found.check_writable()
        for file in files:
            done = import_lines(file, found)
            refused += done.refused_count
            lines = [f"{file}:{line.number}: {line.why}" for line in done.refused[:REFUSED]]
            if done.refused_count > REFUSED:
                lines.append(f"{file}: {done.refused_count - REFUSED} more lines are refused")
            lines.append(f"{file}: {done.added} new, {done.known} known, {done.refused_count} refused")
            if done.is_foreign:
                lines.append(f"{file} is no file of records: `dlc records export` writes such files")
            console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    if refused:
        raise typer.Exit(1)


@app.command()
def pack(
    name: Annotated[str, typer.Argument(help="The name of the package, such as acme-records.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder that gets the package's folder.")],
    target: OfTarget = None,
    version: Annotated[str, typer.Option("--version", help="The version of the package.")] = "0.1.0",
    licence: Annotated[
        str, typer.Option("--license", help="Its licence, an SPDX expression.")
    ] = "Apache-2.0",
    database: Url = None,
) -> None:
    """Write a package of the best chosen records. Where it is installed, compiles use them.

    Examples:

    - `dlc records pack acme-records --out dist --target llvm`
    - `pip wheel dist/acme-records --no-deps`
    """
    with opened(database) as found:
        records = select(found, None, target, State.chosen)
    folder = write_package(name, records, out, version=version, licence=licence)
    count = len(best_of_each(records))
    console().print(f"{count} records in {folder}", highlight=False, markup=False)
    console().print(f"pip wheel --no-deps {folder}", highlight=False, markup=False)


@app.command()
def forget(
    kernel: OfKernel = None,
    target: OfTarget = None,
    state: OfState = State.all,
    everything: Annotated[bool, typer.Option("--all", help="Remove all records.")] = False,
    database: Url = None,
) -> None:
    """Remove records. Their kernels get the default schedules again.

    Examples:

    - `dlc records forget --kernel fused_matmul_add`
    - `dlc records forget --target llvm --state tried`
    - `dlc records forget --all`
    """
    if not everything and kernel is None and target is None and state is State.all:
        raise UsageError("`dlc records forget` needs a kernel, a target or a state", hint="or --all")
    with opened(database) as found:
        equal = {} if target is None else {"target": target}
        equal |= {} if state is State.all else {"state": state.value}
        if kernel is None:
            count = found.forget(**equal)
        else:
            kernels = {one.kernel for one in select(found, kernel, target, state)}
            count = sum(found.forget(kernel=each, **equal) for each in kernels)
    console().print(f"{count} records removed", highlight=False)


@app.command()
def stats(database: Url = None, as_json: Json = False) -> None:
    """Count the records by target, state and outcome.

    Examples:

    - `dlc records stats`
    - `dlc records stats --json`
    """
    with opened(database) as found:
        counts = found.counts("target", "state", "outcome")
        shown = str(found)
    print_records(counts, as_json=as_json)
    if not as_json:
        total = sum(one["count"] for one in counts)
        console().print(f"{total} records in {shown}", highlight=False, markup=False)


__all__ = ["app"]
