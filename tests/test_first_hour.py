"""The first hour of the vendor guide, command by command, in a new environment: its lines and minutes.

    pytest tests/test_first_hour.py -s

The commands are those of the guide's section; the packages that it installs are those of this tree.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlc_core.backend.compiler import compiler_problem

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "vendor-guide.md"
PACKAGES = {"dlc-core": ROOT, "dlc-frontend-onnx": ROOT / "plugins" / "frontend_onnx"}
LINES, MINUTES = 60, 60


def commands() -> list[str]:
    """The lines of the first block of the section, without comments."""
    section = GUIDE.read_text(encoding="utf-8").partition("## The first hour")[2]
    block = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [bare for line in block.group(1).splitlines() if (bare := line.partition("  #")[0].strip())]


def here(command: str) -> str:
    """A command that installs from this tree what it would install from an index."""
    for name, place in PACKAGES.items():
        command = re.sub(rf"(?<=\s){name}(?=\s|$)", str(place), command)
    return command


def test_the_guide_states_the_number_of_written_lines(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dlc_core", "new-backend", "acme"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    lines = sum(len(path.read_text().splitlines()) for path in tmp_path.rglob("*.py"))
    assert f"{lines} lines of Python" in GUIDE.read_text(encoding="utf-8")
    assert lines <= LINES


@pytest.mark.slow
@pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
def test_commands_of_the_guide_run(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DLC_", "PYTHON", "PYTEST"))}
    environment |= {"PATH": f"{venv / 'bin'}:{environment['PATH']}", "DLC_CACHE_DIR": str(tmp_path / "cache")}
    found = commands()
    assert any("new-backend" in command for command in found)
    place, total = tmp_path, 0.0
    for command in found:
        started = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", f"{here(command)} && pwd > {tmp_path / 'place'}"],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        seconds = time.monotonic() - started
        total += seconds
        told = done.stdout + done.stderr
        if done.returncode and command.startswith("pip install") and "Could not find a version" in told:
            pytest.skip("packages cannot be installed here")
        assert done.returncode == 0, f"{command}\n{told}"
        print(f"{seconds:7.1f} s  {command}")
        place = Path((tmp_path / "place").read_text().strip())
    package = tmp_path / "dlc-backend-acme"
    lines = sum(len(path.read_text().splitlines()) for path in package.rglob("*.py"))
    print(f"{lines} lines of Python, {total / 60:.1f} minutes")
    assert lines <= LINES
    assert total / 60 <= MINUTES
