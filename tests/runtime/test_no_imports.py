"""No name in a file is imported: neither as a module nor as a plugin that is installed and disabled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dlc_core as dlc
from dlc_core.testing.networks import mlp
from tests.forging.files import encoded, forged, forged_portable, header_of
from tests.forging.mutations import places

NAMES = ("planted_module", "planted_module:THING", "planted")
OPEN_ALL = """
import sys
from pathlib import Path
import numpy as np
import dlc_core as dlc

x = np.zeros((1, 64), np.float32)
outcomes = {"opened": 0, "refused": 0}
for path in sorted(Path(sys.argv[1]).glob("*.dlc")):
    try:
        exe = dlc.open(path, *sys.argv[2:], trust=True, compile_source=True)
        exe(x)
        outcomes["opened"] += 1
    except dlc.DlcError:
        outcomes["refused"] += 1
print(outcomes["opened"] > 0, outcomes["refused"] > 0, "planted_module" in sys.modules)
"""


@pytest.fixture
def planted(tmp_path) -> dict[str, str]:
    """The environment of a process that can import a module, which is also a plugin."""
    folder = tmp_path / "packages"
    facts = folder / "planted-1.0.dist-info"
    facts.mkdir(parents=True)
    (folder / "planted_module.py").write_text("THING = 1\n")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[dlc]\nplanted = planted_module\n")
    paths = [str(folder), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "DLC_PLUGINS": "none"}


def with_names(value: Any) -> Iterator[tuple[int, str]]:
    """The number of every text in JSON data, with each name."""
    for number, (node, key) in enumerate(places(value)):
        if isinstance(node[key], str):
            yield from ((number, name) for name in NAMES)


def renamed(value: Any, number: int, name: str) -> None:
    node, key = places(value)[number]
    node[key] = name


def opened(folder: Path, environment: dict[str, str], *target: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", OPEN_ALL, str(folder), *target],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_names_in_the_header_of_a_compiled_file_are_not_imported(tmp_path, planted):
    folder = tmp_path / "files"
    folder.mkdir()
    good = folder / "good.dlc"
    dlc.compile(mlp(), "reference", cache=False).save(good)
    data = good.read_bytes()
    for number, name in with_names(header_of(data)):
        bad = forged(data, lambda header, n=number, to=name: renamed(header, n, to), contract=True)
        (folder / f"{number}-{NAMES.index(name)}.dlc").write_bytes(bad)
    assert opened(folder, planted) == ["True", "True", "False"]


def test_names_in_a_portable_file_are_not_imported(tmp_path, planted):
    folder = tmp_path / "files"
    folder.mkdir()
    good = dlc.save_portable(mlp(), folder / "good.dlc")
    data = good.read_bytes()
    graph: dict[str, Any] = {}
    forged_portable(data, graph=graph.update)
    for number, name in with_names(graph):
        if name == NAMES[number % len(NAMES)]:
            bad = forged_portable(data, graph=lambda value, n=number, to=name: renamed(value, n, to))
            (folder / f"{number}.dlc").write_bytes(bad)
    assert len(encoded(graph)) > 1000
    assert opened(folder, planted, "reference") == ["True", "True", "False"]


def test_the_planted_module_can_be_imported(planted):
    """Without this the tests above would prove nothing."""
    text = (
        "import importlib.metadata as metadata, planted_module\n"
        "print(*(found.value for found in metadata.entry_points(group='dlc')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=planted, check=True
    )
    assert "planted_module" in done.stdout
