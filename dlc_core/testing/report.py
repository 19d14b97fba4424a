"""The report of the conformance kit: `pytest --dlc-report=DIR` writes conformance.json and conformance.html.

`summary` combines the records of tests in an order that does not depend on the order of the tests. Only
durations differ between runs.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import DlcError
from dlc_core.driver import find_target
from dlc_core.plugin.registry import registry
from dlc_core.testing.catalogue import case_names, op_case_names, unused_exemptions
from dlc_core.testing.levels import LEVELS
from dlc_core.testing.report_levels import Test, levels_of, percent, shares_of, tally_of
from dlc_core.testing.report_page import page
from dlc_core.testing.runner import (
    EXPECTED,
    FAILED,
    NOT_RUN,
    ON_HOST,
    PASSED,
    STATUSES,
    UNSUPPORTED,
    Outcome,
    expectations_of,
)
from dlc_core.testing.where import Tally
from dlc_core.version import __version__

FORMAT = 2
JSON, HTML = "conformance.json", "conformance.html"
MARKS = {PASSED: "+", FAILED: "FAIL", ON_HOST: "h", UNSUPPORTED: "-", EXPECTED: "x", NOT_RUN: ""}
_SKIPPED = "Skipped: "


def verdict_of(report: pytest.TestReport) -> tuple[str, str]:
    if report.passed:
        return PASSED, ""
    if report.skipped:
        if hasattr(report, "wasxfail"):
            return EXPECTED, str(report.wasxfail)
        message = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = message.removeprefix(_SKIPPED)
        status, colon, why = reason.partition(": ")
        return (status, why) if colon and status in (UNSUPPORTED, ON_HOST) else (NOT_RUN, reason)
    crash = getattr(report.longrepr, "reprcrash", None)
    return FAILED, str(crash.message if crash is not None else report.longrepr)


def summary(tests: Iterable[Test]) -> dict[str, Any]:
    """The record of a session, as JSON data; the cases of each target are in the order of their names."""
    by_target: dict[str, list[Test]] = {}
    for test in tests:
        by_target.setdefault(test.target, []).append(test)
    plugins = {
        p.name: f"{p.distribution} {p.version}".strip() for p in registry().plugins if p.name != "core"
    }
    return {
        "format": FORMAT,
        "versions": {
            "dlc-core": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "plugins": dict(sorted(plugins.items())),
        },
        "platform": f"{platform.system()} {platform.machine()}",
        "targets": [_of_target(text, by_target[text]) for text in sorted(by_target)],
    }


def _of_target(text: str, tests: Sequence[Test]) -> dict[str, Any]:
    cases: dict[str, Outcome] = {}
    for outcome in (each for test in tests for each in test.cases()):
        worst = cases.get(outcome.case)
        if worst is None or STATUSES.index(outcome.status) < STATUSES.index(worst.status):
            cases[outcome.case] = outcome
    figures = {test.case: test.figures for test in tests if test.figures}
    ordered = [cases[name] for name in sorted(cases, key=_in_order)]
    counts = Counter(o.status for o in ordered)
    seconds = round(sum(test.seconds for test in tests), 3)
    levels = levels_of(ordered, tests)
    failed = counts[FAILED] or any(level["problem"] for level in levels)
    return {
        "target": text,
        "kind": text.split()[0],
        "verdict": FAILED if failed else PASSED if counts[PASSED] else NOT_RUN,
        "counts": {status: counts[status] for status in STATUSES},
        "seconds": seconds,
        **shares_of(tally_of(tests)),
        "levels": levels,
        "shares": _shares(ordered),
        "ops": _ops(ordered),
        "exemptions": _exemptions(text, cases),
        "cases": [
            {"case": o.case, "status": o.status, "why": o.why}
            | ({} if o.where is None else {"where": o.where.place, **shares_of(o.where)})
            | ({"figures": figures[o.case]} if o.case in figures else {})
            for o in ordered
        ],
    }


def _shares(cases: Sequence[Outcome]) -> dict[str, dict[str, float | None]]:
    """The shares on the target of the nodes and multiply-adds of each op's cases in level 1."""
    by_op: dict[str, Tally] = {}
    for outcome in cases:
        level, op, *_ = [*outcome.case.split("/"), ""]
        if level == "ops" and outcome.where is not None:
            by_op.setdefault(op, Tally()).add(outcome.case, outcome.where)
    return {op: shares_of(tally) for op, tally in sorted(by_op.items())}


