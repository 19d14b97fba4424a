"""Weights are mapped: processes share the pages of the file, whether they compiled or opened the model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads the maps of processes")

PROGRAM = """
import sys
import numpy as np
import dlc_core as dlc
from dlc_core import nn
rows = 1024
if sys.argv[1] == "open":
    exe = dlc.open(sys.argv[2], mapped=True)
else:
    model = nn.Linear(rows, 2048).init(seed=0)
    exe = dlc.compile(model.to_module({"x": (1, rows)}), params=model.state_dict(), cache=True)
    del model
exe(np.ones((1, rows), np.float32))
if sys.argv[1] == "save":
    exe.save(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
maps = open("/proc/self/smaps").read().split(".dlc\\n")
figures = [dict(line.split()[:2] for line in text.splitlines()[:20]) for text in maps[1:]]
names = ("Rss:", "Pss:", "Private_Dirty:")
print(*(sum(int(each.get(name, 0)) for each in figures) for name in names))
"""
WEIGHTS = 1024 * 2048 * 4 >> 10


def _run(folder: Path, *how: tuple[str, ...]) -> list[list[int]]:
    """The Rss, Pss and dirty KiB of mapped artefacts, in processes that run at the same time."""
    variables = {**os.environ, "DLC_CACHE": "1", "DLC_CACHE_DIR": str(folder)}
    found, running = [], []
    for arguments in how:
        one = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
        running.append(one)
    for one in running:
        output, _ = one.communicate("\n", timeout=60)
        assert one.returncode == 0
        found.append([int(word) for word in output.split()])
    return found


def test_processes_share_the_weights(tmp_path: Path) -> None:
    saved = str(tmp_path / "model.dlc")
    (compiled,) = _run(tmp_path, ("save", saved))
    assert compiled[0] >= WEIGHTS  # the compiling process maps the file, too
    first, *_ = _run(tmp_path, ("open", saved), ("open", saved), ("open", saved))
    resident, proportional, dirty = first
    assert resident >= WEIGHTS
    assert dirty == 0
    assert proportional <= 0.6 * resident
