"""`DLC_API`: the versions of the interface that a plugin is written for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dlc_core import hooks
from dlc_core.diag import PluginError
from dlc_core.plugin.api_version import check_version, read_range
from dlc_core.plugin.registry import fresh_registry


@pytest.mark.parametrize(
    ("text", "fitting", "others"),
    [
        ("0.1", [(0, 1), (0, 2)], [(0, 0), (0, 3), (1, 0)]),
        ("1.2", [(1, 2), (1, 9)], [(1, 1), (2, 0), (0, 2)]),
        (">=0.1,<0.3", [(0, 1), (0, 2)], [(0, 0), (0, 3), (1, 1)]),
        (" >= 0.1 , < 0.5 , != 0.3 ", [(0, 1), (0, 4)], [(0, 3), (0, 5)]),
        (">0.1,<=0.3", [(0, 2), (0, 3)], [(0, 1), (0, 4)]),
        ("==0.2", [(0, 2)], [(0, 1), (0, 3)]),
        ("<0.10", [(0, 9)], [(0, 10)]),
    ],
)
def test_ranges(text, fitting, others):
    found = read_range(text)
    assert [version for version in (*fitting, *others) if found.admits(version)] == fitting


@pytest.mark.parametrize(
    "text", ["new", "", "1", "0.1.2", ">=0.1,", "0.1,<0.3", "~=0.1", "-0.1", 1, 0.1, (0, 1)]
)
def test_other_texts_are_refused(text):
    with pytest.raises(PluginError, match="DLC_API is") as caught:
        read_range(text)
    assert '">=0.1,<0.3"' in str(caught.value)


@pytest.mark.parametrize(
    ("text", "ours", "words"),
    [
        (
            ">=0.3,<0.5",
            (0, 1),
            ["interface >=0.3,<0.5", "has 0.1", "dlc-core is older", "pip install -U dlc-core"],
        ),
        (">0.1", (0, 1), ["pip install -U dlc-core"]),
        ("==0.2", (0, 1), ["pip install -U dlc-core"]),
        (">=0.1,<0.3", (0, 4), ["interface >=0.1,<0.3", "has 0.4", "pip install -U dlc-backend-npu"]),
        ("0.1", (0, 3), ["dlc-backend-npu is older than dlc-core needs", "pip install -U dlc-backend-npu"]),
        ("0.1", (1, 0), ["pip install -U dlc-backend-npu"]),
        ("!=0.2", (0, 2), ["pip install -U dlc-backend-npu"]),
    ],
)
def test_errors_state_both_sides_and_what_to_upgrade(text, ours, words):
    with pytest.raises(PluginError) as caught:
        check_version(text, ours, "dlc-backend-npu")
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("ours", "fitting"),
    [((0, 1), {">=0.1,<0.3", "0.1"}), ((0, 2), {">=0.1,<0.3", "0.1"}), ((0, 3), {">=0.3"})],
)
def test_a_plugin_with_a_range_is_loaded_or_refused(monkeypatch, ours, fitting):
    plugins = {text: SimpleNamespace(DLC_API=text) for text in (">=0.1,<0.3", "0.1", ">=0.3")}
    monkeypatch.setattr(hooks, "API_VERSION", ours)
    with fresh_registry(plugins) as made:
        found = {info.name: info for info in made.plugins if info.name in plugins}
    assert {name for name, info in found.items() if info.status == "ok"} == fitting
    for name in plugins.keys() - fitting:
        assert found[name].status == "broken"
        assert f"written for interface {name}, this dlc-core has {ours[0]}.{ours[1]}" in found[name].problem