def _ops(cases: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """For each op and dtype: the worst status of its samples, the number of samples by status,
    the reasons.
    """
    cells: dict[str, dict[str, list[Outcome]]] = {}
    for name in op_case_names():
        _, op, _, dtype = name.split("/")
        cells.setdefault(op, {}).setdefault(dtype, [])
    for outcome in cases:
        level, *parts = outcome.case.split("/")
        if level == "ops" and len(parts) == 3:
            cells.setdefault(parts[0], {}).setdefault(parts[2], []).append(outcome)
    return {op: {dtype: _cell(found) for dtype, found in row.items()} for op, row in sorted(cells.items())}


def _cell(found: Sequence[Outcome]) -> dict[str, Any]:
    counts = Counter(o.status for o in found)
    status = next((s for s in STATUSES if counts[s]), NOT_RUN)
    why = dict.fromkeys(f"{o.status}: {o.why}" for o in found if o.why)
    return {"status": status, "cases": dict(counts), "why": list(why)}


def _exemptions(text: str, seen: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """The target's exemptions, each with the number of its cases."""
    try:
        expectations = expectations_of(find_target(text).kind.name)
    except DlcError:  # unknown targets have no exemptions
        return []
    names = {*case_names(), *seen}
    unused = unused_exemptions(expectations)
    return [
        {
            "name": entry.name,
            "kind": entry.kind,
            "reason": entry.reason,
            "cases": sum(map(entry.covers, names)),
            "used": entry not in unused,
        }
        for entry in sorted(expectations.entries, key=lambda entry: entry.name)
    ]


def _in_order(case: str) -> tuple[int, list[tuple[int, int, str]]]:
    """A sort key: the level, then the parts of the name; parts that are numbers are compared as numbers."""
    level, *parts = case.split("/")
    number = LEVELS.index(level) if level in LEVELS else len(LEVELS)
    return number, [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]


def write(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the record and its page into a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / HTML).write_text(page(record), encoding="utf-8")


def table(target: Mapping[str, Any]) -> list[str]:
    """The lines of a text table of the ops that were run: a mark for each dtype, then the reasons."""
    lines: list[str] = []
    rows = {
        op: row
        for op, row in target["ops"].items()
        if any(cell["status"] != NOT_RUN for cell in row.values())
    }
    columns = list(dict.fromkeys(dtype for row in rows.values() for dtype in row))
    if rows:
        words = "+ passed, h on host, - unsupported, x fails as expected; on: share of nodes on the target"
        lines += [words, " ".join([" " * 20, "  on", *columns])]
    for op, row in rows.items():
        cells = [MARKS[row[d]["status"]] if d in row else "" for d in columns]
        line = " ".join(cell.center(len(dtype)) for cell, dtype in zip(cells, columns, strict=True))
        share = percent(target["shares"].get(op, {}).get("share")).rjust(4)
        lines.append(f"{op.ljust(20)} {share} {line}".rstrip())
    reasons: dict[str, None] = {}
    for case in target["cases"]:
        if case["status"] not in (PASSED, NOT_RUN, ON_HOST):
            parts = case["case"].split("/")
            name = parts[1] if parts[0] == "ops" and len(parts) == 4 else case["case"]
            reasons[f"{name}: {case['status']}: {(case['why'].splitlines() or [''])[0]}"] = None
    unused = [f"{e['name']}: this exemption covers no case" for e in target["exemptions"] if not e["used"]]
    return [*lines, *reasons, *unused]


__all__ = [
    "HTML",
    "JSON",
    "summary",
    "table",
    "verdict_of",
    "write",
]
