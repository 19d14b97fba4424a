"""Embeddings, paddings, activations, losses and interpolations, and their gradients, against eager."""

import pytest
import torch
from torch.nn import functional as fn

import dlc_core as dlc

torch.manual_seed(0)
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export warns of itself


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
def test_embedding(same_as_eager, options):
    indices = torch.tensor([[0, 2, 2], [5, 2, 0]])
    same_as_eager(lambda table: fn.embedding(indices, table, **options), torch.randn(6, 4))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
@pytest.mark.parametrize("pads", [(2, 1), (-1, 2), (0, 0)])
def test_paddings(same_as_eager, mode, pads):
    if mode == "reflect" and min(pads) < 0:
        pads = (1, 0)
    same_as_eager(lambda x: fn.pad(x, pads, mode=mode), torch.randn(2, 3, 5))
    same_as_eager(lambda x: fn.pad(x, (*pads, 1, 2), mode=mode), torch.randn(2, 3, 5, 4))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fn.elu(x, 0.7),
        fn.selu,
        lambda x: fn.leaky_relu(x, -0.3),
        fn.gelu,
        lambda x: fn.gelu(x, approximate="tanh"),
        fn.silu,
        fn.relu,
        fn.hardswish,
        fn.mish,
        lambda x: fn.softmax(x, 1),
        lambda x: fn.log_softmax(x, 0),
    ],
)
def test_activations(same_as_eager, f):
    same_as_eager(f, torch.randn(4, 9) * 3, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("nearest", {"scale_factor": 2.0}),
        ("nearest", {"size": (7, 10)}),
        ("nearest", {"scale_factor": (1.7, 0.6)}),
        ("nearest-exact", {"size": (7, 10)}),
        ("bilinear", {"scale_factor": 2.0}),
        ("bilinear", {"size": (7, 10), "align_corners": True}),
        ("bilinear", {"scale_factor": 1.7}),
        ("bicubic", {"size": (7, 3)}),
        ("bilinear", {"size": (3, 4), "antialias": True}),
    ],
)
def test_exported_interpolation(mode, options):
    class Model(torch.nn.Module):
        def forward(self, x):
            return fn.interpolate(x, mode=mode, **options)

    x = torch.randn(2, 3, 5, 6)
    found = dlc.compile(Model(), example_inputs=(x,))(x.numpy())
    torch.testing.assert_close(torch.from_numpy(found), Model()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"ignore_index": 2}, {"reduction": "sum"}, {"reduction": "none"}])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3, 3)])
def test_cross_entropy(same_as_eager, options, shape):
    target, weight = torch.randint(0, 4, (shape[0], *shape[2:])), torch.rand(4)
    same_as_eager(lambda x: fn.cross_entropy(x, target, weight, **options), torch.randn(shape))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("border", ["zeros", "border"])
def test_grid_sample(same_as_eager, mode, border):
    def f(x, grid):
        return fn.grid_sample(x, grid, mode=mode, padding_mode=border, align_corners=False)

    x, grid = torch.randn(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2.4 - 1.2
    same_as_eager(f, x, grid, gradients=False, rtol=1e-4, atol=1e-5)
