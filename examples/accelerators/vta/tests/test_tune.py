"""The tuner on the card: its measure, schedules of layers as a search space, the best machine for a model."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_vta import decision
from dlc_backend_vta.config import Config
from dlc_backend_vta.isa import Op
from dlc_backend_vta.layers import Step, matmul
from dlc_backend_vta.search import candidates, compare, convolution
from dlc_backend_vta.tiling import Plan, parts, smallest, tilings

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.plugin.registry import registry
from dlc_core.testing.networks import cifar, feed, mlp

pytest.importorskip("dlc_tune", reason="the search needs the package dlc-tune")

from dlc_backend_vta import configurations, space
from dlc_backend_vta.configurations import Budget, regions_of, search_configurations, table

SMALL = Config(inp_kb=2, wgt_kb=8, acc_kb=4, uop_kb=4, bus_bytes=8)
HOST = "reference -level=tir"
NARROW = {
    "LOG_BATCH": (0,),
    "LOG_BLOCK": (3, 4),
    "LOG_INP_BUFF": (3, 5),
    "LOG_WGT_BUFF": (5,),
    "LOG_ACC_BUFF": (4,),
}


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)


@pytest.fixture(scope="module")
def network(image):
    return dlc.quantize(cifar(), calibration=[image], target=HOST)


def layer_of(name):
    return matmul(name, 32, 48, 96, SMALL) if name == "matmul" else convolution(name, 24, 8, 40, 3, 1, SMALL)


@pytest.mark.parametrize("strategy", ["evolutionary", "random", "grid"])
@pytest.mark.parametrize("name", ["matmul", "conv"])
def test_a_search_is_never_worse_than_the_model(name, strategy):
    layer = layer_of(name)
    tuned = space.tune_layer(layer, SMALL, trials=8, strategy=strategy)
    row = compare(layer, SMALL)
    assert row.best_cycles <= tuned.cycles <= row.cycles
    assert tuned.trials <= 8
    assert tuned.plan.problem() is None


@pytest.mark.parametrize("name", ["matmul", "conv"])
def test_a_search_finds_what_the_model_knows(name, monkeypatch):
    """From the smallest tiles, a third of the simulations that the whole space needs."""
    layer = layer_of(name)
    monkeypatch.setattr(space, "choose", lambda layer, config: Plan(layer, smallest(layer), config))
    best, count = compare(layer, SMALL).best_cycles, sum(1 for _ in tilings(layer, SMALL))
    tuned = space.tune_layer(layer, SMALL, trials=count // 3)
    assert tuned.cycles <= 1.25 * best
    assert tuned.cycles < 0.5 * space._cycles(Plan(layer, smallest(layer), SMALL))


def test_tiles_that_do_not_fit_are_not_simulated(monkeypatch):
    layer, simulated = layer_of("conv"), []
    monkeypatch.setattr(space, "_cycles", lambda plan: simulated.append(plan) or 1000)
    space.tune_layer(layer, SMALL, trials=40, strategy="random")
    assert len(simulated) > 20
    assert all(plan.problem() is None for plan in simulated)
    every = np.prod([len(options) for options in parts(layer, SMALL).values()])
    assert sum(1 for _ in tilings(layer, SMALL)) < every


def test_a_layer_without_a_schedule_is_an_error():
    config = Config(uop_kb=1)
    with pytest.raises(UnsupportedError):
        space.tune_layer(convolution("large", 16, 40, 16, 31, 1, config), config)


def test_the_best_machine_of_a_model(network, image, capsys):
    regions = regions_of(network)
    rows = search_configurations(regions, Budget(256, 128), NARROW, trials=4)
    assert [row.cycles for row in rows] == sorted(row.cycles for row in rows)
    best = rows[0]
    assert best.logs["LOG_BLOCK"] == 4
    assert 0 < best.utilisation <= 1
    exe = dlc.compile(network, targets=[space.target_of(best.config), HOST])
    measure = registry().measures["vta"]
    costs, outputs = measure.costs(exe, [image], 1)
    assert costs[0] == pytest.approx(best.cycles, rel=0.1)
    np.testing.assert_array_equal(outputs[0], exe(image))
    text = table(rows)
    assert text.startswith("| LOG_BATCH | LOG_BLOCK | LOG_INP_BUFF")
    assert text.count("\n") == len(rows) + 1


def test_machines_beyond_the_budget_are_not_searched(network):
    found = list(configurations.configurations(Budget(64, 64), NARROW))
    assert found == []
    found = list(configurations.configurations(Budget(64, 96), NARROW))
    assert {chosen["LOG_BLOCK"] for chosen, _ in found} == {3}
    with pytest.raises(UsageError, match="no machine within the budget"):
        search_configurations(regions_of(network), Budget(1, 1), NARROW)


def test_a_model_in_floats_has_no_region():
    with pytest.raises(UsageError, match="the card takes no part of the model"):
        regions_of(cifar())


def test_slow_machines_are_not_tuned(network, monkeypatch):
    tuned = []
    tune_layer = configurations.tune_layer
    monkeypatch.setattr(
        configurations,
        "tune_layer",
        lambda layer, config, *more: tuned.append(config) or tune_layer(layer, config, *more),
    )
    logs = {**NARROW, "LOG_BLOCK": (2, 4), "LOG_INP_BUFF": (5,)}
    search_configurations(regions_of(network), Budget(), logs, trials=1)
    assert {config.block_in for config in tuned} == {16}


REVERSED = """
from dlc_backend_vta import decision
from dlc_backend_vta.search import candidates

