"""Custom operators of torch by importers."""

import numpy as np
import pytest
import torch
from dlc_frontend_torch.custom import operator

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.op import std


@torch.library.custom_op("dlc_tests::swish", mutates_args=())
def swish_op(x: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    return x * torch.sigmoid(x * beta)


@swish_op.register_fake
def _(x, beta=1.0):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def forward(self, x):
        return swish_op(x, 2.0) + 1


@operator("dlc_tests::swish")
def swish(c, x, beta=1.0):
    return std.mul(x, std.sigmoid(std.mul(x, c.const(beta, x.dtype))))


def test_an_importer_is_used():
    x = torch.randn(3, 4)
    exe = dlc.compile(Model(), example_inputs=(x,), importers=[swish])
    np.testing.assert_allclose(exe(x), Model()(x), rtol=1e-5, atol=1e-6)


def test_without_it_the_error_names_operator_and_line():
    with pytest.raises(UnsupportedError, match=r"dlc_tests\.swish\.default has no converter") as caught:
        dlc.compile(Model(), example_inputs=(torch.randn(3, 4),))
    assert "test_custom.py:25" in str(caught.value)


def test_wrong_names_and_importers_are_refused():
    with pytest.raises(UsageError, match="names no operator"):
        operator("swish")
    with pytest.raises(UsageError, match="imports no operator of torch"):
        dlc.compile(Model(), example_inputs=(torch.randn(3, 4),), importers=["swish"])
