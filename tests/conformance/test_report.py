"""The report of the kit: statuses, reasons and order of cases, from one process and from several."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dlc_core.testing.report import summary, table
from dlc_core.testing.report_levels import Test
from dlc_core.testing.report_page import page
from dlc_core.testing.runner import Outcome

PLUGIN = """
from dataclasses import replace

from dlc_core.hooks import hookimpl
from dlc_core.runtime.reference import ReferenceDevice
from dlc_core.target.reference import KIND, ReferenceCodegen
from dlc_core.testing import ExpectedFailure, Unsupported


class Codegen(ReferenceCodegen):
    name, kinds = "wrong", ("wrong",)


class Device(ReferenceDevice):
    name = "wrong"

    def alloc(self, size, align=64):
        return super().alloc(size, align) + (size == 1)


class Plugin:
    @hookimpl
    def dlc_targets(self):
        return [replace(KIND, name="wrong", codegen="wrong", device="wrong")]

    @hookimpl
    def dlc_codegens(self):
        return [Codegen()]

    @hookimpl
    def dlc_devices(self):
        return [Device()]

    @hookimpl
    def dlc_expectations(self):
        return [
            Unsupported("wrong: int8", reason="no <bytes>"),
            Unsupported("wrong: device/many_threads*", reason="one thread"),
            ExpectedFailure("wrong: device/memory_holds_what_was_written", reason="one byte is lost"),
            ExpectedFailure("wrong: device/blocks_of_no_bytes", reason="thought to be wrong"),
            EXTRA
        ]
"""
CONFTEST = """
from dlc_core.plugin.registry import fresh_registry
from plugin_wrong import Plugin

INSTALLED = fresh_registry({"wrong": Plugin()})


def pytest_configure():
    INSTALLED.__enter__()
"""
SUITE = """
from dlc_core.testing import conformance_suite

TestWrong = conformance_suite("wrong", levels=("ops", "device"), ops=("relu", "add"))
"""


def run(folder: Path, *options: str, extra: str = "") -> tuple[str, dict[str, Any]]:
    folder.mkdir()
    (folder / "plugin_wrong.py").write_text(PLUGIN.replace("EXTRA", extra))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_wrong.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--dlc-report=out", *options]
    done = subprocess.run([*command, "."], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout, json.loads((folder / "out" / "conformance.json").read_text())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("report") / "one"
    return folder, *run(folder, extra='Unsupported("wrong: rely", reason="misspelt"),')


def test_every_status_is_reported_with_its_reason(report: Any) -> None:
    _, out, record = report
    (target,) = record["targets"]
    cases = {case["case"]: (case["status"], case["why"]) for case in target["cases"]}
    assert target["target"] == "wrong"
    assert target["verdict"] == "failed"
    assert cases["ops/relu/0/float32"] == ("passed", "")
    assert cases["ops/relu/0/int8"] == ("unsupported", "no <bytes>")
    assert cases["device/many_threads_call_one_executable"] == ("unsupported", "one thread")
    assert cases["device/memory_holds_what_was_written"] == ("fails as expected", "one byte is lost")
    assert cases["device/blocks_of_no_bytes"] == ("failed", "[XPASS(strict)] thought to be wrong")
    assert cases["device/memory_is_freed_once"] == ("passed", "")
    assert "wrong: rely: this exemption covers no case" in out
    unused = [e["name"] for e in target["exemptions"] if not e["used"]]
    assert unused == ["wrong: rely"]
    assert cases["/exemptions_match_cases"][0] == "failed"
    assert target["ops"]["relu"]["int8"]["status"] == "unsupported"
    assert target["ops"]["relu"]["int8"]["why"] == ["unsupported: no <bytes>"]
    assert target["ops"]["softmax"]["float32"]["status"] == "not run"
    levels = {each["name"]: each["counts"] for each in target["levels"]}
    assert levels["device"]["fails as expected"] == levels["device"]["failed"] == 1
    skipped = {case: why for case, (status, why) in cases.items() if status == "not run"}
    on_device = [case for case in skipped if case.startswith("device/")]
    assert levels["device"]["not run"] == len(on_device) > 0
    assert (
        skipped["device/events_are_reached_in_order"] == "entry points of this device take arrays, not memory"
    )
    assert all(skipped.values())
    assert levels["ops"]["not run"] > 1000


class Reader(HTMLParser):
    """Collects the text, and the addresses of what the page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.outside += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained(report: Any) -> None:
    folder, _, record = report
    text = (folder / "out" / "conformance.html").read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.outside == []
    assert "one byte is lost" in reader.text
    assert "no &lt;bytes&gt;" in text
    assert "<bytes>" not in text
    assert text == page(record)


@pytest.mark.slow
def test_several_processes_report_the_same(report: Any, tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    _, _, alone = report
    _, both = run(tmp_path / "two", "-n", "2", extra='Unsupported("wrong: rely", reason="misspelt"),')

    def timeless(record: dict[str, Any]) -> str:
        return re.sub(r'"seconds": [0-9.]+', "", json.dumps(record))

    # Processes report the location of a failed assertion but not the compared values, so reasons may differ.
    for record in (alone, both):
        for case in record["targets"][0]["cases"]:
            case["why"] = case["why"].splitlines()[0] if case["why"] else ""
    assert timeless(both) == timeless(alone)


def test_the_worst_outcome_of_a_case_is_kept_and_names_are_sorted() -> None:
    tests = [
        Test("reference", "graphs", "graphs/test/0", "passed", outcomes=[Outcome("graphs/10", "passed")]),
        Test(
            "reference", "graphs", "graphs/test/0", "failed", outcomes=[Outcome("graphs/10", "failed", "x")]
        ),
        Test("reference", "graphs", "graphs/test/0", "passed", outcomes=[Outcome("graphs/9", "passed")]),
        Test(
            "reference", "graphs", "graphs/test/20", "failed", "crash", 2.0, [Outcome("graphs/21", "passed")]
        ),
        Test("reference", "device", "device/one", "not run", "no machine"),
    ]
    for order in (tests, tests[::-1]):
        (target,) = summary(order)["targets"]
        assert [(c["case"], c["status"]) for c in target["cases"]] == [
            ("device/one", "not run"),
            ("graphs/9", "passed"),
            ("graphs/10", "failed"),
            ("graphs/21", "passed"),
            ("graphs/test/20", "failed"),
        ]
        assert "graphs/test/20: failed: crash" in table(target)
