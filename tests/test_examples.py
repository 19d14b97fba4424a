"""Every example runs in a separate process, with warnings as errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

SCRIPTS = (
    "quick_start.py",
    "symbolic_shapes.py",
    "save_and_open.py",
    "te_vector_add.py",
    "te_loop_kinds.py",
    "te_matmul.py",
    "te_conv2d.py",
    "te_softmax_rfactor.py",
    "te_stages.py",
    "te_topi_mlp.py",
    "te_recurrence.py",
    "script_matmul.py",
    "tensorize_mma.py",
    "export_add_one.py",
    "nn_mlp.py",
    "custom_schedule.py",
    "external_codegen.py",
    "c_program/build_and_run.py",
    "op_plugin/use_it.py",
)
LINKING = ("c_program", "export_add_one")
"""Examples that need a C compiler, which links."""
SLOW = ("demo_resnet50.py",)
PACKAGED = ("accelerators",)
"""Folders of packages, whose own tests run them."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example plugin is installed."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(EXAMPLES / "op_plugin" / "dlc_example_ops.py", folder)
    info = folder / "dlc_example_ops-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlc-example-ops\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[dlc]\nexample-ops = dlc_example_ops\n")
    return folder


def run(script: str, cache: Path, *arguments: str, site: Path | None = None) -> str:
    paths = [str(site)] if site is not None else []
    paths += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DLC_")}
    environment |= {"DLC_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_example_runs(script: str, cache: Path, site: Path) -> None:
    if script.startswith(LINKING) and shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    printed = run(script, cache, site=site if script.startswith("op_plugin") else None)
    assert printed.strip()


@pytest.mark.slow
def test_the_demo_runs_and_checks_its_results(cache: Path) -> None:
    printed = run("demo_resnet50.py", cache, "--threads", "1")
    assert printed.count("fits") == 2
    assert "WRONG" not in printed
    assert "cold" in printed
    assert "from the cache" in printed


def test_every_example_is_run_and_listed_in_the_readme() -> None:
    scripts = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    scripts = {path for path in scripts if path.split("/")[0] not in PACKAGED}
    assert scripts - {"op_plugin/dlc_example_ops.py"} == {*SCRIPTS, *SLOW}
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for script in (*SCRIPTS, *SLOW):
        assert f"`{script.split('/')[0]}" in listed, script
