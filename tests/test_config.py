"""Settings: sources of values, legal values, error messages."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dlc_core.config import Config, Knob, config
from dlc_core.diag import UsageError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for knob in Config.knobs():
        monkeypatch.delenv(knob.variable, raising=False)


def test_defaults():
    assert config.debug == 0
    assert config.num_threads is None
    assert config.plugins is None
    assert config.verify == "off"
    assert config.dump_dir is None
    assert {setting.origin for setting in config.settings()} == {"default"}


def test_environment_is_read_at_every_access(monkeypatch):
    monkeypatch.setenv("DLC_NUM_THREADS", "3")
    assert config.num_threads == 3
    monkeypatch.setenv("DLC_NUM_THREADS", "4")
    assert config.num_threads == 4
    monkeypatch.setenv("DLC_NUM_THREADS", "")
    assert config.num_threads is None


def test_override_wins_over_environment_and_ends(monkeypatch):
    monkeypatch.setenv("DLC_DEBUG", "1")
    with config.override(debug=2, verify="each"):
        with config.override(debug=3):
            assert (config.debug, config.verify) == (3, "each")
        assert config.debug == 2
        origins = {setting.knob.name: setting.origin for setting in config.settings()}
        assert (origins["debug"], origins["verify"], origins["num_threads"]) == (
            "override",
            "override",
            "default",
        )
    assert config.debug == 1
    assert Config.debug.look_up() == (1, "env")


def test_override_ends_when_the_block_raises():
    with pytest.raises(ZeroDivisionError), config.override(debug=7):
        raise ZeroDivisionError
    assert config.debug == 0


def test_override_belongs_to_its_thread():
    seen = []
    with config.override(debug=5):
        thread = threading.Thread(target=lambda: seen.append(config.debug))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("DLC_DEBUG", "loud", ["DLC_DEBUG is 'loud'", "an integer from 0 to 7"]),
        ("DLC_DEBUG", "8", ["DLC_DEBUG is 8", "an integer from 0 to 7"]),
        ("DLC_NUM_THREADS", "0", ["DLC_NUM_THREADS is 0", "an integer, at least 1"]),
        ("DLC_VERIFY", "always", ["DLC_VERIFY is 'always'", "one of off, structure, each"]),
    ],
)
def test_illegal_environment_names_the_variable_and_the_legal_values(monkeypatch, variable, text, words):
    monkeypatch.setenv(variable, text)
    with pytest.raises(UsageError) as caught:
        config.settings()
    assert all(word in str(caught.value) for word in words)


def test_illegal_override():
    with pytest.raises(UsageError, match="the override of debug is True"), config.override(debug=True):
        pass
    with pytest.raises(UsageError, match="num_threads must be an integer, at least 1"):
        config.override(num_threads=0).__enter__()
    with pytest.raises(UsageError, match="no knob 'num_thread'") as caught:
        config.override(num_thread=1).__enter__()
    assert "did you mean 'num_threads'?" in str(caught.value)


def test_a_setting_cannot_be_assigned():
    with pytest.raises(UsageError, match=r"with config\.override\(debug=\.\.\.\)"):
        config.debug = 3


def test_types_of_values(monkeypatch):
    flag = Knob("test_flag", bool, False, "A flag.")
    ratio = Knob("test_ratio", float, 0.5, "A ratio.", minimum=0, maximum=1)
    names = Knob[tuple[str, ...]]("test_names", tuple, ("a",), "Names.")
    for knob, text, value in [
        (flag, "Yes", True),
        (flag, "0", False),
        (ratio, "0.25", 0.25),
        (names, "b, c,", ("b", "c")),
        (names, "none", ()),
    ]:
        monkeypatch.setenv(knob.variable, text)
        assert knob.get() == value
        assert type(knob.get()) is type(value)
    monkeypatch.setenv("DLC_TEST_FLAG", "maybe")
    with pytest.raises(UsageError, match="a truth value: 1, on, true, yes or 0, false, no, off"):
        flag.get()
    with config.override({ratio: 1, flag: True}):
        assert (ratio.get(), flag.get()) == (1.0, True)
        assert type(ratio.get()) is float


def test_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.cache_dir == tmp_path / "dlc"
    assert config.reproducer_dir == tmp_path / "dlc" / "reproducers"
    monkeypatch.setenv("DLC_CACHE_DIR", "~/dlc-cache")
    assert config.cache_dir == Path.home() / "dlc-cache"
    assert config.reproducer_dir == config.cache_dir / "reproducers"
    with config.override(dump_dir=str(tmp_path)):
        assert config.dump_dir == tmp_path


def test_plugin_restriction(monkeypatch):
    monkeypatch.setenv("DLC_PLUGINS", "none")
    assert config.plugins == ()
    monkeypatch.setenv("DLC_PLUGINS", "acme,other")
    assert config.plugins == ("acme", "other")


def test_every_setting_is_documented():
    for knob in Config.knobs():
        assert knob.help.endswith(".")
        assert knob.legal
        assert knob.variable == f"DLC_{knob.name.upper()}"
