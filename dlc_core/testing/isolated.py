"""The worker of isolated tests: a session of pytest that runs tests for another one (`testing.isolation`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from dlc_core.testing import running


class Work:
    """Runs the tests that it is asked for, until nobody asks any more."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        # What plugins look at before they write files: the other session does that.
        config.workerinput = {"workerid": "isolated", "workercount": 1}  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        while asked := self._asked():
            test, following = asked
            running.tell(test.rpartition("::")[2])
            reports = runtestprotocol(items[test], nextitem=items.get(following or ""), log=False)
            self._connection.send(list(_data(session.config, reports)))
        session._setupstate.teardown_exact(None)
        return True

    def _asked(self) -> tuple[str, str | None] | None:
        try:
            found: tuple[str, str | None] = self._connection.recv()
        except EOFError:
            return None
        return found


def _data(config: pytest.Config, reports: list[pytest.TestReport]) -> Iterator[dict[str, Any]]:
    for report in reports:
        yield config.hook.pytest_report_to_serializable(config=config, report=report)


def work() -> None:
    """What the process runs; its argument says with which words of the command line."""
    start = json.loads(sys.argv.pop())
    running.keep_in(start["running"])
    # This file is imported before pytest can rewrite the assertions of its package; it has none.
    args = [*start["args"], "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main(args, plugins=[Work(Connection(start["connection"]))]))


__all__ = ["work"]
