"""Normalizations and their gradients, against eager."""

import pytest
import torch
from torch.nn import functional as fn

torch.manual_seed(0)


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (6, 3), (2, 3, 7)])
def test_batch_norm_in_training(same_as_eager, shape):
    start = torch.randn(3), torch.rand(3)

    def f(x, w, b):
        mean, var = (each.clone() for each in start)
        return fn.batch_norm(x, mean, var, w, b, training=True, momentum=0.3), mean, var

    same_as_eager(f, torch.randn(shape), torch.randn(3), torch.randn(3), rtol=1e-4, atol=1e-4)


def test_batch_norm_of_narrow_floats(same_as_eager):
    start = torch.randn(3).bfloat16(), torch.rand(3).bfloat16()

    def f(x):
        mean, var = (each.clone() for each in start)
        return fn.batch_norm(x, mean, var, training=True), mean, var

    same_as_eager(f, torch.randn(4, 3, 5).bfloat16(), gradients=False, rtol=2e-2, atol=2e-2)


def test_batch_norm_forms(same_as_eager):
    x, mean, var = torch.randn(4, 3, 5), torch.randn(3), torch.rand(3) + 0.5
    same_as_eager(lambda x: fn.batch_norm(x, mean, var), x)
    same_as_eager(lambda x, w, b: fn.batch_norm(x, mean, var, w, b), x, torch.randn(3), torch.randn(3))
    same_as_eager(lambda x: fn.batch_norm(x, None, None, training=True), x, rtol=1e-4, atol=1e-4)
    same_as_eager(lambda x: fn.instance_norm(x), x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_layer_norm(same_as_eager, dtype):
    x, w, b = (torch.randn(shape, dtype=dtype) for shape in ((3, 4, 6), (4, 6), (4, 6)))
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 5e-2}[dtype]
    options = {"rtol": tolerance, "atol": tolerance}
    same_as_eager(lambda x, w, b: fn.layer_norm(x, (4, 6), w, b), x, w, b, **options)
    same_as_eager(lambda x: fn.layer_norm(x, (6,)), x, **options)
    same_as_eager(lambda x, b: fn.layer_norm(x, (4, 6), None, b), x, b, gradients=False, **options)


def test_group_norm(same_as_eager):
    x, w, b = torch.randn(2, 6, 4, 3), torch.randn(6), torch.randn(6)
    same_as_eager(lambda x, w, b: fn.group_norm(x, 3, w, b), x, w, b, rtol=1e-4, atol=1e-4)
    same_as_eager(lambda x: fn.group_norm(x, 2), x, rtol=1e-4, atol=1e-4)
