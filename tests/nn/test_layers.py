"""Layers against NumPy: what they compute, with fixed and symbolic dims, bound and passed parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import DlcError

RNG = np.random.default_rng(5)


def data(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(model, *arrays, specs=None, target="reference"):
    """Run a module with its parameters bound; the results are the same if they are passed."""
    shapes = specs or [nn.Spec(a.shape, str(a.dtype)) for a in arrays]
    module = model.init(1).to_module({f"x{i}": shape for i, shape in enumerate(shapes)})
    state = model.state_dict()
    found = dlc.compile(module, target, params=state)(*arrays)
    passed = dlc.compile(module, target)(*arrays, *state.values())
    np.testing.assert_allclose(found, passed, rtol=1e-5, atol=1e-6)
    return found


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_linear():
    layer, x = nn.Linear(5, 3), data(4, 5)
    close(run(layer, x), x @ layer.weight.data.T + layer.bias.data)
    bare, y = nn.Linear(5, 3, bias=False), data(2, 7, 5)
    close(run(bare, y), y @ bare.weight.data.T)
    assert list(bare.state_dict()) == ["weight"]


ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    "relu": (nn.ReLU(), lambda x: np.maximum(x, 0)),
    "gelu": (nn.GELU(), lambda x: x * 0.5 * (1 + ERF(x / np.sqrt(2)))),
    "gelu tanh": (
        nn.GELU("tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (nn.SiLU(), lambda x: x / (1 + np.exp(-x))),
    "sigmoid": (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    "tanh": (nn.Tanh(), np.tanh),
    "softmax": (nn.Softmax(0), lambda x: np.exp(x) / np.exp(x).sum(axis=0)),
    "identity": (nn.Identity(), lambda x: x),
    "dropout": (nn.Dropout(0.5), lambda x: x),
}


@pytest.mark.parametrize(("layer", "expected"), ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_activations(layer, expected):
    x = data(3, 7)
    close(run(layer, x), expected(x))


def convolved(x, w, bias, stride, padding, dilation, groups):
    """A convolution in NumPy, element by element."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    filters, depth, kh, kw = w.shape
    h = (x.shape[2] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    v = (x.shape[3] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((x.shape[0], filters, h, v), np.float32)
    for f in range(filters):
        first = f // (filters // groups) * depth
        for i in range(h):
            for j in range(v):
                top, left = i * stride[0], j * stride[1]
                rows = slice(top, top + dilation[0] * (kh - 1) + 1, dilation[0])
                columns = slice(left, left + dilation[1] * (kw - 1) + 1, dilation[1])
                window = x[:, first : first + depth, rows, columns]
                out[:, f, i, j] = (window * w[f]).sum(axis=(1, 2, 3)) + bias[f]
    return out


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "groups"),
    [
        (3, 1, 1, 1, 1),
        ((3, 2), (2, 1), (1, 0), 1, 1),
        (3, 1, 2, 2, 2),
        (1, 2, 0, 1, 4),
    ],
)
def test_convolutions(kernel, stride, padding, dilation, groups):
    layer, x = nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups), data(2, 4, 9, 8)
    found = run(layer, x)
    options = (layer.stride, layer.padding, layer.dilation, groups)
    close(found, convolved(x, layer.weight.data, layer.bias.data, *options))


def test_normalisations():
    x = data(2, 6, 3, 4)
    batch = nn.BatchNorm2d(6, eps=1e-3)
    batch.load_state_dict(
        {
            "weight": data(6),
            "bias": data(6),
            "running_mean": data(6),
            "running_var": np.abs(data(6)),
            "num_batches_tracked": np.array(7),
        }
    )
    weight, bias, mean, var = (v.reshape(6, 1, 1) for v in batch.state_dict().values())
    close(run(batch, x), (x - mean) / np.sqrt(var + 1e-3) * weight + bias)

    layer = nn.LayerNorm((3, 4))
    layer.load_state_dict({"weight": data(3, 4), "bias": data(3, 4)})
    centred = x - x.mean(axis=(2, 3), keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=(2, 3), keepdims=True) + 1e-5)
    close(run(layer, x), normal * layer.weight.data + layer.bias.data)
    close(run(nn.LayerNorm((3, 4), bias=False), x), normal)

    rms = nn.RMSNorm(4)
    rms.load_state_dict({"weight": data(4)})
    close(run(rms, x), x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * rms.weight.data)


def test_pooling():
    x = data(1, 2, 6, 6)
    parts = x.reshape(1, 2, 3, 2, 3, 2)
    close(run(nn.MaxPool2d(2), x), parts.max(axis=(3, 5)))
    close(run(nn.AvgPool2d(2), x), parts.mean(axis=(3, 5)))
    bordered = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    corner = bordered[:, :, :3, :3].sum(axis=(2, 3))
    close(run(nn.AvgPool2d(3, 1, 1), x)[:, :, 0, 0], corner / 9)
    close(run(nn.AvgPool2d(3, 1, 1, count_include_pad=False), x)[:, :, 0, 0], corner / 4)
    assert run(nn.MaxPool2d(3, 2, ceil_mode=True), x).shape == (1, 2, 3, 3)
    close(run(nn.GlobalAvgPool(), x), x.mean(axis=(2, 3), keepdims=True))
    close(run(nn.GlobalAvgPool(flatten=True), x), x.mean(axis=(2, 3)))


