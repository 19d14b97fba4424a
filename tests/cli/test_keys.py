"""`dlc sign`, `dlc verify`, `dlc keys`, and `--trust`."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.cli.main import main
from dlc_core.config import config
from dlc_core.diag import ArtifactError, UntrustedError, UsageError
from dlc_core.driver import keys
from dlc_core.hooks import TrustedKey, hookimpl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing.networks import mlp
from tests.forging.files import forged

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
WRONG = "ed25519:" + "A" * 43


@pytest.fixture
def signed(tmp_path):
    """A signed file, the key of its author, and settings of a user who is not its author."""
    pytest.importorskip("cryptography", reason="signatures need the extra `signing` of dlc-core")
    path = tmp_path / "m.dlc"
    with config.override(keys_dir=tmp_path / "author"):
        dlc.compile(mlp(), "reference").save(path)
        key = keys.key_text(keys.new_key()[1])
        assert dlc.sign(path) == key
    with config.override(keys_dir=tmp_path / "user"):
        yield path, key


def test_a_signed_file_is_opened_where_its_key_is_trusted(signed, tmp_path):
    path, key = signed
    with pytest.raises(UntrustedError, match=f"signed by {key}, which is not a trusted key"):
        dlc.open(path)
    with config.override(trusted_keys=(WRONG, key)):
        assert dlc.open(path).report["vouched"] == f"a signature of {key} (DLC_TRUSTED_KEYS)"
    (tmp_path / "keys").write_text(f"# whose\n\n{key} of Ann\n")
    with config.override(trusted_keys=(str(tmp_path / "keys"),)):
        dlc.open(path)(X)

    class Plugin:
        @hookimpl
        def dlc_trusted_keys(self):
            return [TrustedKey("Ann", key)]

    with fresh_registry({"ann": Plugin()}):
        dlc.open(path)
    with config.override(trusted_keys=(WRONG,)), pytest.raises(UntrustedError):
        dlc.open(path)


def test_a_signature_covers_code_header_and_weights(signed):
    path, key = signed
    good = path.read_bytes()
    header = forged(good, lambda h: h.update(core="9"), contract=True)
    with config.override(trusted_keys=(key,)):
        path.write_bytes(header)
        with pytest.raises(UntrustedError, match="or the signature is wrong"):
            dlc.open(path)
        with pytest.raises(ArtifactError, match="is wrong"):
            dlc.verify(path)
        end = good.rindex(b"DLCSEALS")
        for at in range(4096, end - 4096, max(1, (end - 8192) // 60)):
            if good[at]:
                path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
                with pytest.raises(ArtifactError):
                    dlc.open(path)


def test_files_of_others_are_not_signed(signed, tmp_path, capsys):
    path, key = signed
    _, other = keys.new_key()
    before = path.read_bytes()
    with pytest.raises(UntrustedError, match="is not signed"):
        dlc.sign(path)
    assert main(["sign", str(path)]) == 1
    assert path.read_bytes() == before
    with config.override(trusted_keys=(key,)):
        assert dlc.sign(path) == keys.key_text(other)
    path.write_bytes(before)
    assert main(["sign", str(path), "--trust"]) == 0
    assert dlc.verify(path).unknown == (key, keys.key_text(other))


def test_several_sign_one_file(signed, tmp_path):
    path, key = signed
    other = keys.key_text(keys.new_key(tmp_path / "other.pem")[1])
    before = path.stat().st_mode
    sign = partial(dlc.sign, path, tmp_path / "other.pem", trust=True)
    assert sign() == sign() == other
    with config.override(trusted_keys=(other,)):
        found = dlc.verify(path)
        assert (found.signed_by, found.unknown, found.trusted) == ((other,), (key,), True)
        dlc.open(path)
    assert path.stat().st_mode == before


def test_commands(signed, tmp_path, capsys):
    path, key = signed
    np.savez(tmp_path / "x.npz", **{dlc.open(path, trust=True).inputs[0].name: X})
    run = ["run", str(path), "--inputs", str(tmp_path / "x.npz")]
    assert main(["verify", str(path)]) == 1
    assert f"signed by {key} (unknown)" in capsys.readouterr().out
    assert main(run) == 1
    assert "nobody vouches for it" in capsys.readouterr().err
    assert main([*run, "--trust"]) == 0
    assert main(["keys", "trust", key, "--comment", "Ann"]) == 0
    assert main(["keys"]) == 0
    assert key in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert main(run) == 0
    assert main(["inspect", str(path)]) == 0
    assert main(["keys", "new", str(tmp_path / "k.pem")]) == 0
    assert main(["sign", str(path), "--key", str(tmp_path / "k.pem")]) == 0
    assert main(["keys", "new", str(tmp_path / "k.pem")]) == 2
    assert "exists" in capsys.readouterr().err


def test_private_keys_are_private(tmp_path):
    pytest.importorskip("cryptography", reason="signatures need the extra `signing` of dlc-core")
    path, _ = keys.new_key(tmp_path / "k.pem")
    assert path.stat().st_mode & 0o777 == 0o600


def test_malformed_keys_are_errors(tmp_path):
    for text in ("rsa:AAAA", "ed25519:AAAA", "ed25519:" + "é" * 43):
        with pytest.raises(UsageError, match="is not a public key"):
            keys.key_bytes(text, "a test")
    (tmp_path / "keys").write_text(f"{WRONG}\n")
    (tmp_path / "keys").chmod(0o666)
    with (
        config.override(trusted_keys=(str(tmp_path / "keys"),)),
        pytest.raises(UsageError, match="can write"),
    ):
        keys.trusted_keys()
