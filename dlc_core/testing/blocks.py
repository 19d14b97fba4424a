"""Small networks with the building blocks of large ones, in any float dtype, with seeded weights.

Each function returns a module without parameters. Its inputs are images, tokens or sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlc_core import nn
from dlc_core.graph.bind import bind_params
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std


class Normed(nn.Module):
    """A convolution, followed by a normalisation of the channels."""

    def __init__(self, ins: int, outs: int, size: int, dtype: str, stride: int = 1, groups: int = 1) -> None:
        self.conv = nn.Conv2d(ins, outs, size, stride, size // 2, 1, groups, False, dtype)
        self.norm = nn.BatchNorm2d(outs, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        made: nn.Tensor = self.norm(self.conv(x))
        return made


class Residual(nn.Module):
    """Two convolutions whose result is added to the input. If the shapes differ, a third convolution changes
    the shape of the input (He et al., 2015).
    """

    def __init__(self, ins: int, outs: int, stride: int, dtype: str) -> None:
        self.first = Normed(ins, outs, 3, dtype, stride)
        self.second = Normed(outs, outs, 3, dtype)
        self.short = nn.Identity() if (ins, stride) == (outs, 1) else Normed(ins, outs, 1, dtype, stride)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.relu(self.second(nn.relu(self.first(x))) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, dtype: str) -> None:
        self.stem = Normed(3, 16, 7, dtype, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(
            Residual(16, 16, 1, dtype), Residual(16, 32, 2, dtype), Residual(32, 48, 2, dtype)
        )
        self.scores = nn.Linear(48, 10, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = self.blocks(self.pool(nn.relu(self.stem(x))))
        return nn.softmax(self.scores(y.mean((2, 3))))


class Separable(nn.Module):
    """Depthwise separable convolutions with squeeze-and-excitation (Howard et al., 2017; Hu et al., 2018)."""

    def __init__(self, dtype: str) -> None:
        self.stem = Normed(3, 16, 3, dtype, 2)
        self.depthwise = Normed(16, 16, 5, dtype, 1, 16)
        self.squeeze, self.excite = nn.Linear(16, 4, dtype=dtype), nn.Linear(4, 16, dtype=dtype)
        self.pointwise = Normed(16, 40, 1, dtype)
        self.scores = nn.Linear(40, 10, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = nn.silu(self.depthwise(nn.silu(self.stem(x))))
        gates = nn.sigmoid(self.excite(nn.relu(self.squeeze(y.mean((2, 3))))))
        y = nn.silu(self.pointwise(y * gates.reshape(1, 16, 1, 1)))
        made: nn.Tensor = self.scores(y.mean((2, 3)))
        return made


class Encoder(nn.Module):
    """A transformer encoder of two layers, with pre-norm attention and MLP (Vaswani et al., 2017)."""

    def __init__(self, dtype: str) -> None:
        self.layers = nn.ModuleList([EncoderLayer(32, 4, dtype) for _ in range(2)])
        self.scores = nn.Linear(32, 7, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = layer(x)
        made: nn.Tensor = self.scores(x)
        return made


class EncoderLayer(nn.Module):
    def __init__(self, size: int, heads: int, dtype: str) -> None:
        self.before, self.between = nn.LayerNorm(size, dtype=dtype), nn.LayerNorm(size, dtype=dtype)
        self.attention = nn.MultiHeadAttention(size, heads, dtype=dtype)
        self.up, self.down = nn.Linear(size, 3 * size, dtype=dtype), nn.Linear(3 * size, size, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = x + self.attention(self.before(x))
        made: nn.Tensor = x + self.down(nn.gelu(self.up(self.between(x))))
        return made


class Decoder(nn.Module):
    """A layer of a language model: embedding, causal attention, gated MLP, RMS norms (Touvron et
    al., 2023).
    """

    def __init__(self, dtype: str) -> None:
        self.tokens = nn.Embedding(50, 32, dtype=dtype)
        self.before, self.between = nn.RMSNorm(32, dtype=dtype), nn.RMSNorm(32, dtype=dtype)
        self.attention = nn.MultiHeadAttention(32, 2, False, dtype)
        self.gate, self.up = nn.Linear(32, 80, False, dtype), nn.Linear(32, 80, False, dtype)
        self.down, self.scores = nn.Linear(80, 32, False, dtype), nn.Linear(32, 50, False, dtype)

    def forward(self, tokens: nn.Tensor) -> nn.Tensor:
        x = self.tokens(tokens)
        x = x + self.attention(self.before(x), causal=True)
        y = self.between(x)
        made: nn.Tensor = self.scores(x + self.down(nn.silu(self.gate(y)) * self.up(y)))
        return made


def _bound(model: nn.Module, **inputs: Any) -> IRModule:
    model.init(seed=0)
    return bind_params(model.to_module(inputs), model.state_dict())


def mlp(dtype: str) -> IRModule:
    layers = nn.Sequential(
        nn.Linear(40, 24, dtype=dtype), nn.Tanh(), nn.Linear(24, 10, dtype=dtype), nn.Softmax()
    )
    return _bound(layers, x=nn.Spec((5, 40), dtype))


def resnet(dtype: str) -> IRModule:
    return _bound(ResNet(dtype), x=nn.Spec((1, 3, 48, 48), dtype))


def separable(dtype: str) -> IRModule:
    return _bound(Separable(dtype), x=nn.Spec((1, 3, 32, 32), dtype))


def encoder(dtype: str) -> IRModule:
    return _bound(Encoder(dtype), x=nn.Spec((2, 12, 32), dtype))


def decoder(dtype: str) -> IRModule:
    return _bound(Decoder(dtype), tokens=nn.Spec((2, 9), "int32"))


def recurrent(dtype: str) -> IRModule:
    """A gated recurrent unit over a sequence (Cho et al., 2014): the last state, and all states."""
    size, width, steps = 12, 8, 9
    rng, kind = np.random.default_rng(0), DType(dtype).numpy

    def weights(*shape: int) -> Any:
        return constant((rng.standard_normal(shape) * 0.4).astype(kind))

    h, row = param("h", tensor_type((2, size), dtype)), param("row", tensor_type((2, width), dtype))
    joined = std.concat(h, row, axis=1)
    keep = std.sigmoid(std.add(std.matmul(joined, weights(size + width, size)), weights(size)))
    reset = std.sigmoid(std.add(std.matmul(joined, weights(size + width, size)), weights(size)))
    new = std.tanh(std.matmul(std.concat(std.mul(reset, h), row, axis=1), weights(size + width, size)))
    state = std.add(std.mul(keep, h), std.mul(std.sub(constant(np.ones((), kind)), keep), new))
    body = Function("body", (h, row), make_tuple([state, state]))
    start, rows = (
        param("start", tensor_type((2, size), dtype)),
        param("x", tensor_type((steps, 2, width), dtype)),
    )
    made = std.scan(start, rows, num_state=1, body=body)
    return IRModule(
        {"main": Function("main", (start, rows), make_tuple([get_item(made, 0), get_item(made, 1)]))}
    )


BLOCKS: dict[str, Callable[[str], IRModule]] = {
    "mlp": mlp,
    "resnet": resnet,
    "separable": separable,
    "encoder": encoder,
    "decoder": decoder,
    "recurrent": recurrent,
}

__all__ = ["BLOCKS"]
