"""A crash in native code fails one test; the tests after it run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlc_core.backend.compiler import compiler_problem
from dlc_core.testing import running
from dlc_core.testing.isolation import exit_text

pytestmark = [
    pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem())),
    pytest.mark.skipif(os.name != "posix", reason="isolated processes inherit pipes"),
]

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
import ctypes

from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing import conformance_suite
from tests.backend.test_simulated import Device, Plugin

ALL = 1 << 50


class Crashing(Device):
    memory_bytes = 1 << 30

    def alloc(self, size, align=64):
        if size == ALL:
            ctypes.string_at(0)
        return super().alloc(size, align)

    def launch(self, entry, *args):
        if entry.function.symbol == "m1_main":
            ctypes.string_at(0)
        super().launch(entry, *args)


class Crashes(Plugin):
    @hookimpl
    def dlc_devices(self):
        return [Crashing()]


INSTALLED = fresh_registry({"toy": Crashes()})
INSTALLED.__enter__()
TestToy = conformance_suite("toy", levels=("ops", "hostile"))
"""


def session(folder: Path, *words: str, suite: str = SUITE) -> str:
    """The output of pytest for the suite."""
    (folder / "test_toy.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_toy.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_level_4_continues_after_a_crash(tmp_path: Path) -> None:
    text = session(tmp_path, "--dlc-level=4", "-k", "too_much_memory or of_another_format")
    assert "1 failed, 1 passed" in text, text
    assert "the process of the test died of SIGSEGV" in text
    assert "target:     toy" in text
    assert "running:    hostile/allocating_too_much_memory, entry point 'main' on device 'toy'" in text
    assert "kernels fused_matmul_relu, " in text
    assert "in alloc" in text
    assert "_pytest" not in text.partition("stack of the process")[2]


@pytest.mark.slow
def test_kernels_of_every_level_can_be_isolated(tmp_path: Path) -> None:
    words = "--dlc-level=1", "--dlc-ops=abs,neg", "--dlc-dtypes=float32,int32", "--dlc-isolate"
    text = session(tmp_path, *words, "--dlc-report=report", "--junitxml=report.xml")
    assert "4 failed, 2 passed" in text, text
    assert "running:    ops/abs/0/int32, entry point 'm1_main' on device 'toy', kernels fused_abs" in text
    assert "running:    ops/neg/1/symbolic, entry point 'm1_main'" in text
    (record,) = json.loads((tmp_path / "report" / "conformance.json").read_text())["targets"]
    assert record["verdict"] == "failed"
    failed = {case["case"] for case in record["cases"] if case["status"] == "failed"}
    assert failed == {f"ops/{test}/{op}" for test in ("samples", "symbolic_dims") for op in ("abs", "neg")}
    assert (tmp_path / "report.xml").read_text().count("<testcase") == 6


OUT_OF_BOUNDS = SUITE.replace(
    "launch(self, entry, *args):",
    "run(self, entry, blocks, *args):\n        ctypes.string_at(blocks[0].ctypes.data + blocks[0].nbytes, 1)",
).replace(
    """        if entry.function.symbol == "m1_main":
            ctypes.string_at(0)
        super().launch(entry, *args)
""",
    "        super().run(entry, blocks, *args)\n",
)


def test_guard_mode_isolates_and_names_the_nearest_value(tmp_path: Path) -> None:
    words = "--dlc-level=1", "--dlc-ops=abs", "--dlc-dtypes=float32", "-k", "samples"
    assert "1 passed" in session(tmp_path, *words, suite=OUT_OF_BOUNDS)
    text = session(tmp_path, *words, "--dlc-guard=end", suite=OUT_OF_BOUNDS)
    assert "1 failed" in text, text
    assert "the process of the test died of SIGSEGV" in text
    assert "running:    ops/abs/0/float32, entry point 'm0_main' on device 'toy'" in text
    assert "at fault:   touched: 0 bytes after input 'x0', of " in text


def test_describes_how_processes_end() -> None:
    assert exit_text(3) == "ended with exit code 3"
    assert exit_text(-signal.SIGBUS).startswith("died of SIGBUS")
    assert exit_text(-250) == "died of signal 250"


def test_reports_without_a_reader_are_not_kept(tmp_path: Path) -> None:
    running.report("a case")
    assert running.read(tmp_path / "nothing") == ""
