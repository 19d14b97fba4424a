"""Convolutions and their gradients, against eager."""

import pytest
import torch
from torch.nn.functional import conv1d, conv2d, conv3d, conv_transpose2d, conv_transpose3d

torch.manual_seed(0)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"padding": 1}, (6, 4, 3, 3)),
        ({"stride": 2, "padding": (1, 0)}, (6, 4, 3, 2)),
        ({"stride": 2, "padding": 3}, (6, 4, 7, 7)),
        ({"stride": (2, 1), "dilation": (1, 2), "padding": (1, 2)}, (6, 4, 3, 3)),
        ({"groups": 2, "stride": 2, "padding": 1}, (6, 2, 3, 3)),
        ({"groups": 4, "padding": 1}, (8, 1, 3, 3)),
        ({"stride": 2}, (6, 4, 1, 1)),
    ],
)
def test_conv2d(same_as_eager, options, weights):
    x, w, b = torch.randn(2, 4, 9, 8), torch.randn(weights), torch.randn(weights[0])
    same_as_eager(lambda x, w, b: conv2d(x, w, b, **options), x, w, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2, "output_padding": 1, "padding": 1},
        {"stride": (3, 1), "padding": (0, 1), "groups": 2},
        {"dilation": 3, "stride": 2, "output_padding": 2},
    ],
)
def test_conv_transpose2d(same_as_eager, options):
    x, w = torch.randn(2, 4, 5, 6), torch.randn(4, 3, 3, 3)
    bias = torch.randn(3 * options.get("groups", 1))
    same_as_eager(lambda x, w, b: conv_transpose2d(x, w, b, **options), x, w, bias, rtol=1e-4, atol=1e-4)


def test_other_ranks(same_as_eager):
    same_as_eager(lambda x, w: conv1d(x, w, stride=2), torch.randn(2, 3, 11), torch.randn(4, 3, 4))
    same_as_eager(conv3d, torch.randn(1, 2, 4, 5, 4), torch.randn(3, 2, 2, 3, 2), rtol=1e-4, atol=1e-5)
    same_as_eager(
        lambda x, w: conv_transpose3d(x, w, stride=2),
        torch.randn(1, 2, 3, 2, 3), torch.randn(2, 3, 2, 2, 2), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_no_samples_and_no_batch(same_as_eager):
    w = torch.randn(4, 3, 3, 3)
    same_as_eager(conv2d, torch.randn(3, 6, 6), w, rtol=1e-4, atol=1e-4)
    same_as_eager(conv2d, torch.randn(0, 3, 6, 6), w)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(same_as_eager, dtype):
    x, w = torch.randn(2, 3, 6, 6, dtype=dtype), torch.randn(4, 3, 3, 3, dtype=dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 5e-2
    same_as_eager(lambda x, w: conv2d(x, w, padding=1), x, w, rtol=tolerance, atol=tolerance * 5)
