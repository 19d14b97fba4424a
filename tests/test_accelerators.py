"""The example accelerators are packages: built from their own pyproject, installed, tested by their tests.

Each is built as a wheel, which is unpacked into a folder. Only that folder is on the path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(path.parent for path in (ROOT / "examples" / "accelerators").glob("*/pyproject.toml"))
PRIVATE = re.compile(r"from (dlc_core\.[\w.]+) import [^\n]*\b_\w+")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders in which the packages are installed."""
    pytest.importorskip("hatchling")
    found = {}
    for package in PACKAGES:
        wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp(package.name)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
        done = subprocess.run(build, cwd=package, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        found[package.name] = site
    return found


def run_tests(package: Path, site: Path, folder: Path, marks: str) -> None:
    paths = [str(site), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DLC_", "PYTEST_"))}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "DLC_CACHE_DIR": str(folder), "NO_COLOR": "1"}
    words = ["-q", "-p", "no:cacheprovider", "-c", str(package / "pyproject.toml"), "-m", marks]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(package / "tests")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_it_passes_its_own_tests(package: Path, installed: dict[str, Path], tmp_path: Path) -> None:
    run_tests(package, installed[package.name], tmp_path, "not slow")


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_it_passes_its_slow_tests(package: Path, installed: dict[str, Path], tmp_path: Path) -> None:
    run_tests(package, installed[package.name], tmp_path, "slow")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_it_is_a_complete_package(package: Path, installed: dict[str, Path]) -> None:
    site = installed[package.name]
    (entry_points,) = site.glob("*.dist-info/entry_points.txt")
    assert "[dlc]" in entry_points.read_text()
    assert (package / "README.md").read_text().strip()
    for path in package.rglob("*.py"):
        assert not PRIVATE.search(path.read_text()), f"{path}: a private name of the core"


def test_examples_are_found() -> None:
    assert PACKAGES
