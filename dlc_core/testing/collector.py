"""Collects the reports of the kit's tests in the main process, judges the levels, and writes the report.

A level of which nothing ran on the target fails the session, unless the target's declarations exclude all of
its cases. This is checked in the main process, so that it also holds for tests in other processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlc_core.testing import badge, report, report_levels
from dlc_core.testing.properties import FIGURES, OUTCOMES, TALLY, TEST
from dlc_core.testing.report_levels import Test
from dlc_core.testing.runner import FAILED, Outcome
from dlc_core.testing.where import Tally


class Collector:
    """The records of tests. `folder` and `badge_path` are where files are written; empty ones are not."""

    def __init__(self, folder: str, badge_path: str) -> None:
        self.folder = Path(folder) if folder else None
        self.badge_path = Path(badge_path) if badge_path else None
        self.tests: dict[str, Test] = {}
        self.record: dict[str, Any] = {"targets": []}

    def add(self, found: pytest.TestReport) -> None:
        """Add the report of a phase of a test."""
        properties: dict[str, Any] = dict(found.user_properties)
        target, level, case, factor = properties[TEST]
        parameter = found.nodeid.rpartition("[")[2].rstrip("]") if found.nodeid.endswith("]") else ""
        name = f"{case}/{parameter}" if parameter else case
        test = self.tests.setdefault(found.nodeid, Test(target, level, name, limit_factor=factor))
        test.seconds += found.duration
        test.outcomes = [Outcome.of_record(each) for each in properties.get(OUTCOMES, [])]
        test.figures = properties.get(FIGURES, {})
        if TALLY in properties:
            test.tally = Tally.of_record(properties[TALLY])
        if found.failed or ((found.when == "call" or found.skipped) and test.status != FAILED):
            test.status, test.why = report.verdict_of(found)

    def problems(self) -> list[str]:
        """The levels of which nothing ran on the target, with the reason."""
        by_level: dict[tuple[str, str], list[Test]] = {}
        for test in self.tests.values():
            by_level.setdefault((test.target, test.level), []).append(test)
        return [
            f"level {level!r} of {target}: nothing ran on the target. {problem}"
            for (target, level), tests in by_level.items()
            if (problem := report_levels.tally_of(tests).problem)
        ]

    def finish(self) -> None:
        """Write the requested files."""
        if self.folder is None and self.badge_path is None:
            return
        self.record = report.summary(self.tests.values())
        if self.folder is not None:
            report.write(self.folder, self.record)
            badge.write(self.folder / badge.FILE, self.record)
        if self.badge_path is not None:
            badge.write(self.badge_path, self.record)

    def show(self, terminal: Any) -> None:
        """Print the summary of a session with `--dlc-report` or `--dlc-badge`."""
        for target in self.record["targets"]:
            terminal.section(f"conformance of {target['target']}: {target['verdict']}")
            lines = report.table(target) if self.folder is not None else []
            for line in (*lines, *report_levels.level_lines(target)):
                terminal.write_line(line)
        files = [] if self.folder is None else [self.folder / report.JSON, self.folder / report.HTML]
        files += [] if self.badge_path is None else badge.files_of(self.badge_path)
        if files:
            terminal.write_line(f"written: {', '.join(map(str, files))}")


__all__ = ["Collector"]
