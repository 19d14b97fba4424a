"""Tables of declarations: on the screen, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from dlc_core.cli.options import console
from dlc_core.diag import first_names

Record = Mapping[str, Any]


def print_records(records: Sequence[Record], *, as_json: bool = False, markdown: bool = False) -> None:
    """Print records with equal keys as a table. Values of a list are separated by commas."""
    if as_json:
        print(json.dumps(records, indent=2))
        return
    titles = list(records[0]) if records else []
    if markdown:
        print(markdown_table(titles, [[text_of(value) for value in record.values()] for record in records]))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        numbers = all(isinstance(r[title], (int, float)) and not isinstance(r[title], bool) for r in records)
        table.add_column(title, overflow="fold", justify="right" if numbers else "left")
    for record in records:
        table.add_row(*(escape(text_of(value)) for value in record.values()))
    console().print(table)


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def text_of(value: Any) -> str:
    """Format a value for tables: lists with commas, yes and no, nothing for None."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def first_line(text: str | None) -> str:
    """Return the first sentence of a docstring."""
    paragraph = " ".join((text or "").strip().partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


def shortened(names: Sequence[str], limit: int = 3) -> str:
    """Return the first distinct names, and the number of the others."""
    return first_names(list(dict.fromkeys(names)), limit)
