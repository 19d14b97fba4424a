"""Tuning of kernels for microcontrollers: the cost is the cycles of an emulated board."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_c.boards import problem
from dlc_backend_c.boards.tuning import MEASURE

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import UnsupportedError

tuning = pytest.importorskip("dlc_tune.tuner", reason="the tuner is a plugin of its own")
records_of = pytest.importorskip("dlc_tune.records.database", reason="the tuner is a plugin of its own")
BOARD = "c -mcpu=cortex-m4"

pytestmark = pytest.mark.skipif(problem() is not None, reason=str(problem()))


def product():
    a, b = te.placeholder((12, 16), name="a"), te.placeholder((16, 24), name="b")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((12, 24), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    return te.create_prim_func([a, b], [c], "product")


def test_only_processors_of_boards_are_measured_so():
    assert MEASURE.takes(dlc.Target(BOARD))
    assert not MEASURE.takes(dlc.Target("c"))
    exe = dlc.build(product(), "c")
    with pytest.raises(UnsupportedError, match="no emulated board"):
        MEASURE.measure(exe, [np.ones((12, 16), np.float32), np.ones((16, 24), np.float32)], 1)


def test_a_kernel_is_tuned_by_cycles(tmp_path):
    database = tmp_path / "records.db"
    found = tuning.tune(product(), BOARD, trials=6, space="decisions", strategy="grid", database=database)
    assert found.trials == 6
    assert found.failed == 0
    assert found.default.best == int(found.default.best) > 1000
    with records_of.Database(database) as records:
        tried = records.find(outcome="ok")
    assert {each.unit for each in tried} == {"cycles"}
    assert len({each.seconds for each in tried}) > 1
    if found.chosen is not None:
        assert found.chosen.seconds < found.chosen.default_seconds
