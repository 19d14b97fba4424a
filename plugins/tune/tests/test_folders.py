"""Folders for temporary files that killed processes leave."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from dlc_tune.measuring import folders
from dlc_tune.measuring.folders import LOCK, locked_folder, remove_all_left, remove_folder, sockets_folder

KILLED = """
import os, signal, sys
from dlc_tune.measuring.folders import locked_folder, sockets_folder

(locked_folder("dlc-tune-") / "file").write_text("left")
(locked_folder("dlc-bench-") / "file").write_text("left")
sockets_folder()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_next_start_removes_what_killed_processes_left(root):
    environment = {**os.environ, "TMPDIR": str(root)}
    subprocess.run([sys.executable, "-c", KILLED], env=environment, timeout=60)
    assert sorted(each.name.partition("-")[0] for each in root.iterdir()) == ["dlc", "dlc", "pymp"]
    remove_all_left()
    assert list(root.iterdir()) == []


def test_folders_in_use_and_of_others_stay(root):
    used = locked_folder("dlc-tune-")
    others = [root / "dlc-tune-other", root / "pymp-other", root / "mine"]  # nothing says whose they are
    for each in others:
        each.mkdir()
    (others[2] / LOCK).touch()
    elsewhere = root / "pymp-link"
    elsewhere.symlink_to(others[2])
    remove_all_left()
    assert {*root.iterdir()} == {used, elsewhere, *others}
    remove_folder(used)
    assert not used.exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(root, monkeypatch):
    made, mkdtemp = [], tempfile.mkdtemp

    def removed_once(**options):
        made.append(Path(mkdtemp(**options)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    monkeypatch.setattr(folders.tempfile, "mkdtemp", removed_once)
    folder = locked_folder("dlc-tune-")
    assert (folder, folder.exists()) == (made[1], True)
    remove_folder(folder)


def test_the_folder_of_multiprocessing_is_locked_once(root, monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "tempdir", str(root / "pymp-own"))
    (root / "pymp-own").mkdir()
    assert sockets_folder() == sockets_folder() == root / "pymp-own"
    remove_all_left()
    assert sockets_folder().exists()
    remove_folder(sockets_folder())
