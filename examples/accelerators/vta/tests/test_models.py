"""Models for the targets vta and a host: the card runs operations on bytes, and every bit is right."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph import Function, Node, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import registry

HOST = "reference -level=tir"
IMAGES = [np.random.default_rng(seed).standard_normal((1, 3, 8, 8), np.float32) for seed in range(2)]


def floats() -> IRModule:
    """Three convolutions, one of them parallel to a branch, two poolings and a product, in floats."""
    rng = np.random.default_rng(9)

    def weights(*shape: int) -> Node:
        return constant(rng.standard_normal(shape).astype(np.float32) * 0.3)

    x = param("x", tensor_type((1, 3, 8, 8)))
    pads = (1, 1, 1, 1)
    first = std.relu(std.conv(x, weights(10, 3, 3, 3), weights(10), padding=pads))
    pooled = std.max_pool(first, kernel=(2, 2), strides=(2, 2))
    second = std.relu(std.conv(pooled, weights(18, 10, 3, 3), weights(18), padding=pads))
    third = std.relu(std.conv(second, weights(12, 18, 3, 3), padding=pads))
    flat = std.reshape(std.max_pool(third, kernel=(2, 2), strides=(2, 2)), shape=(1, 48))
    scores = std.add(std.matmul(flat, weights(48, 5)), weights(5))
    return IRModule({"main": Function("main", (x,), std.softmax(scores, axis=-1))})


@pytest.fixture(scope="module", params=["uint8", pytest.param("int8", marks=pytest.mark.slow)])
def network(request):
    return dlc.quantize(floats(), IMAGES[:2], activations=request.param, target=HOST)


def placed(exe):
    return exe.about["placed"]


@pytest.mark.parametrize("arithmetic", ["integer", "fixed"])
def test_a_quantized_network_is_equal_to_its_reference(network, arithmetic):
    config = {"quantized": arithmetic}
    exe = dlc.compile(network, targets=["vta", HOST], config=config)
    expected = dlc.compile(network, HOST, config=config)
    device = registry().devices["vta"]
    before = device.cycles
    for image in IMAGES:
        np.testing.assert_array_equal(exe(image), expected(image))
    print(f"{(device.cycles - before) // len(IMAGES)} cycles an image")
    assert device.cycles > before
    (region,) = placed(exe)["regions"]
    assert region["target"] == "vta"
    assert region["ops"].count("conv") == 3
    assert "matmul" in region["ops"]
    left = {each["op"] for each in placed(exe)["why_not"]}
    assert {"quantize", "dequantize", "softmax"} <= left


def test_machines_of_any_shape(network):
    expected = dlc.compile(network, HOST)(IMAGES[0])
    for options in (
        "-batch=2 -block-in=8 -block-out=4 -inp-kb=2 -wgt-kb=4 -acc-kb=4",
        "-block-in=32 -bus-bytes=64",
    ):
        exe = dlc.compile(network, targets=[f"vta {options}", HOST])
        np.testing.assert_array_equal(exe(IMAGES[0]), expected)


def test_the_target_finds_a_host(network):
    exe = dlc.compile(network, "vta")
    np.testing.assert_allclose(exe(IMAGES[0]), dlc.compile(network, HOST)(IMAGES[0]), 1e-6, 1e-6)


def test_profiles_count_the_cycles_of_the_card(network):
    exe = dlc.compile(network, targets=["vta", HOST], cache=False)
    single = dlc.compile(network, HOST, cache=False).explain().totals()["multiply_adds"]
    explanation = exe.explain()
    assert explanation.totals()["multiply_adds"] == single
    assert explanation.share("vta") == 1  # all products are on the card
    report = exe.profile([IMAGES[0]], runs=2)
    (row,) = [each for each in report if each.target == "vta"]
    cycles = exe.regions[row.segment].device.report.cycles
    assert (row.measured, row.cycles, row.multiply_adds) == ("counter", cycles, single)
    assert row.milliseconds == pytest.approx(cycles / 3e8 * 1e3)


def test_saved_models_open_again(network, tmp_path):
    exe = dlc.compile(network, targets=["vta", HOST])
    exe.save(tmp_path / "model.dlc")
    again = dlc.open(tmp_path / "model.dlc")
    np.testing.assert_array_equal(again(IMAGES[1]), exe(IMAGES[1]))


def test_models_of_floats_stay_on_the_host_with_the_reasons():
    exe = dlc.compile(floats(), targets=["vta", HOST])
    assert not placed(exe)["regions"]
    reasons = {each["op"]: each["reasons"] for each in placed(exe)["why_not"]}
    assert reasons["conv"] == ["conv: products of float32 and float32"]


def test_residual_blocks_are_one_region_in_fixed_arithmetic():
    rng = np.random.default_rng(0)
    x = param("x", tensor_type((1, 8, 8, 8)))
    weights = [constant(rng.standard_normal((8, 8, 3, 3)).astype(np.float32) * 0.2) for _ in range(2)]
    pads = (1, 1, 1, 1)
    first = std.relu(std.conv(x, weights[0], padding=pads))
    body = std.relu(std.add(std.conv(first, weights[1], padding=pads), first))
    last = std.conv(body, constant(rng.standard_normal((4, 8, 1, 1)).astype(np.float32)))
    module = IRModule({"main": Function("main", (x,), last)})
    image = rng.standard_normal((1, 8, 8, 8)).astype(np.float32)
    small = dlc.quantize(module, [image], target=HOST)
    config = {"quantized": "fixed"}
    exe = dlc.compile(small, targets=["vta", HOST], config=config)
    np.testing.assert_array_equal(exe(image), dlc.compile(small, HOST, config=config)(image))
    (region,) = placed(exe)["regions"]
    assert region["ops"].count("conv") == 3


def test_regions_that_do_not_fit_the_card_stay_on_the_host():
    x = param("x", tensor_type((1024, 1024), "int8"))
    weights = constant(np.ones((1024, 8), np.int8))
    module = IRModule({"main": Function("main", (x,), std.matmul(x, weights, out_dtype="int32"))})
    exe = dlc.compile(module, targets=["vta -dram-mb=1", HOST])
    assert not placed(exe)["regions"]
    assert "its tensors have 1089536 bytes, the card 1048576" in str(placed(exe)["why_not"])


def test_small_sums_alone_stay_on_the_host():
    x = param("x", tensor_type((4, 4), "int32"))
    module = IRModule({"main": Function("main", (x,), std.add(x, constant(np.int32(3))))})
    exe = dlc.compile(module, targets=["vta", HOST])
    assert not placed(exe)["regions"]
    assert any("it has no product" in why for each in placed(exe)["why_not"] for why in each["reasons"])
