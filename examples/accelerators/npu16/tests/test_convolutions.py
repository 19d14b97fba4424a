"""Convolutions on the chip: right numbers, and cycles near the bound of the array."""

from __future__ import annotations

import json

import numpy as np
import pytest
from dlc_backend_npu16.report import LIMIT, Conv, cycles_of, main, resnet50

import dlc_core as dlc
from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.plugin.registry import registry
from dlc_core.target import Artifact
from dlc_core.testing.networks import cifar

QUICK = (Conv(3, 224, 64, 7, 2), Conv(256, 14, 256, 3, 1), Conv(512, 7, 2048, 1, 1, adds=True))
"""The first layer, a common one, and one that is limited by its weights."""


def check(conv: Conv, dtype: str = "float32") -> float:
    """Compare with the reference; return the cycles as a multiple of the bound."""
    exe = conv.compiled("npu16", dtype)
    placed = exe.about["placed"]
    assert {region["target"] for region in placed["regions"]} == {"npu16"}
    assert not placed["why_not"]
    given = conv.inputs_of(dtype)
    device = registry().devices["npu16"]
    before = device.cycles
    found = exe(*given)
    cycles = device.cycles - before
    expected = dlc.compile(conv.module(dtype), "llvm" if "llvm" in dlc.targets() else "reference")(*given)
    if dtype == "int8":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    return cycles / conv.bound


@pytest.mark.parametrize("conv", QUICK, ids=str)
def test_convolutions_reach_the_bound(conv: Conv) -> None:
    assert 1.0 <= check(conv) <= LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("conv", list(resnet50()), ids=str)
def test_all_convolutions_of_resnet50_reach_the_bound(conv: Conv) -> None:
    assert 1.0 <= check(conv) <= LIMIT


def test_bytes_are_summed_exactly() -> None:
    assert check(Conv(64, 14, 96, 3, 1), "int8") <= LIMIT


def test_the_report_prints_a_row_for_each_convolution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "3x3/1 256x14x14"]) == 0
    header, _, row, total = capsys.readouterr().out.splitlines()
    assert header == "| convolution | cycles | bound | ratio |"
    assert row.startswith("| 3x3/1 256x14x14 to 256 |")
    assert "worst" in total


@pytest.mark.parametrize("options", ["-spad-kb=32 -acc-kb=16", "-bus-bytes=8", "-latency=500 -spad-kb=512"])
def test_other_machines_compute_the_same_in_other_times(options: str) -> None:
    conv = Conv(64, 14, 64, 3, 1)
    given = conv.inputs_of()
    found = conv.compiled(f"npu16 {options}")(*given)
    np.testing.assert_allclose(found, conv.compiled()(*given), rtol=1e-4, atol=1e-4)
    assert cycles_of(conv, f"npu16 {options}", "float32") != cycles_of(conv, "npu16", "float32")


def test_a_network_is_divided_between_the_chip_and_the_host() -> None:
    exe = dlc.compile(cifar(), "npu16")
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(exe(image), dlc.compile(cifar(), "reference")(image), rtol=1e-4, atol=1e-6)
    placed = exe.about["placed"]
    on_chip = [op for region in placed["regions"] for op in region["ops"]]
    assert on_chip.count("conv") == 3
    assert any("elementwise" in reason for node in placed["why_not"] for reason in node["reasons"])


def test_a_scratchpad_that_is_too_small_is_refused_with_its_bytes() -> None:
    conv = Conv(64, 14, 64, 3, 1)
    exe = conv.compiled("npu16 -spad-kb=1 -acc-kb=1 -bus-bytes=8")
    reasons = " ".join(reason for node in exe.about["placed"]["why_not"] for reason in node["reasons"])
    assert "no tile fits" in reasons
    assert "of spad, it has 1,024" in reasons


def test_streams_with_wrong_tokens_are_refused() -> None:
    (region,) = Conv(16, 8, 16, 3, 1).compiled().regions.values()
    good, device = region.artifact, registry().devices["npu16"]
    device.load(good)
    streams = json.loads(good.code)
    for stream in streams.values():
        for command in stream["commands"]:
            command[-2] = command[-1] = []
    broken = Artifact(good.format, json.dumps(streams).encode(), good.target, good.symbols)
    with pytest.raises(RuntimeFailure, match=r"race: .* is not ordered after"):
        device.load(broken)
    with pytest.raises(ArtifactError, match="no streams"):
        device.load(Artifact(good.format, b"[1, 2", good.target, good.symbols))


def test_explain_predicts_the_cycles_of_the_device() -> None:
    """The predictions that placement by cost compares, and the counter of the device."""
    exe = dlc.compile(cifar(), "npu16")
    share = exe.explain().shares()["npu16"]
    regions = exe.regions.values()
    counted = sum(region.device.load(region.artifact).entry("main").cycles for region in regions)
    assert share.cycles == pytest.approx(counted, rel=0.25)
    assert share.multiply_adds
    assert share.shares["multiply_adds"] == 1.0
