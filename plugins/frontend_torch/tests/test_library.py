"""Operators of dlc in torch: eager, torch.export, torch.compile, gradients."""

import numpy as np
import pytest
import torch

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError
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


x, rows = torch.randn(2, 3, 4), torch.randn(5, 6)
CHECKED = {
    "leaky_relu": (1, (x,), {"alpha": 0.2}),
    "one_hot": (1, (torch.tensor([2, 0]),), {"depth": 3}),
    "reshape": (1, (x,), {"shape": [6, 4]}),
    "layer_norm": (1, (rows, None, torch.randn(6)), {"eps": 1e-3}),
    "attention": (1, (x[None], x[None], x[None]), {"causal": True, "scale": 0.5}),
    "split": (2, (rows,), {"sizes": [2, 4], "axis": 1}),
    "matmul": (1, (rows, rows.T.contiguous()), {"out_dtype": torch.float64}),
}  # fmt: skip
"""By name of an operator of dlc: the number of its results, tensors, and attributes."""


@pytest.mark.parametrize("name", CHECKED)
def test_operators_of_dlc_pass_the_checks_of_torch(name):
    results, tensors, attrs = CHECKED[name]
    made = dlc.torch.as_torch_op(std.BY_NAME[name], results=results, namespace="dlc_checked")
    torch.library.opcheck(made.default, tensors, attrs)


def test_an_operator_without_backward_has_no_silent_gradient():
    relu = dlc.torch.as_torch_op(std.BY_NAME["relu"], namespace="dlc_forward")
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        torch.testing.assert_close(relu(x), x.relu())
    made = relu(x)
    torch.testing.assert_close(made, x.relu())
    with pytest.raises(UnsupportedError, match="dlc_forward::relu has no gradient"):
        made.sum().backward()
    assert x.grad is None
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: relu(x) * 2, backend="dlc")
    with pytest.raises(Exception, match="dlc_forward::relu has no gradient"):
        compiled(x).sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), x.relu() * 2)
    with pytest.raises(UsageError, match="no backward"):
        dlc.torch.as_torch_op(GATE, namespace="dlc_forward", setup_context=setup_context)


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
