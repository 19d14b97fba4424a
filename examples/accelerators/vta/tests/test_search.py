"""The search chooses the schedule that is best by simulation."""

from __future__ import annotations

import pytest
from dlc_backend_vta.config import Config
from dlc_backend_vta.layers import matmul
from dlc_backend_vta.search import cases, choose, compare, convolution, main, table
from dlc_backend_vta.tiling import Plan, Tiling, tilings

from dlc_core.diag import UnsupportedError

SMALL = Config(inp_kb=2, wgt_kb=8, acc_kb=4, uop_kb=4, bus_bytes=8)


def check(row):
    assert row.behind <= 0.05, f"{row.layer.name}: {row.behind:.1%} behind {row.best.tiling}"
    assert row.speedup >= 2.0
    assert abs(row.predicted / row.cycles - 1) <= 0.05
    assert row.count > 20


OTHER = Config(batch=2, block_in=8, block_out=8, latency=100)


@pytest.mark.parametrize("config", [Config(), SMALL, pytest.param(OTHER, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["matmul", "conv"])
def test_small_layers(name, config):
    layer = (
        matmul(name, 32, 48, 96, config) if name == "matmul" else convolution(name, 24, 8, 40, 3, 1, config)
    )
    check(compare(layer, config))


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "config"), cases())
def test_the_table(layer, config):
    check(compare(layer, config))


def test_the_choice_depends_on_the_memories():
    chosen = {str(choose(convolution("c", 64, 28, 64, 3, 1, c), c).tiling) for c in (Config(), SMALL)}
    assert len(chosen) == 2


def test_schedules_that_do_not_fit_are_not_in_the_space():
    layer = convolution("c", 64, 28, 64, 3, 1, SMALL)
    plans = list(tilings(layer, SMALL))
    assert plans
    assert all(plan.problem() is None for plan in plans)
    assert "inputs" in Plan(layer, Tiling(28, 28, 1, 1), SMALL).problem()


def test_a_layer_without_a_schedule_is_an_error():
    config = Config(inp_kb=1)
    with pytest.raises(UnsupportedError, match="entries of micro-operations"):
        choose(convolution("large", 16, 40, 16, 31, 1, Config(uop_kb=1)), Config(uop_kb=1))
    assert choose(matmul("m", 4, 4, 4, config), config).problem() is None


def test_the_command_prints(capsys):
    main(["--only", "16x1000"])
    assert capsys.readouterr().out.count("cycles") == len([c for c in cases() if "16x1000" in c[0].name])
    row = compare(matmul("tiny", 8, 16, 16, Config()), Config())
    assert table([row]).count("\n") == 2
    assert "| tiny | 1x16x16, 32+256+128 KiB, 16 B, 32 |" in table([row])
