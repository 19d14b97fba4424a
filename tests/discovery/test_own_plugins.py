"""The plugins of this repository: found, working, and light to import."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from dlc_core.hooks import PROJECT

ROOT = Path(__file__).resolve().parents[2]


def own_plugins() -> list[tuple[str, str]]:
    """Module and name of each entry point of the plugins that are installed from this repository."""
    found = []
    for folder in sorted((ROOT / "plugins").iterdir()):
        try:
            installed = distribution(f"dlc-{folder.name.replace('_', '-')}")
        except PackageNotFoundError:
            continue
        found += [(point.value, point.name) for point in installed.entry_points if point.group == PROJECT]
    return found


def test_plugins_are_found():
    assert own_plugins(), "run `make test`, which installs them"


@pytest.mark.parametrize(("module", "name"), own_plugins())
def test_importing_a_plugin_imports_nothing_heavy(module, name):
    """Every `dlc` command and every `dlc.compile` imports all plugins."""
    code = f"""
import sys
import dlc_core.plugin.registry
import {module.partition(":")[0]}
heavy = {{"numpy", "ml_dtypes", "onnx", "google.protobuf", "llvmlite", "ctypes", "subprocess"}}
print(sorted(heavy & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_every_plugin_works():
    code = f"""
from dlc_core.plugin.registry import registry
for info in registry().plugins:
    if info.name in {[name for _, name in own_plugins()]!r}:
        print(info.name, info.status, info.problem)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.stdout.split("\n") == [*sorted(f"{name} ok " for _, name in own_plugins()), ""], done.stderr
