"""The numbers of the chip in explanations and profiles."""

from __future__ import annotations

import numpy as np

import dlc_core as dlc
from dlc_core.testing.networks import cifar


def test_the_cost_model_knows_the_array_and_profiles_count_its_cycles():
    exe = dlc.compile(cifar(), targets=["npu16", "reference"], cache=False)
    explanation = exe.explain()
    assert explanation.share("npu16") == 1
    report = exe.profile([np.zeros((1, 3, 32, 32), np.float32)], runs=1, warmup=0)
    rows = [row for row in report if row.device == "npu16"]
    assert {row.measured for row in rows} == {"counter"}
    assert sum(row.multiply_adds for row in rows) == 2_216_960  # those of the whole network
    for row in rows:
        assert 0.1 < row.attained < 1  # no kernel is faster than the array and the DMA allow
        assert 0.4 < row.expected_cycles / row.cycles < 2
