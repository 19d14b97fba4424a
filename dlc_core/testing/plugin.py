"""The pytest plugin of dlc: options of the conformance kit, and golden files.

Loaded in every session that has dlc-core installed, so it imports nothing but pytest.
"""

from __future__ import annotations

from typing import Any

import pytest

LEVELS = ("device", "ops", "graphs")
"""The tiers in the order in which a backend passes them: level 0 is the first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dlc", "the deep-learning compiler dlc")
    group.addoption(
        "--dlc-target", default="", help="target that conformance suites test, in place of theirs"
    )
    group.addoption("--dlc-tiers", default="", help="tiers to run: core, ops, graphs, device (with commas)")
    group.addoption("--dlc-level", default="", help="levels to run (with commas): 0 device, 1 ops, 2 graphs")
    group.addoption("--dlc-dtypes", default="", help="dtypes that ops are tried in (with commas)")
    group.addoption("--dlc-ops", default="", help="ops to try (with commas)")
    group.addoption("--dlc-report", action="store_true", help="show what each op does in each dtype")
    group.addoption("--bless", action="store_true", help="write golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long; left out by -m 'not slow'")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of tiers that were not asked for."""
    wanted = {word.strip() for word in config.getoption("--dlc-tiers").split(",") if word.strip()}
    for word in filter(None, (word.strip() for word in config.getoption("--dlc-level").split(","))):
        if not word.isdigit() or int(word) >= len(LEVELS):
            known = ", ".join(f"{level} {tier}" for level, tier in enumerate(LEVELS))
            raise pytest.UsageError(f"--dlc-level {word}: levels are {known}")
        wanted.add(LEVELS[int(word)])
    if not wanted:
        return
    left_out = [item for item in items if (tier := _tier_of(item)) and tier not in wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _tier_of(item: pytest.Item) -> str:
    """The tier of a conformance test; nothing for other tests."""
    test_class: Any = getattr(item, "cls", None)
    name = getattr(item, "originalname", None) or item.name
    for owner in getattr(test_class, "__mro__", ()):
        if name in vars(owner):
            return str(vars(owner).get("tier", ""))
    return ""


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table of `--dlc-report`: one line for each op, a mark for each dtype."""
    if not config.getoption("--dlc-report"):
        return
    rows: dict[str, dict[str, str]] = {}
    reasons: dict[str, None] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            kept = [v for k, v in getattr(report, "user_properties", ()) if k == "dlc-outcomes"]
            for case, status, why in (o for outcomes in kept for o in outcomes):
                _, op, _, dtype = case.split("/")
                row = rows.setdefault(op, {})
                if row.get(dtype, "passed") == "passed":
                    row[dtype] = status
                if status != "passed":
                    reasons[f"{op}: {status}: {why.splitlines()[0]}"] = None
    columns = list(dict.fromkeys(dtype for row in rows.values() for dtype in row))
    marks = {"passed": "+", "failed": "FAIL", "unsupported": "-", "fails as expected": "x"}
    terminalreporter.section("what each op does in each dtype: + right, - unsupported, x fails as expected")
    terminalreporter.write_line(" ".join([" " * 20, *columns]))
    for op, row in rows.items():
        cells = [marks.get(row.get(dtype, ""), "").center(len(dtype)) for dtype in columns]
        terminalreporter.write_line(" ".join([op.ljust(20), *cells]))
    for reason in reasons:
        terminalreporter.write_line(reason)


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written."""
    return bool(request.config.getoption("--bless"))
