"""The card: a network, its own rule, errors."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_dpu.kind import KIND
from dlc_backend_dpu.rules import PadProduct

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import DlcError, RuntimeFailure
from dlc_core.passes import PassContext
from dlc_core.schedule.rules import Machine
from dlc_core.script import parse
from dlc_core.target import Description
from dlc_core.testing.networks import cifar


def whole_numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def product(rows=64, inner=32, columns=48):
    a, b = te.placeholder((rows, inner), name="a"), te.placeholder((inner, columns), name="b")
    k = te.reduce_axis(inner, "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    return [a, b, te.compute((rows, columns), lambda i, j: c[i, j] * 2.0, "d")]


@pytest.mark.parametrize("target", ["dpu", "dpu -check=true", "dpu -cores=2"])
def test_products_use_the_pad(target):
    exe = dlc.build(product(), target)
    a, b = whole_numbers(64, 32), whole_numbers(32, 48, seed=1)
    np.testing.assert_array_equal(exe(a, b), 2 * (a @ b))
    assert exe.explain().kernels[0].rule == "dpu.pad_product"
    text = exe.source("dpu")
    assert text.startswith("dpu_kernel void")
    assert text.count("dpu_pad dpu_f32") == 2
    assert text.count("dpu_join()") == 2


def test_the_rule_matches_only_this_card():
    other = Description(thread_axes=KIND.describe({"cores": 1}).thread_axes)
    assert not PadProduct().matches(te.create_prim_func(product()), Machine(other, 1))


def test_other_sizes_use_rules_of_the_core():
    exe = dlc.build(product(50, 30, 20), "dpu")
    a, b = whole_numbers(50, 30), whole_numbers(30, 20, seed=1)
    np.testing.assert_array_equal(exe(a, b), 2 * (a @ b))
    assert exe.explain().kernels[0].rule.startswith("gpu.")


def test_a_small_network_is_right():
    picture = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    exe = dlc.compile(cifar(), "dpu")
    np.testing.assert_allclose(exe(picture), dlc.compile(cifar(), "reference")(picture), 1e-4, 1e-6)
    assert exe.device.cycles > 0


def test_profiles_have_the_time_and_the_cycles_of_the_card():
    picture = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    exe = dlc.compile(cifar(), targets=["dpu", "reference"], place={"max_pool": "reference"}, cache=False)
    report = exe.profile([picture], runs=1, warmup=0)
    dpu = next(one for one in report.targets if one.target == "dpu")
    assert (dpu.multiply_adds, dpu.multiply_adds_share) == (2_216_960, 1)  # of the whole network
    assert dpu.cycles > 0
    assert {row.measured for row in report if row.device == "dpu"} == {"device"}
    assert {row.kernel for row in report if row.device == "host"} == {"max_pool"}
    assert {row.kernel for row in report.transfers} == {"host → dpu", "dpu → host"}


STRAY = """
@T.prim_func
def main(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
    for g in T.thread_binding(2, thread="block.x"):
        for t in T.thread_binding(32, thread="thread.x"):
            b[g * 32 + t] = a[g * 32 + t + 1]
"""


def test_the_simulation_reports_stray_reads():
    with PassContext(disabled=("prove_bounds",)):  # which reports it before the simulation does
        exe = dlc.build(parse(STRAY), "dpu -check=true")
    with pytest.raises(
        RuntimeFailure, match=r"thread \(31, 0, 0\) of group \(1, 0, 0\) reads 4 bytes outside"
    ):
        exe(np.ones(64, np.float32))


def test_missing_features_of_the_card_are_errors():
    with pytest.raises(DlcError, match="cores"):
        dlc.compile(cifar(), "dpu -cores=0")
    with pytest.raises(DlcError, match="256 at most"):
        dlc.build(parse(STRAY.replace("32, thread", "512, thread")), "dpu")
