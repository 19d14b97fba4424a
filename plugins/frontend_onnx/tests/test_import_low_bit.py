"""Operators of com.microsoft with low-bit weights, compared with ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check_runtime, model_of, run

from dlc_core.diag import ModelError

pytest.importorskip("onnxruntime")
R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def u8(*shape):
    return R.integers(0, 256, shape).astype(np.uint8)


def product(bits, size=32, depth=64, columns=6):
    """The weights and scales of MatMulNBits, and its attributes."""
    blocks = -(-depth // size)
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": size}
    return [f(3, depth), u8(columns, blocks, size * bits // 8), f(columns, blocks)], attributes


def unpacked(data, bits):
    """The low-bit numbers of rows of bytes, low bits first."""
    digits = np.unpackbits(data.reshape(len(data), -1), axis=1, bitorder="little")
    return digits.reshape(len(data), -1, bits) @ (1 << np.arange(bits)).astype(np.float64)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_products(bits, zeros):
    inputs, attributes = product(bits)
    x, q, scale = inputs
    columns, blocks = scale.shape
    packed, floats = u8(columns, -(-blocks * bits // 8)), 3 + f(columns, blocks)
    points = {"none": None, "packed": packed, "floats": floats}[zeros]
    bias = f(columns)
    given = [*inputs, points, None, bias]
    below = {
        "none": np.full((columns, blocks), 1 << bits - 1),
        "packed": unpacked(packed, bits)[:, :blocks],
        "floats": floats,
    }[zeros]
    centred = unpacked(q, bits).reshape(columns, blocks, -1) - below[..., None]
    weights = (centred * scale[..., None]).reshape(columns, -1)
    model = model_of("MatMulNBits", given, fed=(0,), **attributes)
    np.testing.assert_allclose(run(*model)[0], x @ weights.T + bias, rtol=1e-5, atol=1e-3 * (1 << bits) / 16)
    if (bits, zeros) != (8, "floats"):  # ONNX Runtime has none
        # Some of its kernels add products of rounded numbers.
        check_runtime("MatMulNBits", given, fed=(0,), rtol=2e-2, atol=0.1, **attributes)


@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_rows_with_block_indices(zeros):
    (x, q, scale), attributes = product(4, 16)
    columns, blocks = scale.shape
    groups = R.integers(0, blocks, 64).astype(np.int32)
    packed, floats = u8(columns, blocks // 2), 3 + f(columns, blocks)
    numbers = np.stack([q & 15, q >> 4], -1).reshape(columns, 64).astype(np.float32)
    points = {
        "none": np.full((columns, blocks), 8.0, np.float32),
        "packed": np.stack([packed & 15, packed >> 4], -1).reshape(columns, blocks).astype(np.float32),
        "floats": floats,
    }[zeros]
    given = {"none": None, "packed": packed, "floats": floats}[zeros]
    model = model_of("MatMulNBits", [x, q, scale, given, groups], fed=(0,), **attributes)
    expected = x @ ((numbers - points[:, groups]) * scale[:, groups]).T
    np.testing.assert_allclose(run(*model)[0], expected, rtol=1e-4, atol=1e-3)


def test_too_few_rows_are_an_error():
    inputs, attributes = product(4, 16)
    model = model_of("MatMulNBits", [*inputs, None, np.zeros(5, np.int32)], fed=(0,), **attributes)
    with pytest.raises(ModelError, match="g_idx"):
        run(*model)


PLACES = np.array([[0, 3], [-1, 2]], np.int64)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_bytes_are_gathered(bits, zeros):
    rows, width, size = 5, 64, 16
    points = u8(rows, width // size * bits // 8) if zeros else None
    inputs = [u8(rows, width * bits // 8), PLACES, f(rows, width // size), points]
    attributes = {"bits": bits, "block_size": size, "gather_axis": 0, "quantize_axis": 1}
    check_runtime("GatherBlockQuantized", inputs, fed=(1,), rtol=1e-5, atol=1e-5, **attributes)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("gather", "along"), [(0, 1), (1, 0), (0, 2)])
def test_rows_of_four_bits_are_gathered(dtype, gather, along):
    shape = [5, 5, 5]
    shape[along] = 32
    counts = [2 if k == along else size for k, size in enumerate(shape)]
    draw = lambda *s: R.integers(0, 8, s).astype(dtype)  # noqa: E731
    inputs = [draw(*shape), PLACES, f(*counts), draw(*counts)]
    attributes = {"block_size": 16, "gather_axis": gather, "quantize_axis": along}
    check_runtime("GatherBlockQuantized", inputs, fed=(1,), rtol=1e-5, atol=1e-5, **attributes)


def test_out_of_range_rows_are_zeros():
    inputs = [u8(4, 16), np.array([[9, 1]], np.int64), f(4, 1), None]
    found, _ = check_runtime("GatherBlockQuantized", inputs, fed=(1,), block_size=16, bits=8)
    assert not found[0][0, 0].any()
