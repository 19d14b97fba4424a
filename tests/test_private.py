"""Private files and folders: owners, modes, links; caches refuse what others may have written."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from dlc_core import disk_cache
from dlc_core.backend.binary_cache import cached_binary
from dlc_core.config import config
from dlc_core.diag import ArtifactError
from dlc_core.driver.cache import Store
from dlc_core.support import disk, ownership, private
from dlc_core.support.disk import RefusedCacheWarning, read_checked, write_checked
from dlc_core.support.private import (
    NotPrivateError,
    open_private,
    open_settings,
    private_folder,
    write_private,
)
from tests.test_cache import X, compiled

pytestmark = pytest.mark.skipif(not ownership.POSIX, reason="the system has no POSIX owners and modes")

OTHER = 12345
"""Another user."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_warned", set())
    with config.override(cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


@pytest.fixture
def give_away():
    """A function that gives a path to another user."""
    if os.geteuid() != 0:
        pytest.skip("only the superuser can give files to another user")

    def give(path):
        os.chown(path, OTHER, OTHER, follow_symlinks=False)

    return give


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def refused(path):
    """The reason for which a file is refused."""
    with pytest.raises(NotPrivateError) as caught:
        os.close(open_private(path))
    return caught.value.why


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_and_folders_are_private_whatever_the_umask(own_folder, umask):
    before = os.umask(umask)
    try:
        exe = compiled()
        disk_cache.disk_cached("a", "key", lambda: b"value")
    finally:
        os.umask(before)
    assert exe.report["cache"] == "stored"
    found = [own_folder, *own_folder.rglob("*")]
    assert {mode(path) for path in found if path.is_dir()} == {0o700}
    assert {mode(path) for path in found if path.is_file()} == {0o600}
    assert {path.suffix for path in found if path.is_file()} >= {".dlc", ".mark", ""}


def test_an_older_folder_is_closed_to_others(own_folder):
    compiled()
    folder = own_folder / "artefacts"
    folder.chmod(0o755)
    assert compiled().report["cache"] == "hit"
    assert mode(folder) == 0o700


def loosen_folder(entry, give_away):
    entry.parent.chmod(0o777)


def loosen_parent(entry, give_away):
    entry.parent.parent.chmod(0o777)


def loosen_file(entry, give_away):
    entry.chmod(0o666)


def let_a_group_write(entry, give_away):
    os.chown(entry, -1, OTHER)
    entry.chmod(0o660)


def give_file(entry, give_away):
    give_away(entry)


def give_folder(entry, give_away):
    give_away(entry.parent)


def give_parent(entry, give_away):
    give_away(entry.parent.parent)


def link_file(entry, give_away):
    entry.replace(entry.with_name("other"))
    entry.symlink_to("other")


def link_folder(entry, give_away):
    entry.parent.replace(entry.parent.with_name("other"))
    entry.parent.symlink_to("other")


def make_pipe(entry, give_away):
    entry.unlink()
    os.mkfifo(entry)


CHANGES = (
    loosen_folder,
    loosen_parent,
    loosen_file,
    let_a_group_write,
    give_file,
    give_folder,
    give_parent,
    link_file,
    link_folder,
    make_pipe,
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_others_may_have_written_is_not_served(change, give_away):
    compiled()
    (entry,) = Store().entries()
    change(entry.path, give_away)
    with pytest.warns(RefusedCacheWarning, match="is not used as a cache: "):
        exe = compiled()
    assert exe.report["cache"] != "hit"
    np.testing.assert_array_equal(exe(X), 2 * X)
    folder_is_bad = change in (loosen_folder, loosen_parent, give_folder, give_parent, link_folder)
    with warnings.catch_warnings():  # a warning once is enough
        again = compiled().report["cache"]
    if folder_is_bad:
        assert (
            exe.report["cache"] == again == f"not stored: the cache folder {entry.path.parent} is not private"
        )
    else:
        assert [exe.report["cache"], again] == ["stored", "hit"]
        assert mode(entry.path) == 0o600


def test_another_models_artefact_is_not_served():
    """A file of this user under another key is no result of that key."""
    compiled(2.0)
    (first,) = Store().entries()
    compiled(3.0)
    (second,) = [entry for entry in Store().entries() if entry.path != first.path]
    second.path.write_bytes(first.path.read_bytes())
    exe = compiled(3.0)
    assert exe.report["cache"] == "stored"
    np.testing.assert_array_equal(exe(X), 3 * X)
    second.path.unlink()
    os.link(first.path, second.path)
    assert compiled(3.0).report["cache"] == "stored"


def test_marks_do_not_overwrite_the_target_of_a_link(tmp_path):
    compiled()
    (entry,) = Store().entries()
    mark, victim = entry.path.with_suffix(".mark"), tmp_path / "victim"
    victim.write_text("precious")
    for again in (compiled, lambda: Store().put(entry.path.stem, compiled(), {})):
        mark.unlink()
        mark.symlink_to(victim)
        again()
        assert victim.read_text() == "precious"
        assert not mark.is_symlink()


def test_weights_that_keep_size_and_time_are_compared():
    compiled()
    (entry,) = Store().entries()
    data, status = bytearray(entry.path.read_bytes()), entry.path.stat()
    data[-1] ^= 1  # the weights are last
    entry.path.write_bytes(data)
    os.utime(entry.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert Store().get(entry.path.stem) is None
    again = compiled()
    assert again.report["cache"] == "stored"
    np.testing.assert_array_equal(again(X), 2 * X)


def test_unfinished_files_are_not_written_through_links(tmp_path, monkeypatch):
    """Names of unfinished files cannot be guessed; if one is, it is no way out of the folder."""
    victim, path = tmp_path / "victim", tmp_path / "cache" / "facts" / "a"
    victim.write_text("precious")
    assert write_checked(path, b"first")
    monkeypatch.setattr(os, "urandom", bytes)
    private.temporary_of(path).symlink_to(victim)
    assert not write_checked(path, b"second")
    assert victim.read_text() == "precious"
    assert read_checked(path, 100) == b"first"


def test_trimming_removes_nothing_behind_a_link(tmp_path):
    victims = tmp_path / "victims"
    victims.mkdir()
    (victims / "precious").write_text("x")
    (tmp_path / "cache").mkdir(mode=0o700)
    for name in ("libraries", "kernels", "facts", "artefacts"):
        (tmp_path / "cache" / name).symlink_to(victims)
    from dlc_core.backend.binary_cache import kept_libraries

    kept_libraries().clear()
    disk_cache.remove_unused(everything=True)
    Store(limit=0).trim()
    Store().clear()
    assert (victims / "precious").exists()


def test_libraries_are_built_again_if_they_are_not_as_built(tmp_path):
    built = []

    def build(source, out):
        built.append(source)
        out.write_bytes(source.read_bytes())

    def library():
        return cached_binary(b"code", ".so", (), build, tool="test")

    path = library()
    assert [mode(path), library(), len(built)] == [0o600, path, 1]
    path.write_bytes(b"c0de")  # with its size
    assert library().read_bytes() == b"code"
    path.chmod(0o666)
    with pytest.warns(RefusedCacheWarning, match="mode 666"):
        assert library().read_bytes() == b"code"
    assert len(built) == 3
    path.parent.chmod(0o777)
    with pytest.raises(ArtifactError, match=r"is not private(.|\n)*mode 777"):
        library()


def test_files_under_another_name_are_damaged(tmp_path):
    folder = tmp_path / "cache" / "facts"
    assert write_checked(folder / "one", b"data")
    (folder / "one").replace(folder / "two")
    assert read_checked(folder / "two", 100) is None


def test_links_and_folders_above_are_checked(tmp_path, give_away):
    folder, link = tmp_path / "deep" / "cache", tmp_path / "link"
    write_private(folder / "file", [b"x"])
    link.symlink_to(tmp_path / "deep")
    os.close(open_private(link / "cache" / "file"))
    give_away(link)
    assert refused(link / "cache" / "file") == f"it is a symbolic link of the user {OTHER}"
    (tmp_path / "turn").symlink_to("turn")
    assert refused(tmp_path / "turn" / "file" / "x") == "too many symbolic links"
    (tmp_path / "deep").chmod(0o777)
    assert "mode 777" in refused(folder / "file")
    (tmp_path / "deep").chmod(0o1777)
    os.close(open_private(folder / "file"))
    give_away(tmp_path / "deep")
    assert f"belongs to the user {OTHER}" in refused(folder / "file")


def settings_refused(path):
    with pytest.raises(NotPrivateError) as caught:
        os.close(open_settings(path))
    return caught.value.why


def test_settings_may_be_those_of_the_superuser(tmp_path, give_away, monkeypatch):
    folder = tmp_path / "etc"
    folder.mkdir()
    path, link = folder / "keys", tmp_path / "link"
    path.write_text("x")
    link.symlink_to(path)
    for given in (path, link):
        os.close(open_settings(given))
    for wrong in (0o666, 0o1666):
        path.chmod(wrong)
        assert f"mode {wrong:o}" in settings_refused(link)
    path.chmod(0o644)
    for wrong in (0o777, 0o1777):  # others may replace a file, or add it before this user does
        folder.chmod(wrong)
        assert f"mode {wrong:o}" in settings_refused(link)
    folder.chmod(0o755)
    os.mkfifo(folder / "pipe")
    assert settings_refused(folder / "pipe") == "it is not a regular file"
    with pytest.raises(FileNotFoundError):
        open_settings(folder / "none")
    (tmp_path / "turn").symlink_to("turn")
    assert settings_refused(tmp_path / "turn") == "too many symbolic links"
    give_away(path)
    assert f"belongs to the user {OTHER}" in settings_refused(path)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER + 1)
    assert "belongs to the user" in settings_refused(path)


def test_the_private_group_of_a_user_counts_as_the_user(tmp_path, monkeypatch):
    write_private(tmp_path / "cache" / "file", [b"x"])
    path = tmp_path / "cache" / "file"
    path.chmod(0o660)
    monkeypatch.setattr(ownership, "_only_own_group", lambda group, owner: True)
    os.close(open_private(path))
    monkeypatch.setattr(ownership, "_has_acl", lambda descriptor: True)
    assert "mode 660" in refused(path)
    monkeypatch.setattr(ownership, "_only_own_group", lambda group, owner: False)
    assert "mode 660" in refused(path)


def test_a_process_of_another_user_refuses_the_file():
    """The superuser writes, another user reads."""
    if os.geteuid() != 0:
        pytest.skip("only the superuser can become another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "shared"
        write_private(folder / "file", [b"x"])
        for path in (Path(name), folder, folder / "file"):
            path.chmod(0o755)
        if any(not mode(path) & 0o001 for path in Path(name).parents):
            pytest.skip("other users cannot reach the folder of temporary files")
        child = os.fork()
        if child == 0:
            os.setuid(OTHER)
            try:
                os.close(open_private(folder / "file"))
                os._exit(2)
            except NotPrivateError:
                os._exit(0)
            except BaseException:  # noqa: BLE001 (the exit code tells)
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_systems_without_owners_refuse_links(tmp_path, monkeypatch):
    for module in (ownership, private):
        monkeypatch.setattr(module, "POSIX", False)
    path = tmp_path / "cache" / "file"
    with private_folder(path.parent, create=True) as folder:
        assert folder is None
    write_private(path, [b"x"])
    path.chmod(0o666)
    assert private.read_private(path) == b"x"
    (tmp_path / "cache" / "link").symlink_to(path)
    assert refused(tmp_path / "cache" / "link") == "it is a symbolic link"
    with pytest.raises(FileNotFoundError), private_folder(Path(tmp_path / "absent")):
        pass
