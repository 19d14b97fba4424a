"""Pools and their gradients, against eager."""

import pytest
import torch
from torch.nn import functional as fn

torch.manual_seed(0)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "dilation": (2, 1), "padding": 1},
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
        {"kernel_size": 5, "stride": 1, "padding": 2},  # more elements than are compared one by one
    ],
)
@pytest.mark.parametrize("values", ["random", "equal", "infinite", "nan"])
def test_max_pool_with_indices(same_as_eager, options, values):
    x = torch.randn(2, 3, 8, 9)
    if values == "equal":
        x = torch.randint(0, 2, x.shape).float()
    elif values == "infinite":
        x[0] = -torch.inf
    elif values == "nan":
        x[torch.rand(x.shape) < 0.2] = torch.nan
    same_as_eager(lambda x: fn.max_pool2d(x, return_indices=True, **options), x)


def test_max_pool_of_other_forms(same_as_eager):
    same_as_eager(lambda x: fn.max_pool3d(x, 2, return_indices=True), torch.randn(1, 2, 4, 5, 4))
    same_as_eager(lambda x: fn.max_pool2d(x, 2, return_indices=True), torch.randn(3, 6, 6))
    same_as_eager(lambda x: fn.max_pool2d(x, 2), torch.randint(-9, 9, (1, 2, 4, 4)), gradients=False)
    same_as_eager(lambda x: fn.adaptive_max_pool2d(x, (3, 5), return_indices=True), torch.randn(2, 3, 7, 6))
    same_as_eager(lambda x: fn.adaptive_max_pool2d(x, 1, return_indices=True), torch.randn(2, 3, 7, 6))


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True},
        {"kernel_size": (3, 2), "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": 2, "divisor_override": 3},
        {"kernel_size": 3, "stride": 2, "divisor_override": 5, "ceil_mode": True},
    ],
)
def test_avg_pool(same_as_eager, options):
    same_as_eager(lambda x: fn.avg_pool2d(x, **options), torch.randn(2, 3, 8, 7))


def test_avg_pool_reads_no_infinite_neighbours(same_as_eager):
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 0, 0] = torch.inf
    same_as_eager(lambda x: fn.avg_pool2d(x, 2), x)
    same_as_eager(lambda x: fn.adaptive_avg_pool2d(x, (4, 4)), x)


@pytest.mark.parametrize("size", [(1, 1), (4, 3), (3, 5), (9, 14)])
def test_adaptive_avg_pool(same_as_eager, size):
    same_as_eager(lambda x: fn.adaptive_avg_pool2d(x, size), torch.randn(2, 3, 8, 7))
