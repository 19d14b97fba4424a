"""The table of operators matches the importer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dlc_frontend_onnx.converters import TABLE
from dlc_frontend_onnx.operators import MODES, operator_table, page
from dlc_frontend_onnx.support import supported_ops, untried
from dlc_frontend_onnx.testing import operators
from dlc_frontend_onnx.testing.random_models.templates import all_templates

from dlc_core.cli.main import main

PAGE = Path(__file__).parents[3] / "docs" / "onnx-operators.md"
MAKE = "python -m dlc_frontend_onnx.testing.operators docs/onnx-operators.md"


def test_the_page_is_generated_from_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(operator_table(), untried(operator_table())), (
        f"run: {MAKE}"
    )


def test_the_page_lists_every_operator_that_a_converter_takes():
    rows = operator_table()
    more = {(domain, op) for domain, ops in untried(rows).items() for op, _ in ops}
    refused = {key for key, entries in TABLE.items() if all(entry.check for entry in entries)}
    assert more | {(row.domain, row.op) for row in rows} >= set(TABLE) - refused
    text = PAGE.read_text(encoding="utf-8")
    assert "## More of com.microsoft" in text
    assert "| GroupQueryAttention | 1 |" in text
    assert "| BeamSearch |" not in text


def stale(found):
    """The re-tested operator versions whose result differs from the table."""
    known = {}
    for row in operator_table():
        modes = known.setdefault((row.domain, row.op, row.since), {})
        modes.update(dict.fromkeys(row.types, row.mode))
    return [
        key for key, modes in found.items() if any(known.get(key, {}).get(d) != w for d, w in modes.items())
    ]


def test_a_part_of_the_table_is_current():
    ops = sorted(all_templates())[::9]
    assert stale(operators.of_templates(ops)) == [], f"run: {MAKE}"


@pytest.mark.slow
def test_the_whole_table_is_current():
    assert stale({**operators.of_suite(), **operators.of_templates(all_templates())}) == [], f"run: {MAKE}"


def test_every_row_is_of_an_operator_that_is_imported():
    known = {(row.domain, row.op) for row in supported_ops()} | set(TABLE)
    rows = operator_table()
    assert {(row.domain, row.op) for row in rows} <= known
    assert {row.mode for row in rows} == set(MODES)
    assert len({(r.domain, r.op) for r in rows}) > 150


def test_the_command_filters(capsys):
    assert main(["ops", "--onnx", "Conv", "MatMul", "--where", "types=float64", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["op"] for row in rows} == {"Conv", "MatMul"}
    assert all("float64" in row["types"] for row in rows)
    assert main(["ops", "--where", "runs=reference", "--json"]) == 0
    assert all(row["runs"] == "reference" for row in json.loads(capsys.readouterr().out))
    assert main(["ops", "--nothing"]) == 2
    assert main(["ops", "--onnx", "--where", "colour=red"]) == 2
