"""Operators of dlc in torch: eager, torch.export, torch.compile, gradients."""

import numpy as np
import pytest
import torch

import dlc_core as dlc
from dlc_core.diag import UsageError
from dlc_core.graph.node import constant
from dlc_core.op import std
from dlc_core.op.declare import Attr, Sample, Tensor, op

GATE = op(
    "tested_gate",
    "x times the sigmoid of y, times a factor",
    ["x", "y"],
    [Attr("factor", "float", 1.0)],
    kind="elementwise",
    compose=lambda x, y, *, factor: std.mul(std.mul(x, std.sigmoid(y)), constant(np.float32(factor))),
    samples=(Sample((Tensor((3,)), Tensor((3,)))),),
)


def setup_context(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.factor = keyword_only_inputs["factor"]


def backward(ctx, grad):
    x, y = ctx.saved_tensors
    s = torch.sigmoid(y)
    return grad * s * ctx.factor, grad * x * s * (1 - s) * ctx.factor


@pytest.fixture(scope="module")
def gate():
    return dlc.torch.as_torch_op(GATE, backward=backward, setup_context=setup_context)


def expected(x, y, factor=1.0):
    return x * torch.sigmoid(y) * factor


def test_the_operator_passes_the_checks_of_torch(gate):
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(gate(x, y, factor=2.0), expected(x, y, 2.0))
    torch.library.opcheck(gate.default, (x, y), {"factor": 2.0})


def test_the_operator_stays_whole(gate):
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return gate(x + 1, y, factor=3.0) * 2

    x, y = torch.randn(5, 4), torch.randn(5, 4)
    batch = torch.export.Dim("batch")
    exe = dlc.compile(Model(), example_inputs=(x, y), dynamic_shapes=({0: batch}, {0: batch}))
    np.testing.assert_allclose(exe(x, y), expected(x + 1, y, 3.0) * 2, rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
    dlc.torch.reset()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.compile(Model(), backend="dlc")(a, y).sum().backward()
    (expected(b + 1, y, 3.0) * 2).sum().backward()
    torch.testing.assert_close(a.grad, b.grad)
    assert not dlc.torch.report().fallbacks


def test_variadic_operators_are_refused():
    with pytest.raises(UsageError, match="any number of tensors"):
        dlc.torch.as_torch_op(std.BY_NAME["concat"])
