"""The shared cache of a team: only entries that a trusted key has signed, verified as private copies."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from dlc_core import driver
from dlc_core.config import config
from dlc_core.diag import UsageError
from dlc_core.driver import CompileRequest, digests, shared_cache, signing
from dlc_core.driver.cache import Store
from dlc_core.support.ownership import objection
from tests.test_cache import TENSOR, X, compiled, module

pytest.importorskip("cryptography", reason="signatures need the package cryptography")

from dlc_core.driver import keys
from dlc_core.driver.shared_cache import RefusedEntryWarning


@pytest.fixture(autouse=True)
def folders(tmp_path):
    """Keys and caches of one user; the shared cache is a folder that all can write."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    settings = {"cache_dir": tmp_path / "cache", "keys_dir": tmp_path / "keys", "shared_cache": shared}
    with config.override(cache=True, **settings):
        yield tmp_path


@pytest.fixture
def public():
    """A new key of this user, as text; it is not trusted yet."""
    _, data = keys.new_key(None)
    return keys.key_text(data)


def shared(factor=2.0):
    return driver.share(module(factor), CompileRequest.of(TENSOR, cache=True))


def as_another_user(folders):
    """Later compiles use another private cache."""
    return config.override(cache_dir=folders / "another")


def test_signed_entries_are_copied_and_used(folders, public):
    path = shared()
    keys.trust_key(public)
    with as_another_user(folders):
        for _ in range(2):
            exe = compiled()
            assert exe.report["cache"] == "hit"
            np.testing.assert_array_equal(exe(X), 2 * X)
            path.unlink(missing_ok=True)  # the private copy is used
        (entry,) = Store().entries()
        assert entry.path.name == path.name
        assert entry.path.stat().st_mode & 0o777 == 0o600
        assert compiled(3.0).report["cache"] == "stored"


def test_only_a_private_file_is_signed(folders, public, monkeypatch):
    """Others may write the shared folder, so what lies there must not be signed."""
    signed = []

    def sign(path, key):
        assert objection(path.parent.stat()) == ""
        assert folders / "shared" not in path.parents
        signed.append(path)
        return signing.sign(path, key)

    monkeypatch.setattr(shared_cache, "sign", sign)
    path = shared()
    assert len(signed) == 1
    assert not signed[0].exists()
    assert [file.name for file in (folders / "shared").iterdir()] == [path.name]


def refused(folders, why):
    with as_another_user(folders):
        with pytest.warns(RefusedEntryWarning, match=why):
            exe = compiled()
        assert exe.report["cache"] == "stored"
        np.testing.assert_array_equal(exe(X), 2 * X)
        assert not list(Store().folder.glob(".*"))


def test_entries_without_a_trusted_signature_are_refused(folders, public):
    path = shared()
    refused(folders, "no trusted key has signed it")
    keys.trust_key(public)
    unsigned = folders / "unsigned.dlc"
    compiled().save(unsigned)
    shutil.copy(unsigned, path)
    shutil.rmtree(folders / "another")
    refused(folders, "no trusted key has signed it")


def test_changed_entries_are_refused(folders, public):
    path = shared()
    keys.trust_key(public)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    refused(folders, "damaged|checksum|padding")


def test_a_pipe_does_not_stop_a_compile(folders, public):
    path = shared()
    path.unlink()
    os.mkfifo(path)
    refused(folders, "not a regular file")


def test_an_entry_of_another_request_is_not_used(folders, public):
    """It is signed, but somebody has renamed it."""
    path, other = shared(), shared(3.0)
    keys.trust_key(public)
    other.replace(path)
    with as_another_user(folders):
        exe = compiled()
        assert exe.report["cache"] == "stored"
        np.testing.assert_array_equal(exe(X), 2 * X)


def test_sharing_needs_a_folder_and_a_key(folders):
    with pytest.raises(UsageError, match="key"):
        shared()
    assert not list((folders / "shared").iterdir())
    with config.override(shared_cache=None), pytest.raises(UsageError, match="no shared cache is set"):
        shared()


def test_names_cover_the_content_of_code(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("x = 1")
    first, stamp = digests.code_digest(str(package)), digests.code_stamp(str(package))
    shutil.copytree(package, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "a.py", (0, 0))
    assert digests.code_digest(str(tmp_path / "copy")) == first
    assert digests.code_stamp(str(tmp_path / "copy")) != stamp
    (package / "a.py").write_text("x = 2")
    digests.code_digest.cache_clear()
    digests.code_stamp.cache_clear()
    assert digests.code_digest(str(package)) != first