decision.candidates = lambda layer, config: candidates(layer, config)[::-6]
"""
"""Four schedules, the slowest first, so that a tuner has something to find."""
COMPILE = """
import sys
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.plugin.registry import registry
from dlc_core.testing.networks import mlp

image = np.load(sys.argv[1])
network = dlc.quantize(mlp(), calibration=[image], target="reference -level=tir")
exe = dlc.compile(network, targets=["vta", "reference -level=tir"])
(costs, outputs) = registry().measures["vta"].costs(exe, [image], 1)
print(int(costs[0]))
print("".join(kernel.origin for kernel in exe.explain().kernels))
"""


def test_tuned_tilings_are_recorded_and_used_by_other_processes(tmp_path, monkeypatch):
    module = mlp()
    x = feed(module)
    network = dlc.quantize(module, calibration=[x], target=HOST)
    np.save(tmp_path / "x.npy", x)
    monkeypatch.setattr(decision, "candidates", lambda layer, config: candidates(layer, config)[::-6])
    measure, records = registry().measures["vta"], tmp_path / "records.db"
    monkeypatch.setenv("DLC_RECORDS_URL", str(records))
    expected = dlc.compile(network, HOST)(x)

    def cycles():
        exe = dlc.compile(network, targets=["vta", HOST])
        (found,), (outputs,) = measure.costs(exe, [x], 1)
        np.testing.assert_array_equal(outputs, expected)
        return int(found), exe.explain()

    untuned, _ = cycles()
    result = dlc.tune(network, targets=["vta", HOST], inputs=[x], seconds=60, trials=1)
    assert result.decided
    assert result.ratio < 1
    assert not result.left_out
    tuned, explained = cycles()
    assert tuned < untuned
    assert tuned / untuned == pytest.approx(result.ratio)
    by_tuner = [kernel for kernel in explained.kernels if any(one.is_tuned for one in kernel.choices)]
    assert by_tuner
    for kernel in by_tuner:
        count = sum(one.is_tuned for one in kernel.choices)
        assert kernel.origin == f"{count} of {len(kernel.choices)} choices are a tuner's (vta.tiling)"

    command = [sys.executable, "-c", REVERSED + COMPILE, str(tmp_path / "x.npy")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    count, origin = ran.stdout.split("\n")[:2]
    assert int(count) == tuned
    assert "choices are a tuner's" in origin
    monkeypatch.setenv("DLC_RECORDS", "off")
    assert cycles()[0] == untuned


def test_the_choice_of_the_cost_model_stays_unless_another_is_faster(tmp_path, monkeypatch):
    monkeypatch.setattr(decision, "candidates", lambda layer, config: candidates(layer, config)[:3])
    module = mlp()
    x = feed(module)
    network = dlc.quantize(module, calibration=[x], target=HOST)
    result = dlc.tune(
        network,
        targets=["vta", HOST],
        inputs=[x],
        seconds=60,
        trials=1,
        database=str(tmp_path / "records.db"),
    )
    assert result.model_trials > 0
    assert not result.withdrawn
    assert all(each.ratios.ratio < 1 for each in result.decided)


def test_a_tiling_can_be_forced(network, image):
    def region_of(**config):
        exe = dlc.compile(network, targets=["vta", HOST], config=config)
        return next(kernel for kernel in exe.explain().kernels if kernel.target == "vta"), exe(image)

    free, expected = region_of()
    first = free.choices[0]
    other = next(one for one in first.candidates if one.value != first.value)
    forced, found = region_of(decisions=f"vta.tiling={other.value}")
    assert forced.choices[0].value == other.value
    assert not forced.origin
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(UsageError, match="9x9x9x9-single is no candidate"):
        region_of(decisions="vta.tiling=9x9x9x9-single")


def test_layers_that_differ_in_numbers_only_share_a_decision():
    layer = layer_of("conv")
    steps = tuple(Step(Op.ADD, first=number) for number in (1, 2))
    one, two = (replace(layer, name=str(step.first), steps=(step,)) for step in steps)
    assert decision.subject(one) == decision.subject(two)
    assert decision.subject(one) != decision.subject(layer)
    assert decision.subject(layer) != decision.subject(replace(layer, stride=(2, 2)))
