"""`dlc cache verify`: every file of the cache is checked."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

from dlc_core import disk_cache
from dlc_core.backend.binary_cache import cached_binary
from dlc_core.cli.main import main
from dlc_core.driver.cache import Store
from dlc_core.driver.kernel_cache import kept_kernels
from dlc_core.support import ownership
from dlc_core.support.disk import write_checked
from tests.test_cache import compiled

pytestmark = pytest.mark.skipif(not ownership.POSIX, reason="the system has no POSIX owners and modes")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with entries of each kind."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DLC_CACHE_DIR", str(folder))
    monkeypatch.delenv("DLC_REPRODUCER_DIR", raising=False)
    compiled()
    write_checked(kept_kernels().folder / ("0" * 40), b"kernel")
    disk_cache.disk_cached("a", "key", lambda: b"value")
    cached_binary(b"code", ".so", (), lambda source, out: out.write_bytes(b"made"), tool="test")
    return folder


def verified(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """The exit code, and the problems by file name."""
    capsys.readouterr()
    code = main(["cache", "verify", "--json"])
    found = json.loads(capsys.readouterr().out)
    problems = [problem for part in found["parts"] for problem in part["problems"]]
    return code, {Path(problem["path"]).name: problem["why"] for problem in problems}


def test_a_good_cache_has_no_problems(cache, capsys):
    assert verified(capsys) == (0, {})
    assert main(["cache", "verify"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(cache)
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert set(rows) == {"artefacts", "facts", "kernels", "libraries"}
    assert rows["artefacts"][0] == rows["libraries"][0] == "2"
    assert all(row[-1] == "0" for row in rows.values())


def test_a_missing_cache_has_no_problems(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "absent"))
    assert verified(capsys) == (0, {})


def test_all_kinds_of_problems_are_found(cache, capsys):
    (entry,) = Store().entries()
    (fact,) = [path for path in (cache / "facts").iterdir() if path.name.startswith("a-")]
    (kernel,) = (cache / "kernels").iterdir()
    (library,) = (cache / "libraries").glob("*.so")
    data = bytearray(entry.path.read_bytes())
    data[-1] ^= 1
    entry.path.write_bytes(data)
    fact.rename(fact.with_name("renamed"))
    kernel.chmod(0o666)
    library.write_bytes(b"mad3")
    (cache / "stray").write_text("x")
    (cache / "libraries" / "other.so").write_text("x")
    (cache / "artefacts" / "notes.txt").write_text("x")
    (cache / "artefacts" / "lonely.mark").write_text("x")
    (cache / "facts" / "link").symlink_to(entry.path)
    os.mkfifo(cache / "facts" / "pipe")
    part = cache / "facts" / ".old.part"
    part.write_text("x")
    os.utime(part, (0, 0))
    for path in cache.rglob("*"):
        if path.is_file() and not path.is_symlink() and path != kernel:
            path.chmod(0o600)
    code, problems = verified(capsys)
    assert code == 1
    assert "damaged" in problems.pop(entry.path.name)
    assert problems == {
        "renamed": "its checksum differs, or it has another name",
        kernel.name: "other users can write to it (mode 666)",
        library.name: "its checksum differs, or it has another name",
        "stray": "it is not a file of the cache",
        "other.so": "it is not a file of the cache",
        "notes.txt": "it is not a file of the cache",
        "lonely.mark": "lonely.dlc is missing",
        "link": "it is a symbolic link",
        "pipe": "it is not a regular file",
        ".old.part": "it was abandoned: `dlc cache prune` removes it",
    }
    assert main(["cache", "verify"]) == 1
    assert f"{kernel}: other users can write to it (mode 666)" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["", "kernels"])
def test_loose_folders_are_found_and_not_changed(cache, capsys, where):
    (cache / where).chmod(0o777)
    code, problems = verified(capsys)
    assert code == 1
    assert problems[(cache / where).name] == "other users can write to it (mode 777)"
    assert (cache / where).stat().st_mode & 0o777 == 0o777


def test_a_link_for_a_folder_is_found(cache, capsys, tmp_path):
    (cache / "kernels").rename(tmp_path / "elsewhere")
    (cache / "kernels").symlink_to(tmp_path / "elsewhere")
    with warnings.catch_warnings():
        assert verified(capsys) == (1, {"kernels": "it is a symbolic link"})
