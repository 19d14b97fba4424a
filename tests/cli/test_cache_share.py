"""`dlc cache share`: results of compiles, signed, for a team."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlc_core
from dlc_core.config import config
from dlc_core.driver import keys

pytest.importorskip("cryptography", reason="signatures need the extra `signing` of dlc-core")

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared folder; the keys and the cache of the author."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for name, place in (
        ("SHARED_CACHE", shared),
        ("KEYS_DIR", tmp_path / "keys"),
        ("CACHE_DIR", tmp_path / "a"),
    ):
        monkeypatch.setenv(f"DLC_{name}", str(place))
    return shared


def test_others_take_the_shared_result(dlc: Run, team: Path, tmp_path: Path) -> None:
    public = dlc("keys", "new").split()[-1]
    (path,) = json.loads(dlc("cache", "share", "model.onnx", "-t", "reference", "--json")).values()
    assert [str(file) for file in team.iterdir()] == [path]
    assert public in dlc("verify", path)
    dlc("keys", "trust", public)
    with config.override(cache_dir=tmp_path / "b", cache=True):
        exe = dlc_core.compile("model.onnx", "reference")
        assert exe.report["cache"] == "hit"
        assert exe(np.ones((5, 4), np.float32)).shape == (5, 3)
        assert dlc_core.compile("model.onnx", "reference", opt_level=1).report["cache"] == "stored"


def test_the_key_may_be_a_file(dlc: Run, team: Path, tmp_path: Path) -> None:
    place, public = keys.new_key(tmp_path / "release.pem")
    printed = dlc("cache", "share", "model.onnx", "-t", "reference", "--opt-level", "2", "--key", place)
    assert Path(printed.replace("\n", "")).parent == team
    assert keys.key_text(public) in dlc("verify", printed.strip())


def test_sharing_needs_a_model_a_key_and_a_folder(
    dlc: Run, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "needs a model" in dlc("cache", "share", code=2)
    assert "dlc keys new" in dlc("cache", "share", "model.onnx", "-t", "reference", code=2)
    assert not list(team.iterdir())
    dlc("keys", "new")
    monkeypatch.delenv("DLC_SHARED_CACHE")
    assert "DLC_SHARED_CACHE" in dlc("cache", "share", "model.onnx", "-t", "reference", code=2)
    assert not list(team.iterdir())