def test_embedding_and_flatten():
    layer, rows = nn.Embedding(10, 4), np.array([[1, 9, 0]])
    close(run(layer, rows), layer.weight.data[rows])
    x = data(2, 3, 4)
    close(run(nn.Flatten(), x), x.reshape(2, 12))
    close(run(nn.Flatten(0), x), x.reshape(24))


def attention(q, k, v, allowed):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(allowed, scores, -np.inf)
    power = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True) @ v


class Attention(nn.Module):
    def __init__(self, causal):
        self.causal = causal

    def forward(self, q, k, v, *mask):
        return nn.scaled_dot_product_attention(q, k, v, *mask, causal=self.causal)


@pytest.mark.parametrize("causal", [False, True])
def test_scaled_dot_product_attention(causal):
    q, k, v = data(2, 3, 5, 4), data(2, 3, 7, 4), data(2, 3, 7, 6)
    earlier = np.tri(5, 7, dtype=bool) if causal else np.ones((5, 7), bool)
    close(run(Attention(causal), q, k, v), attention(q, k, v, earlier))
    mask = RNG.random((5, 7)) < 0.8
    mask[:, 0] = True
    close(run(Attention(causal), q, k, v, mask), attention(q, k, v, earlier & mask))
    added = np.where(mask, 0, -1e9).astype(np.float32)
    close(run(Attention(causal), q, k, v, added), attention(q, k, v, earlier & mask))


def test_multi_head_attention():
    layer, x = nn.MultiHeadAttention(8, 2), data(2, 5, 8)
    found = run(layer, x, specs=[("n", "tokens", 8)])
    state = layer.state_dict()

    def project(name):
        y = x @ state[f"{name}.weight"].T + state[f"{name}.bias"]
        return y.reshape(2, 5, 2, 4).transpose(0, 2, 1, 3)

    mixed = attention(*map(project, ("q_proj", "k_proj", "v_proj")), np.True_)
    joined = mixed.transpose(0, 2, 1, 3).reshape(2, 5, 8)
    close(found, joined @ state["out_proj.weight"].T + state["out_proj.bias"])


SMALL = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, bias=False),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.GlobalAvgPool(flatten=True),
    nn.Linear(8, 5),
    nn.Softmax(),
)


def test_a_network_of_any_batch_is_native():
    module = SMALL.init(3).to_module({"image": ("batch", 3, 8, 8)})
    for params in (SMALL.state_dict(), None):
        exe = dlc.compile(module, "llvm", params=params)
        for batch in (1, 3):
            feeds = {"image": data(batch, 3, 8, 8), **({} if params else SMALL.state_dict())}
            expected = dlc.compile(module, "reference").run({**SMALL.state_dict(), **feeds})
            close(exe.run(feeds)["output"], expected["output"])


class Wrong(nn.Module):
    """A module whose second part does not fit the first."""

    def __init__(self, *parts):
        self.body = nn.Sequential(*parts)

    def forward(self, x):
        return self.body(x)


@pytest.mark.parametrize(
    ("part", "shape", "said"),
    [
        (nn.Linear(4, 2), (3, 5), "the layer needs 4 in dim -1, the input has 5"),
        (nn.Conv2d(3, 2, 3), (1, 4, 8, 8), "needs 3 in dim 1, the input has 4"),
        (nn.Conv2d(3, 2, 3), (4, 8, 8), r"needs images \(n, c, h, w\)"),
        (nn.BatchNorm2d(3), (1, 4, 8, 8), "needs 3 in dim 1"),
        (nn.LayerNorm((2, 4)), (2, 3, 4), "needs 2 in dim -2"),
        (nn.RMSNorm(4), (4, 3), "needs 4 in dim -1"),
        (nn.MaxPool2d(2), (4, 8, 8), "pooling needs images"),
        (nn.Flatten(3), (4, 8, 8), "there is no dim 3"),
        (nn.MultiHeadAttention(8, 2), (4, 8), "attention needs"),
        (nn.Embedding(4, 2), (3,), "indices has dtype float32"),
        (nn.Conv2d(3, 2, 5), (1, 3, 4, 4), "does not fit"),
        (nn.Linear(2, 2), (), "needs 2 in dim -1"),
    ],
)
def test_errors_name_the_module(part, shape, said):
    with pytest.raises(DlcError, match=said) as caught:
        Wrong(nn.Identity(), part).to_module({"x": shape})
    name = "body.1.q_proj" if isinstance(part, nn.MultiHeadAttention) and len(shape) == 3 else "body.1"
    assert any(span.name.startswith(name) for span in caught.value.spans), str(caught.value)
    assert f"at Wrong node '{name}" in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [lambda: nn.Conv2d(3, 4, 1, groups=2), lambda: nn.MultiHeadAttention(5, 2)],
)
def test_impossible_layers(make):
    with pytest.raises(DlcError, match="split"):
        make()
