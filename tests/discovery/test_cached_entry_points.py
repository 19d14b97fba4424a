"""The cached list of installed distributions equals a new scan."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from dlc_core.plugin import installed
from dlc_core.plugin.installed import Source, distributions_stamp, scan

GROUP = "dlc-tests"
NOW = 1_700_000_000


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of the import path, and a cache."""
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def reads(monkeypatch):
    """Counts how often distributions are read."""
    count = []
    read = installed._scanned
    monkeypatch.setattr(installed, "_scanned", lambda group: count.append(group) or read(group))
    return count


def install(site: Path, version: str, value: str, *, at: int = NOW) -> Path:
    record = site / f"dlc_board-{version}.dist-info"
    record.mkdir(exist_ok=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dlc-board\nVersion: {version}\n")
    (record / "entry_points.txt").write_text(f"[{GROUP}]\nboard = {value}\n")
    os.utime(record, (at, at))
    return record


def test_the_same_distributions_are_read_once(site, reads):
    install(site, "1.0", "board.plugin")
    assert scan(GROUP) == scan(GROUP) == (Source("board", "board.plugin", "dlc-board", "1.0"),)
    assert reads == [GROUP]


def test_unrelated_files_do_not_invalidate_the_cache(site, reads):
    install(site, "1.0", "board.plugin")
    scan(GROUP)
    (site / "new.py").write_text("")
    scan(GROUP)
    assert reads == [GROUP]


@pytest.mark.parametrize("change", ["removed", "another version", "replaced"])
def test_another_distribution_is_seen(site, reads, change):
    record = install(site, "1.0", "board.plugin")
    scan(GROUP)
    if change != "replaced":
        shutil.rmtree(record)
    if change != "removed":
        install(site, "1.0" if change == "replaced" else "2.0", "board.other", at=NOW + 1)
    found = {source.value for source in scan(GROUP)}
    assert found == (set() if change == "removed" else {"board.other"})
    assert len(reads) == 2


def test_recent_installations_are_not_cached(site, reads):
    record = install(site, "1.0", "board.plugin")
    os.utime(record)
    assert scan(GROUP) == scan(GROUP)
    assert len(reads) == 2


def test_distributions_of_other_finders_are_not_cached(site, reads, monkeypatch):
    class Finder:
        def find_spec(self, *_, **__):
            return None

        def find_distributions(self, *_, **__):
            return []

    install(site, "1.0", "board.plugin")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert distributions_stamp() is None
    assert scan(GROUP) == scan(GROUP)
    assert len(reads) == 2


def test_a_damaged_cache_file_is_ignored(site, reads, tmp_path):
    install(site, "1.0", "board.plugin")
    found = scan(GROUP)
    for path in (tmp_path / "cache" / "facts").iterdir():
        path.write_bytes(b"[]")
    assert scan(GROUP) == found
    assert len(reads) == 2
