"""Heuristics of passes do not change results: each is halved and doubled."""

from __future__ import annotations

import pytest

import dlc_core as dlc
from dlc_core.heuristics import declared
from dlc_core.passes import PassContext
from dlc_core.passes.tir import HoistConditions, PartitionLoops, PromoteRegisters
from tests.passes.decision_networks import check_results, module_of
from tests.schedule.test_heuristics import family_of, scaled

pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

TARGET = "llvm -num-threads=2"
NETWORKS = {
    "fusion": ("chain", "block", "symbolic"),
    "layout": ("branches", "spread"),
    "constants": ("low_bits", "two_images"),
    "dots": ("quantized",),
    "weights": ("low_bits",),
    "phases": ("spread",),
    "stream_rows": ("streamed",),
    "memory": ("perceptron", "wide_and_narrow", "symbolic"),
    "control": ("borders", "large_windows"),
    "shuffles": ("borders", "spread"),
    "roofline": ("symbolic", "block"),
    "issue": ("block", "borders"),
}
"""For each family the networks whose passes use it; the first one is fast."""
CONFIG = {"streamed": {"stream_rows": 3}, "perceptron": {"decisions": "temporaries.memory=arena"}}
NUMBERS = [name for name in declared() if family_of(name) in NETWORKS]
QUICK = [name for index, name in enumerate(NUMBERS) if index % 3 == 0]
"""Heuristics of the fast tests; the slow tests try all."""


def check(network: str, name: str, factor: float) -> None:
    """Check the results of a network with a heuristic multiplied by a factor."""
    numbers = {name: scaled(declared()[name].default, factor)}
    config = {"heuristics": numbers, **CONFIG.get(network, {})}
    besides = [("loops", one()) for one in (HoistConditions, PartitionLoops, PromoteRegisters)]
    with PassContext(passes=besides):
        exe = dlc.compile(module_of(network), TARGET, config=config, cache=False)
    check_results(network, exe)


@pytest.mark.parametrize("name", QUICK)
def test_doubled_heuristics(name):
    check(NETWORKS[family_of(name)][0], name, 2)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize(
    ("name", "network"), [(name, network) for name in NUMBERS for network in NETWORKS[family_of(name)]]
)
def test_halved_and_doubled_heuristics(name, network, factor):
    check(network, name, factor)
