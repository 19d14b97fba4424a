"""Machines: legal ones are made, and errors name the option of others."""

from __future__ import annotations

import pytest
from dlc_backend_vta.config import ACC, INP, WGT, Config

from dlc_core.diag import TargetError


def test_entries_follow_from_sizes():
    config = Config(batch=2, block_in=8, block_out=4, inp_kb=1, wgt_kb=2, acc_kb=4)
    assert [config.entries[m] for m in (INP, WGT, ACC)] == [1024 // 16, 2048 // 32, 4096 // 32]
    assert config.alu_beat == 1
    assert Config(alu_lanes=5).alu_beat == 4


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"block_in": 257},
        {"block_out": -1},
        {"inp_kb": 0},
        {"wgt_kb": 1 << 20},
        {"acc_kb": 1, "batch": 64},
        {"uop_kb": 0},
        {"alu_lanes": 0},
        {"bus_bytes": 0},
        {"latency": -1},
        {"queue": 1},
        {"dram_mb": 0},
    ],
)
def test_illegal_options_are_named(options):
    name = next(iter(options)).replace("_", "-")
    with pytest.raises(TargetError, match=f"-{name}="):
        Config(**options)
