"""The tags of the plugins of this repository: each names a target with a sensible machine."""

from __future__ import annotations

import pytest

import dlc_core as dlc
from dlc_core.plugin.registry import registry
from dlc_core.testing import networks

TAGS = registry().target_tags


@pytest.mark.parametrize("name", TAGS)
def test_a_tag_names_a_machine(name):
    target = dlc.Target(name)
    assert target.tag == name
    assert target.model
    assert dlc.Target(str(target)) == dlc.Target(target.to_json()) == target
    machine = target.describe()
    assert machine.cores >= 1
    assert list(machine.caches) == sorted(machine.caches)
    assert TAGS[name].doc


def test_boards_have_the_vectors_of_their_processors():
    found = {
        name: (t.describe().vector_bits, t.describe().vector_registers, t.describe().fma, t.describe().cores)
        for name in ("raspberry-pi/zero", "raspberry-pi/4b", "raspberry-pi/4b-armv7", "aws/cpu/c5.xlarge")
        for t in [dlc.Target(name)]
    }
    assert found == {
        "raspberry-pi/zero": (0, 16, False, 1),
        "raspberry-pi/4b": (128, 32, True, 4),
        "raspberry-pi/4b-armv7": (128, 16, True, 4),
        "aws/cpu/c5.xlarge": (512, 32, True, 2),
    }


def test_a_tag_and_its_target_have_one_cache_key(tmp_path, monkeypatch):
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path))
    module = networks.mlp()
    outcomes = []
    for target in (TAGS["raspberry-pi/4b"].target, "raspberry-pi/4b", "raspberry-pi/4b -keys=other"):
        exe = dlc.compile(module, target, cache=True)
        assert exe.target == dlc.Target(target)
        outcomes.append(exe.report["cache"])
    assert outcomes == ["stored", "hit", "stored"]


@pytest.mark.parametrize("name", ["stm32/f746", "raspberry-pi/pico", "raspberry-pi/5", "raspberry-pi/zero"])
def test_models_compile_for_boards(name):
    exe = dlc.compile(networks.mlp(), name, cache=False)
    assert exe.artifact.code
    assert exe.target.tag == name
