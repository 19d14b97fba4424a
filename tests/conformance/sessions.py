"""Sessions of pytest with a kind of `tests.conformance.kinds`, in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = """
from dlc_core.plugin.registry import fresh_registry
from tests.conformance.kinds import *

INSTALLED = fresh_registry({"unit": KIND, **OTHERS})


def pytest_configure():
    INSTALLED.__enter__()
"""
SUITE = """
from dlc_core.testing import conformance_suite

TestUnit = conformance_suite("unit", graphs=20)
"""


@dataclass(frozen=True)
class Session:
    """The exit code and the output of a session, and the folder with its files."""

    code: int
    text: str
    folder: Path

    @property
    def target(self) -> dict[str, Any]:
        """The only target of the report."""
        record = json.loads((self.folder / "out" / "conformance.json").read_text())
        (target,) = record["targets"]
        return dict(target)

    def level(self, name: str) -> dict[str, Any]:
        """A level in the report."""
        return next(dict(level) for level in self.target["levels"] if level["name"] == name)


def session(folder: Path, kind: str, *options: str, others: str = "{}", suite: str = SUITE) -> Session:
    """Run the kit with a kind, given as Python. Without `others`, plugins by name, the host is the
    reference."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST.replace("KIND", kind).replace("OTHERS", others))
    (folder / "test_unit.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    words = ["-q", "-p", "no:cacheprovider", "--dlc-report=out", *options]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "test_unit.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "NO_COLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return Session(done.returncode, done.stdout + done.stderr, folder)


__all__ = ["Session", "session"]
