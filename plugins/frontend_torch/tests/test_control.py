"""Control flow: cond, while_loop, scan, map."""

import numpy as np
import pytest
import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import dlc_core as dlc


class Cond(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x - 1, (x,))


class While(torch.nn.Module):
    def forward(self, n, x):
        return while_loop(lambda n, x: n < 5, lambda n, x: (n + 1, x * 2 + n.to(x.dtype)), (n, x))


class Scan(torch.nn.Module):
    def forward(self, h, xs):
        w = h.cos() + 1
        return scan(lambda h, x: ((h + x) * w, h * x), h, xs)


class Map(torch.nn.Module):
    def forward(self, xs, y):
        return torch_map(lambda x, y: x.cos() + y, xs, y)


@pytest.mark.parametrize(
    ("model", "examples"),
    [
        (Cond(), [(torch.ones(2, 4),), (-torch.ones(2, 4),)]),
        (While(), [(torch.tensor(0), torch.ones(3)), (torch.tensor(7), torch.ones(3))]),
        (Scan(), [(torch.zeros(3), torch.rand(5, 3))]),
        (Map(), [(torch.rand(5, 3), torch.rand(3))]),
    ],
    ids=["cond", "while_loop", "scan", "map"],
)
def test_control_flow(model, examples):
    exe = dlc.compile(model, example_inputs=examples[0])
    for inputs in examples:
        expected = model(*inputs)
        found = exe(*inputs)
        pairs = zip(
            found if isinstance(found, tuple) else (found,),
            expected if isinstance(expected, tuple) else (expected,),
            strict=True,
        )
        for one, want in pairs:
            np.testing.assert_allclose(one, want.detach().numpy(), rtol=1e-5, atol=1e-6)
