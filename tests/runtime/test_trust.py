"""Which artefacts are opened: this user's, signed ones, and those that the caller trusts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import ArtifactError, UntrustedError
from dlc_core.runtime.artefact import marks
from dlc_core.runtime.artefact.contract import BYTES
from dlc_core.runtime.artefact.seals import MARK, Seal, encode_seals
from tests.forging.files import forged, header_of

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
posix = pytest.mark.skipif(os.name != "posix", reason="files have no owners and modes here")


@pytest.fixture
def saved(devices, models, tmp_path):
    exe = dlc.compile(models.dense(), "shared")
    exe.save(tmp_path / "m.dlc")
    return tmp_path / "m.dlc", exe


@pytest.fixture
def somebody_else(saved, tmp_path):
    """Within this test the user has another key, as on another machine."""
    with config.override(keys_dir=tmp_path / "other" / "keys"):
        yield saved


def test_a_file_of_this_user_is_opened(saved):
    path, exe = saved
    opened = dlc.open(path)
    assert opened.report["vouched"] == "this user's mark"
    np.testing.assert_array_equal(opened(X), exe(X))
    shutil.copy(path, path.with_name("copied.dlc"))
    np.testing.assert_array_equal(dlc.open(path.with_name("copied.dlc"))(X), exe(X))


def test_a_file_from_elsewhere_needs_trust(somebody_else):
    path, exe = somebody_else
    with pytest.raises(UntrustedError, match="nobody vouches for it") as caught:
        dlc.open(path)
    assert "trust=True" in caught.value.hint
    assert "dlc did not write it" in str(caught.value)
    assert "this user has saved no file yet" in str(caught.value)
    opened = dlc.open(path, trust=True)
    assert opened.report["vouched"] == "trust=True"
    np.testing.assert_array_equal(opened(X), exe(X))


def test_a_mark_of_another_file_does_not_count(saved, tmp_path):
    path, _ = saved
    data = forged(path.read_bytes(), lambda header: header.update(core="9"), contract=True)
    path.write_bytes(data)
    with pytest.raises(UntrustedError):
        dlc.open(path)
    dlc.open(path, trust=True)


def test_an_untrusted_header_is_not_parsed(somebody_else, monkeypatch):
    path, _ = somebody_else
    monkeypatch.setattr("dlc_core.runtime.artefact.container.json.loads", pytest.fail)
    with pytest.raises(UntrustedError):
        dlc.open(path)


def test_a_changed_header_is_refused_though_all_checksums_are_right(saved):
    path, _ = saved
    good = path.read_bytes()
    for change in (
        lambda h: h["signature"]["inputs"][0]["shape"].__setitem__(0, 2_000_000),
        lambda h: h["signature"]["outputs"].append(h["signature"]["inputs"][0]),
        lambda h: h.update(entry="nothing"),
        lambda h: h.update(new=1),
    ):
        path.write_bytes(forged(good, change))
        with pytest.raises(ArtifactError, match="is not for its header"):
            dlc.open(path, trust=True)
    path.write_bytes(forged(good, lambda h: None))
    dlc.open(path, trust=True)


def test_the_code_of_another_artefact_is_refused(devices, models, tmp_path):
    """Sections of two files whose checksums are right do not make a third one."""
    one, other = tmp_path / "one.dlc", tmp_path / "other.dlc"
    dlc.compile(models.dense(), "shared").save(one)
    dlc.compile(models.rows(), "shared").save(other)
    data = one.read_bytes()
    code = next(s for s in header_of(data)["sections"] if s["name"] == "code")
    given = next(s for s in header_of(other.read_bytes())["sections"] if s["name"] == "code")
    assert code["sha256"] != given["sha256"]
    one.write_bytes(forged(data, lambda h: h["sections"][0].update(size=code["size"] - BYTES)))
    with pytest.raises(ArtifactError):
        dlc.open(one, trust=True)


@posix
def test_the_key_is_private(saved):
    folder = config.keys_dir
    assert (folder.stat().st_mode & 0o777, (folder / marks.NAME).stat().st_mode & 0o777) == (0o700, 0o600)


@posix
def test_a_key_that_others_can_write_does_not_count(devices, models, tmp_path, monkeypatch):
    with config.override(keys_dir=tmp_path / "keys"):
        path = tmp_path / "m.dlc"
        dlc.compile(models.dense(), "shared").save(path)
        monkeypatch.setattr(marks, "_known", {})
        (tmp_path / "keys" / marks.NAME).chmod(0o666)
        with pytest.raises(UntrustedError, match="other users can write to it"):
            dlc.open(path)


@posix
def test_a_mark_covers_the_weights(saved):
    path, _ = saved
    data = bytearray(path.read_bytes())
    assert header_of(bytes(data))["sections"][-1]["name"] == "weights"
    seals = len(encode_seals([Seal(MARK, bytes(32))]))
    data[-seals - 1] ^= 1
    path.write_bytes(data)
    for mapped in (False, True):
        with pytest.raises(ArtifactError, match="damaged"):
            dlc.open(path, mapped=mapped)
    path.chmod(0o666)
    with pytest.raises(UntrustedError, match="cannot be mapped"):
        dlc.open(path, mapped=True)


def test_processes_that_save_at_once_use_one_key(tmp_path):
    text = "from dlc_core.runtime.artefact.marks import mark; print(mark(b'x').proof.hex())"
    env = {**os.environ, "DLC_KEYS_DIR": str(tmp_path / "keys")}
    running = [
        subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert len({process.communicate()[0] for process in running}) == 1


def test_a_file_without_a_mark_is_refused_where_no_key_can_be_kept(devices, models, tmp_path):
    (tmp_path / "file").write_text("")
    with config.override(keys_dir=tmp_path / "file" / "keys"):
        exe = dlc.compile(models.dense(), "shared")
        exe.save(tmp_path / "m.dlc")
        with pytest.raises(UntrustedError):
            dlc.open(tmp_path / "m.dlc")
        np.testing.assert_array_equal(dlc.open(tmp_path / "m.dlc", trust=True)(X), exe(X))


def test_a_file_that_becomes_shorter_does_no_harm(saved):
    """The process would end by SIGBUS if the file was mapped."""
    path, exe = saved
    expected = exe(X)
    opened = dlc.open(path)
    os.truncate(path, 0)
    np.testing.assert_array_equal(opened(X), expected)
    assert not opened.weights.flags.writeable


@posix
def test_pipes_and_devices_are_no_artefacts(tmp_path):
    os.mkfifo(tmp_path / "m.dlc")
    with pytest.raises(ArtifactError, match="not a regular file"):
        dlc.open(tmp_path / "m.dlc")
    with pytest.raises(ArtifactError, match="not a regular file"):
        dlc.open("/dev/zero")
