"""Tests keep to themselves: no compiled model, no reproducer and no record of a tuner
lands in the user's own folders."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

_FOLDER = tempfile.mkdtemp(prefix="dlc-tests-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
os.environ["DLC_CACHE"] = "0"
os.environ["DLC_CACHE_DIR"] = _FOLDER
os.environ["DLC_KEYS_DIR"] = f"{_FOLDER}/keys"
os.environ["DLC_RECORDS_URL"] = f"{_FOLDER}/records.db"

settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=25, database=None, print_blob=True
)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

Result = TypeVar("Result")


@pytest.fixture
def counted() -> Callable[[Callable[[], Result]], tuple[Result, int]]:
    """`counted(function)`: its result and how many calls of Python functions it took.

    A measure of work that is the same on every machine, however busy.
    """

    def run(function: Callable[[], Result]) -> tuple[Result, int]:
        calls = 0

        def count(frame: object, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            result = function()
        finally:
            sys.setprofile(before)
        return result, calls

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "run a sample of the tests that take long, or the others (tests/sampling.py)"
    parser.addoption("--part", choices=("sample", "rest"), help=what)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests, after slow ones were left out."""
    part = config.getoption("--part")
    if part is None:
        return
    from tests.sampling import read_list, sample  # found where pytest runs as a module: `make` does that

    chosen = sample((item.nodeid for item in items), read_list())
    left = [item for item in items if (item.nodeid in chosen) is (part == "rest")]
    items[:] = [item for item in items if (item.nodeid in chosen) is (part == "sample")]
    config.hook.pytest_deselected(items=left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The outcomes of models at their published sizes (tests/models/test_sizes.py)."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    rows = [text for report in reports for name, text in report.user_properties if name == "sized"]
    if rows:
        phases = ("1 thread", "2 threads", "cached", "guarded")
        terminalreporter.write_sep("=", "published sizes: seconds to compile / of the first call")
        for line in (f"| model | {' | '.join(phases)} | error |", *sorted(rows)):
            terminalreporter.write_line(line)
