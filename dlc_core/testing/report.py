"""The report of the conformance kit: `pytest --dlc-report=DIR` writes conformance.json and conformance.html.

`Collector` gathers the records of tests, from one process or from those of pytest-xdist. `summary` combines
them in an order that does not depend on the order of the tests. Only durations differ between runs.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import DlcError
from dlc_core.driver import find_target
from dlc_core.plugin.registry import registry
from dlc_core.testing.catalogue import SYMBOLIC, case_names, op_case_names, unused_exemptions
from dlc_core.testing.levels import LEVELS
from dlc_core.testing.levels.base import FIGURES, OUTCOMES, TEST
from dlc_core.testing.report_page import page
from dlc_core.testing.runner import (
    EXPECTED,
    FAILED,
    NOT_RUN,
    PASSED,
    STATUSES,
    UNSUPPORTED,
    Outcome,
    expectations_of,
)
from dlc_core.version import __version__

FORMAT = 1
JSON, HTML = "conformance.json", "conformance.html"
MARKS = {PASSED: "+", FAILED: "FAIL", UNSUPPORTED: "-", EXPECTED: "x", NOT_RUN: ""}
_SKIPPED, _UNSUPPORTED = "Skipped: ", "unsupported: "


@dataclass
class Test:
    """A test: its target, its level, its case, and its outcome."""

    target: str
    level: str
    case: str
    status: str = NOT_RUN
    why: str = ""
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    __test__ = False

    def cases(self) -> list[Outcome]:
        """The outcomes of its cases, and its own if it has no cases or failed for another reason."""
        own = Outcome(self.case, self.status, self.why)
        if not self.outcomes:
            return [own]
        other_failure = self.status == FAILED and not any(o.status == FAILED for o in self.outcomes)
        return [*self.outcomes, own] if other_failure else self.outcomes


class Collector:
    """The pytest plugin that gathers reports of tests and writes at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.folder = Path(config.getoption("--dlc-report"))
        self.tests: dict[str, Test] = {}
        self.record: dict[str, Any] = {"targets": []}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        described: Any = properties.get(TEST)
        if described is None:
            return
        target, level, case = described
        parameter = report.nodeid.rpartition("[")[2].rstrip("]") if report.nodeid.endswith("]") else ""
        name = f"{case}/{parameter}" if parameter else case
        test = self.tests.setdefault(report.nodeid, Test(target, level, name))
        test.seconds += report.duration
        outcomes: Any = properties.get(OUTCOMES, [])
        test.outcomes = [Outcome(*each) for each in outcomes]
        figures: Any = properties.get(FIGURES, {})
        test.figures = figures
        if report.failed or ((report.when == "call" or report.skipped) and test.status != FAILED):
            test.status, test.why = _verdict(report)

    def pytest_sessionfinish(self) -> None:
        if self.tests:
            self.record = summary(self.tests.values())
            write(self.folder, self.record)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.tests:
            terminalreporter.write_line("--dlc-report: no test of the conformance kit was run")
            return
        for target in self.record["targets"]:
            terminalreporter.section(f"conformance of {target['target']}: {target['verdict']}")
            for line in table(target):
                terminalreporter.write_line(line)
        terminalreporter.write_line(f"written: {self.folder / JSON}, {self.folder / HTML}")


def _verdict(report: pytest.TestReport) -> tuple[str, str]:
    if report.passed:
        return PASSED, ""
    if report.skipped:
        if hasattr(report, "wasxfail"):
            return EXPECTED, str(report.wasxfail)
        message = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = message.removeprefix(_SKIPPED)
        if reason.startswith(_UNSUPPORTED):
            return UNSUPPORTED, reason.removeprefix(_UNSUPPORTED)
        return NOT_RUN, reason
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
    return {
        "target": text,
        "kind": text.split()[0],
        "verdict": FAILED if counts[FAILED] else PASSED if counts[PASSED] else NOT_RUN,
        "counts": {status: counts[status] for status in STATUSES},
        "seconds": seconds,
        "levels": _levels(ordered, tests),
        "ops": _ops(ordered),
        "exemptions": _exemptions(text, cases),
        "cases": [
            {"case": o.case, "status": o.status, "why": o.why}
            | ({"figures": figures[o.case]} if o.case in figures else {})
            for o in ordered
        ],
    }


def _levels(cases: Sequence[Outcome], tests: Sequence[Test]) -> list[dict[str, Any]]:
    """The number of cases of each level by outcome. Cases without a test are `not run`."""
    all_cases = Counter(name.partition("/")[0] for name in case_names() if not name.endswith(f"/{SYMBOLIC}"))
    made = []
    for number, level in enumerate(LEVELS):
        own = [o for o in cases if o.case.startswith(f"{level}/")]
        counts = Counter(o.status for o in own)
        named = sum(not o.case.endswith(f"/{SYMBOLIC}") and o.status != NOT_RUN for o in own)
        if level != "graphs":  # the number of random graphs is a setting
            counts[NOT_RUN] = max(counts[NOT_RUN], all_cases[level] - named)
        made.append(
            {
                "level": number,
                "name": level,
                "counts": {status: counts[status] for status in STATUSES},
                "seconds": round(sum(test.seconds for test in tests if test.level == level), 3),
            }
        )
    return made


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
        lines += ["+ passed, - unsupported, x fails as expected", " ".join([" " * 20, *columns])]
    for op, row in rows.items():
        cells = [MARKS[row[d]["status"]] if d in row else "" for d in columns]
        line = " ".join(cell.center(len(dtype)) for cell, dtype in zip(cells, columns, strict=True))
        lines.append(f"{op.ljust(20)} {line}".rstrip())
    reasons: dict[str, None] = {}
    for case in target["cases"]:
        if case["status"] not in (PASSED, NOT_RUN):
            parts = case["case"].split("/")
            name = parts[1] if parts[0] == "ops" and len(parts) == 4 else case["case"]
            reasons[f"{name}: {case['status']}: {(case['why'].splitlines() or [''])[0]}"] = None
    unused = [f"{e['name']}: this exemption covers no case" for e in target["exemptions"] if not e["used"]]
    levels = [
        f"level {each['level']} {each['name'].ljust(8)}"
        + ", ".join(f"{count} {status}" for status, count in each["counts"].items() if count)
        for each in target["levels"]
    ]
    return [*lines, *reasons, *unused, *levels]


__all__ = ["HTML", "JSON", "Collector", "Test", "summary", "table", "write"]
