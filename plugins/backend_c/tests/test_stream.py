"""Depth-first tiling of the first layers: less memory, the same bits, accepted by compilers and
sanitizers.
"""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.testing import networks

CC = shutil.which("gcc") or shutil.which("clang")


def small():
    """Two convolutions and a pooling over an image, whose largest values are near the input."""
    net = (
        networks.Net((1, 3, 24, 24))
        .conv(16, 3)
        .conv(8, 3, stride=2)
        .op("max_pool", kernel=(2, 2), strides=(2, 2))
    )
    return net.op("reduce_mean", axes=(2, 3)).dense(8, 4).module()


def memory(exe):
    return int(exe.signature.arena_size.value)


@pytest.mark.parametrize(("options", "rows"), [("-mcpu=cortex-m0 -march=native", 3), ("-vector-bits=128", 2)])
def test_streamed_rows_give_the_same_bits(options, rows):
    module = small()
    x = networks.feed(module)
    unstreamed = dlc.compile(module, f"c {options}", cache=False)
    bands = dlc.compile(module, f"c {options} -stream-rows={rows}", cache=False)
    assert memory(bands) < memory(unstreamed) * 2 // 3
    np.testing.assert_array_equal(bands(x), unstreamed(x))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_memory_grows_with_the_bands(rows):
    module = networks.cifar()
    unstreamed = dlc.compile(module, "c -mcpu=cortex-m4", cache=False)
    bands = dlc.compile(module, f"c -mcpu=cortex-m4 -stream-rows={rows}", cache=False)
    assert memory(bands) <= memory(unstreamed) * (2 + rows) // 8


def test_the_setting_equals_the_target_option():
    module = networks.cifar()
    by_setting = dlc.compile(module, "c -mcpu=cortex-m4", config={"stream_rows": 1}, cache=False)
    by_option = dlc.compile(module, "c -mcpu=cortex-m4 -stream-rows=1", cache=False)
    assert memory(by_setting) == memory(by_option) <= 32 << 10


def test_integers():
    module = small()
    x = networks.feed(module)
    module = dlc.quantize(module, [{"x": networks.feed(module, seed)} for seed in range(3)])
    unstreamed = dlc.compile(module, "c", cache=False)
    bands = dlc.compile(module, "c -stream-rows=2", cache=False)
    assert memory(bands) < memory(unstreamed)
    np.testing.assert_array_equal(bands(x), unstreamed(x))


@pytest.mark.skipif(CC is None, reason="there is no gcc and no clang")
def test_sanitizers_find_nothing(tmp_path):
    module = small()
    x = networks.feed(module)
    exe = dlc.compile(module, "c -stream-rows=2", cache=False)
    exe.export(tmp_path / "net")
    sanitized = (
        "-std=c99 -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -o program main.c net.c -lm"
    )
    subprocess.run([CC, *sanitized.split()], cwd=tmp_path / "net", check=True)
    done = subprocess.run(
        ["./program"], cwd=tmp_path / "net", input=x.tobytes(), capture_output=True, check=True
    )
    expected = dlc.compile(module, "reference", cache=False)(x)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), expected.ravel(), 1e-4, 1e-5)


@pytest.mark.slow
def test_mobilenet_fits_a_quarter():
    module = networks.mobilenet()
    unstreamed = dlc.compile(module, "c -mcpu=cortex-m4", cache=False)
    bands = dlc.compile(module, "c -mcpu=cortex-m4 -stream-rows=2", cache=False)
    assert memory(bands) * 3 < memory(unstreamed)
