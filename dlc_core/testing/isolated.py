"""The worker of isolated tests: a pytest session that runs tests for another one (`testing.isolation`).

It is a pytest plugin. pytest imports it after its own setup, because it warns about modules that are imported
before it can rewrite their assertions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from dlc_core.runtime.guard.faults import report_to
from dlc_core.testing import running
from dlc_core.testing.isolation import START


class Work:
    """Runs the requested tests until the connection is closed."""

    def __init__(self, connection: Connection, fault: Path) -> None:
        self._connection = connection
        self._fault = fault

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        report_to(self._fault)  # installed after pytest's handler, so it runs before that one
        items = {item.nodeid: item for item in session.items}
        while request := self._request():
            test, following = request
            running.report(test.rpartition("::")[2])
            reports = runtestprotocol(items[test], nextitem=items.get(following or ""), log=False)
            self._connection.send(list(_data(session.config, reports)))
        session._setupstate.teardown_exact(None)
        return True

    def _request(self) -> tuple[str, str | None] | None:
        try:
            found: tuple[str, str | None] = self._connection.recv()
        except EOFError:
            return None
        return found


def _data(config: pytest.Config, reports: list[pytest.TestReport]) -> Iterator[dict[str, Any]]:
    for report in reports:
        yield config.hook.pytest_report_to_serializable(config=config, report=report)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Plugins that write files check this attribute. Only the main session should write files.
    config.workerinput = {"workerid": "isolated", "workercount": 1}  # type: ignore[attr-defined]
    start = json.loads(os.environ.pop(START))
    running.keep_in(start["running"])
    work = Work(Connection(start["connection"]), Path(start["fault"]))
    config.pluginmanager.register(work, "dlc-isolated")


__all__ = ["pytest_configure"]
