"""The pytest plugin of dlc: options of the conformance kit, and golden files.

pytest loads it in every session if dlc-core is installed, so it imports only pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dlc_core.support.lazy import lazy
from dlc_core.testing import plain_imports
from dlc_core.testing.levels import ISOLATED, LEVELS, ON_DEMAND
from dlc_core.testing.limits import CASE_SECONDS, LEVEL_SECONDS
from dlc_core.testing.properties import TEST

if TYPE_CHECKING:
    from dlc_core.op import declare
    from dlc_core.testing import collector, isolation
else:
    declare = lazy("dlc_core.op.declare")
    collector = lazy("dlc_core.testing.collector")
    isolation = lazy("dlc_core.testing.isolation")

plain_imports.install()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dlc", "the deep-learning compiler dlc")
    levels = ", ".join(f"{number} {level}" for number, level in enumerate(LEVELS))
    group.addoption(
        "--dlc-target", default="", help="the target that conformance suites test, instead of their own"
    )
    group.addoption(
        "--dlc-level",
        default="",
        help=f"levels to run, by number or name, separated by commas: {levels}; `core` has no number",
    )
    group.addoption("--dlc-dtypes", default="", help="dtypes in which ops are run, separated by commas")
    group.addoption("--dlc-ops", default="", help="run only tests of these ops, separated by commas")
    group.addoption(
        "--dlc-fraction",
        type=float,
        help="the fraction of its declared roofline that a target must reach, instead of the suite's",
    )
    group.addoption(
        "--dlc-report",
        metavar="DIR",
        default="",
        help="write conformance.json and conformance.html to DIR, and print a table of ops and dtypes",
    )
    group.addoption(
        "--dlc-badge",
        metavar="FILE",
        default="",
        help="write a badge with the level passed and the share on the target: FILE (SVG) and, beside it, "
        "JSON for shields.io",
    )
    group.addoption(
        "--dlc-limit-factor",
        type=float,
        metavar="FACTOR",
        help="multiply the time limits of cases and levels, for slow simulators",
    )
    group.addoption(
        "--dlc-isolate",
        action="store_true",
        help="run tests of all levels in a separate process, not only those of level 4: a kernel that "
        "crashes fails its test",
    )
    group.addoption(
        "--dlc-guard",
        choices=("end", "begin"),
        default="",
        help="allocate each value at the end or the beginning of its own pages, and isolate tests of all "
        "levels: an access outside of a value fails its test",
    )
    group.addoption("--bless", action="store_true", help="write golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long; deselected by -m 'not slow'")
    # If tests run in several processes, the main process collects all reports.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reports(config), "dlc-reports")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """The time limits of the kit, if its options are used."""
    options = ("--dlc-target", "--dlc-level", "--dlc-ops", "--dlc-report", "--dlc-badge")
    if not any(config.getoption(option) for option in options):
        return []
    factor = config.getoption("--dlc-limit-factor") or 1.0
    limits = [f"{name} {CASE_SECONDS[name] * factor:g}/{LEVEL_SECONDS[name] * factor:g}" for name in LEVELS]
    return [f"dlc: seconds for a case and for a level: {', '.join(limits)}"]


class _Reports:
    """Passes the reports of the kit's tests to a `Collector`, which is imported with the first of them."""

    def __init__(self, config: pytest.Config) -> None:
        self._folder = str(config.getoption("--dlc-report"))
        self._badge = str(config.getoption("--dlc-badge"))
        self._collector: collector.Collector | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if all(name != TEST for name, _ in report.user_properties):
            return
        if self._collector is None:
            self._collector = collector.Collector(self._folder, self._badge)
        self._collector.add(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._collector is None:
            return
        self._collector.finish()
        if self._collector.problems() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._collector is None:
            if self._folder or self._badge:
                terminalreporter.write_line("no test of the conformance kit was run, so nothing is written")
            return
        self._collector.show(terminalreporter)
        problems = self._collector.problems()
        if problems:
            terminalreporter.section("levels that did not run on the target", red=True)
        for problem in problems:
            terminalreporter.write_line(f"FAILED {problem}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of levels and ops that the options do not select."""
    names = {"core": "core", **{level: level for level in LEVELS}, **dict(zip("012345", LEVELS, strict=True))}
    selected: set[str] = set()
    for word in filter(None, (word.strip() for word in config.getoption("--dlc-level").split(","))):
        if word not in names:
            levels = ", ".join(f"{number} {level}" for number, level in enumerate(LEVELS))
            raise pytest.UsageError(f"--dlc-level {word}: levels are {levels}, core")
        selected.add(names[word])
    ops = {word.strip() for word in config.getoption("--dlc-ops").split(",") if word.strip()}
    deselected = [
        item
        for item in items
        if not _is_selected(_level_of(item), selected) or (ops and not ops & _ops_of(item))
    ]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        removed = set(deselected)
        items[:] = [item for item in items if item not in removed]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Run tests that may crash in another process."""
    if session.config.option.collectonly:
        return
    isolated = [item for item in session.items if _is_isolated(item)]
    if isolated and isolation.is_possible(session.config):
        session.config.pluginmanager.register(isolation.Isolation(session.config, isolated), "dlc-isolation")


def _ops_of(item: pytest.Item) -> set[str]:
    """The ops that a test tests: its parameters that are declarations, also in tuples."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    parts = [part for value in parameters for part in (value if isinstance(value, tuple) else (value,))]
    return {part.name for part in parts if isinstance(part, declare.OpDecl)}


def _is_isolated(item: pytest.Item) -> bool:
    level = _level_of(item)
    suite = getattr(getattr(item, "cls", None), "settings", None)
    options = [item.config.getoption(option) for option in ("--dlc-isolate", "--dlc-guard")]
    return level in ISOLATED or (level in LEVELS and any([*options, getattr(suite, "guard", "")]))


def _is_selected(level: str, selected: set[str]) -> bool:
    """Whether tests of a level run. Tests that are not of the kit ("") do."""
    return not level or (level in selected if selected else level not in ON_DEMAND)


def _level_of(item: pytest.Item) -> str:
    """The level of a conformance test; "" for other tests."""
    test_class: Any = getattr(item, "cls", None)
    name = getattr(item, "originalname", None) or item.name
    for owner in getattr(test_class, "__mro__", ()):
        if name in vars(owner):
            return str(vars(owner).get("level", ""))
    return ""


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written."""
    return bool(request.config.getoption("--bless"))
