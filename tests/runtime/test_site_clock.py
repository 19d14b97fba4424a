"""Times of the kernels of a model in repeated calls on fixed memory."""

from __future__ import annotations

import numpy as np

import dlc_core as dlc
from dlc_core.runtime.measure.site_clock import SiteClock
from dlc_core.testing.networks import cifar, feed


def test_each_call_site_has_its_time() -> None:
    exe = dlc.compile(cifar(), "llvm -num-threads=1")
    clock = SiteClock.of(exe, exe.bind([feed(cifar())]).inputs)
    assert clock is not None
    rows = exe.profile([feed(cifar())], runs=1).rows
    assert sorted(clock.kernels) == sorted(row.kernel for row in rows)
    least, mean = clock.seconds(1, repeat=20), clock.seconds(20, repeat=1)
    assert least.shape == mean.shape == (len(rows),)
    assert (mean > 0).any()
    assert least.sum() <= 2 * mean.sum()


def test_models_that_time_no_kernels_have_no_clock() -> None:
    exe = dlc.compile(cifar(), "reference")
    assert SiteClock.of(exe, [np.asarray(feed(cifar()))]) is None
