"""Layers over 1, 2 and 3 spatial dims, normalisations, activations and moves, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import DlcError
from dlc_core.op.std import BY_NAME

RNG = np.random.default_rng(5)


def data(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(model, *arrays, target="reference"):
    shapes = [nn.Spec(a.shape, str(a.dtype)) for a in arrays]
    module = model.init(1).to_module({f"x{i}": shape for i, shape in enumerate(shapes)})
    return dlc.compile(module, target, params=model.state_dict())(*arrays)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def reference(name, *arrays, **attrs):
    decl = BY_NAME[name]
    return decl.reference(*arrays, **decl.canonical_attrs(attrs))


@pytest.mark.parametrize(("rank", "layer"), [(1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d)])
def test_convolutions_of_every_rank(rank, layer):
    x = data(1, 4, *(5,) * rank)
    conv = layer(4, 6, 3, stride=2, padding=1, groups=2)
    w, b = conv.init(1).state_dict().values()
    assert w.shape == (6, 2, *(3,) * rank)
    close(run(conv, x), reference("conv", x, w, b, strides=(2,) * rank, padding=(1,) * (2 * rank), groups=2))
    same = layer(4, 2, 4, padding="same", dilation=1)
    assert run(same, x).shape == (1, 2, *(5,) * rank)
    assert run(layer(4, 2, 3, padding="valid"), x).shape == (1, 2, *(3,) * rank)
    with pytest.raises(DlcError, match="padding 'same' with a stride"):
        layer(4, 2, 3, stride=2, padding="same")
    with pytest.raises(DlcError, match="kernel_size has 4 numbers"):
        layer(4, 2, (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("rank", "layer"), [(1, nn.ConvTranspose1d), (2, nn.ConvTranspose2d), (3, nn.ConvTranspose3d)]
)
def test_transposed_convolutions(rank, layer):
    x = data(1, 4, *(3,) * rank)
    conv = layer(4, 6, 3, 2, 1, 1, groups=2)
    w, b = conv.init(1).state_dict().values()
    assert w.shape == (4, 3, *(3,) * rank)
    window = {"strides": (2,) * rank, "padding": (1,) * (2 * rank), "output_padding": (1,) * rank}
    found = run(conv, x)
    assert found.shape == (1, 6, *(6,) * rank)
    close(found, reference("conv_transpose", x, w, b, groups=2, **window))


@pytest.mark.parametrize(
    ("rank", "largest", "mean"),
    [(1, nn.MaxPool1d, nn.AvgPool1d), (2, nn.MaxPool2d, nn.AvgPool2d), (3, nn.MaxPool3d, nn.AvgPool3d)],
)
def test_pools_of_every_rank(rank, largest, mean):
    x = data(1, 2, *(6,) * rank)
    window = {"kernel": (2,) * rank, "strides": (1,) * rank}
    close(run(largest(2, 1), x), reference("max_pool", x, **window))
    close(run(mean(2, 1), x), reference("avg_pool", x, **window))
    spread = {**window, "dilation": (2,) * rank}
    close(run(largest(2, 1, dilation=2), x), reference("max_pool", x, **spread))


def parts_of(x, axis, count, function):
    size = x.shape[axis]
    bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    pieces = [function(x.take(range(b, e), axis), axis=axis, keepdims=True) for b, e in bounds]
    return np.concatenate(pieces, axis)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7])
def test_adaptive_pools(size):
    line, image, volume = data(2, 3, 7), data(1, 2, 7, 5), data(1, 2, 3, 4, 7)
    close(run(nn.AdaptiveAvgPool1d(size), line), parts_of(line, 2, size, np.mean))
    close(run(nn.AdaptiveMaxPool1d(size), line), parts_of(line, 2, size, np.max))
    both = parts_of(parts_of(image, 2, size, np.mean), 3, 3, np.mean)
    close(run(nn.AdaptiveAvgPool2d((size, 3)), image), both)
    close(run(nn.AdaptiveMaxPool2d((None, size)), image), parts_of(image, 3, size, np.max))
    close(run(nn.AdaptiveAvgPool3d((None, None, size)), volume), parts_of(volume, 4, size, np.mean))


def test_adaptive_pools_need_a_size_unless_it_is_one():
    module = nn.AdaptiveAvgPool2d(1).to_module({"x": (1, 2, "h", "w")})
    x = data(1, 2, 3, 4)
    close(dlc.compile(module, "reference")(x), x.mean((2, 3), keepdims=True))
    with pytest.raises(DlcError, match="pooling dim 2 to 3 elements needs its size"):
        nn.AdaptiveAvgPool2d(3).to_module({"x": (1, 2, "h", "w")})
    with pytest.raises(DlcError, match="output_size has 3 numbers"):
        nn.AdaptiveAvgPool2d((1, 2, 3))


def normal(x, axes, eps=1e-5):
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + eps)


def test_normalisations_of_every_rank():
    for layer, shape in (
        (nn.BatchNorm1d, (4, 6)),
        (nn.BatchNorm1d, (2, 6, 5)),
        (nn.BatchNorm2d, (2, 6, 3, 2)),
        (nn.BatchNorm3d, (2, 6, 2, 3, 2)),
    ):
        x, norm = data(*shape), layer(6)
        state = {"weight": data(6), "bias": data(6), "running_mean": data(6), "running_var": data(6) ** 2 + 1}
        norm.load_state_dict({**state, "num_batches_tracked": np.array(3)})
        weight, bias, mean, var = (v.reshape(6, *(1,) * (x.ndim - 2)) for v in state.values())
        close(run(norm, x), (x - mean) / np.sqrt(var + 1e-5) * weight + bias)
        bare = layer(6, affine=False)
        assert list(bare.init().state_dict()) == ["running_mean", "running_var"]
        close(run(bare, x), x / np.sqrt(1 + 1e-5))


def test_groups_and_instances():
    x = data(2, 6, 3, 4)
    group = nn.GroupNorm(3, 6)
    group.load_state_dict({"weight": data(6), "bias": data(6)})
    weight, bias = (v.reshape(6, 1, 1) for v in group.state_dict().values())
    grouped = normal(x.reshape(2, 3, -1), (2,)).reshape(x.shape)
    close(run(group, x), grouped * weight + bias)
    close(run(nn.GroupNorm(3, 6, affine=False), x), grouped)
    for layer, shape in (
        (nn.InstanceNorm1d, (2, 3, 5)),
        (nn.InstanceNorm2d, (2, 3, 5, 4)),
        (nn.InstanceNorm3d, (2, 3, 2, 5, 4)),
    ):
        x = data(*shape)
        assert not dict(layer(3).named_parameters())
        close(run(layer(3), x), normal(x, tuple(range(2, x.ndim))))
        close(run(layer(3, affine=True), x), normal(x, tuple(range(2, x.ndim))))
    x = data(1, 5, 2, 2)
    close(run(nn.LocalResponseNorm(3), x), reference("lrn", x, size=3))
    with pytest.raises(DlcError, match="do not split into 4 groups"):
        nn.GroupNorm(4, 6)


ACTIVATIONS = {
    "leaky": (nn.LeakyReLU(0.2), lambda x: np.where(x < 0, 0.2 * x, x)),
    "prelu": (nn.PReLU(), lambda x: np.where(x < 0, 0.25 * x, x)),
    "elu": (nn.ELU(1.5), lambda x: np.where(x < 0, 1.5 * np.expm1(x), x)),
    "celu": (nn.CELU(2.0), lambda x: np.where(x < 0, 2 * np.expm1(x / 2), x)),
    "selu": (nn.SELU(), lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x)),
    "relu6": (nn.ReLU6(), lambda x: x.clip(0, 6)),
    "hardtanh": (nn.Hardtanh(-0.5, 0.25), lambda x: x.clip(-0.5, 0.25)),
    "hardsigmoid": (nn.Hardsigmoid(), lambda x: (x / 6 + 0.5).clip(0, 1)),
    "hardswish": (nn.Hardswish(), lambda x: x * (x / 6 + 0.5).clip(0, 1)),
    "mish": (nn.Mish(), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "softplus": (nn.Softplus(2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "softsign": (nn.Softsign(), lambda x: x / (1 + abs(x))),
    "log softmax": (nn.LogSoftmax(), lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
}


@pytest.mark.parametrize(("layer", "expected"), ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_activations(layer, expected):
    x = data(3, 7) * 4
    close(run(layer, x), expected(x))


def test_slopes_of_channels():
    layer, x = nn.PReLU(3), data(2, 3, 4, 5)
    layer.load_state_dict({"weight": np.array([0.1, 0.2, 0.3], np.float32)})
    close(run(layer, x), np.where(x < 0, x * layer.weight.data.reshape(3, 1, 1), x))


def test_moves():
    x = data(2, 12, 2, 3)
    close(run(nn.Unflatten(1, (3, 4)), x), x.reshape(2, 3, 4, 2, 3))
    close(run(nn.Unflatten(-1, (3, -1)), x), x.reshape(2, 12, 2, 3, 1))
    close(run(nn.ZeroPad2d((1, 2, 0, 3)), x), np.pad(x, ((0, 0), (0, 0), (0, 3), (1, 2))))
    shuffled = x.reshape(2, 3, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 4, 6)
    close(run(nn.PixelShuffle(2), x), shuffled)
    close(run(nn.Upsample(scale_factor=2), x), x.repeat(2, 2).repeat(2, 3))
    sizes = {"axes": (2, 3), "sizes": (5, 7), "mode": "linear"}
    close(run(nn.Upsample((5, 7), mode="bilinear"), x), reference("resize", x, **sizes))
    corners = run(nn.Upsample((5, 7), mode="bilinear", align_corners=True), x)
    close(corners[..., (0, -1), :][..., (0, -1)], x[..., (0, -1), :][..., (0, -1)])
    for wrong in ({}, {"size": 2, "scale_factor": 2}, {"size": 2, "mode": "area"}):
        with pytest.raises(DlcError):
            nn.Upsample(**wrong)


def test_modules_by_name():
    class Heads(nn.Module):
        def __init__(self):
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})

        def forward(self, x):
            return {name: head(x) for name, head in self.heads.items()}

    model, x = Heads().init(0), data(5, 4)
    assert list(model.state_dict()) == ["heads.a.weight", "heads.a.bias", "heads.b.weight", "heads.b.bias"]
    a, b = run(model, x)
    close(b, x @ model.heads["b"].weight.data.T + model.heads["b"].bias.data)
    assert (len(model.heads), list(model.heads), a.shape) == (2, ["a", "b"], (5, 2))
    with pytest.raises(DlcError, match="item 'a' of a ModuleDict"):
        nn.ModuleDict({"a": 3})


def test_help_shows_how_layers_are_used():
    assert "batch_first=True" in nn.LSTM.__doc__
    assert "(n, 64, 112, 112)" in nn.Conv2d.__doc__
    for name in nn.__all__:
        assert getattr(nn, name).__doc__, name
