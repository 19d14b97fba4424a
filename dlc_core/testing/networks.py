"""Small networks for microcontrollers, with constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry

Array = np.ndarray[Any, Any]


class Net:
    """Builds a chain of layers over one input."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.input = self.value = param("x", tensor_type(shape))
        self.channels = shape[1]

    def op(self, name: str, *args: Any, **attrs: Any) -> Net:
        self.value = registry().ops[name].build(self.value, *args, **attrs)
        return self

    def weight(self, *shape: int) -> Any:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, channels: int, size: int, stride: int = 1, groups: int = 1, relu: bool = True) -> Net:
        pads = (size // 2,) * 4
        kernel = self.weight(channels, self.channels // groups, size, size)
        self.op("conv", kernel, padding=pads, strides=(stride, stride), groups=groups)
        bias = constant(self.rng.standard_normal((1, channels, 1, 1)).astype(np.float32))
        self.channels = channels
        self.op("add", bias)
        return self.op("relu") if relu else self

    def dense(self, rows: int, columns: int) -> Net:
        kernel = self.weight(columns, rows)
        self.op("matmul", registry().ops["transpose"].build(kernel, axes=(1, 0)))
        return self.op("add", constant(self.rng.standard_normal((columns,)).astype(np.float32)))

    def module(self) -> IRModule:
        attrs = {"inputs": ("x",), "outputs": ("y",)}
        return IRModule({"main": Function("main", (self.input,), self.value, attrs)})


def mlp() -> IRModule:
    return Net((1, 64)).dense(64, 32).op("relu").dense(32, 10).op("softmax", axis=-1).module()


def cifar() -> IRModule:
    """Three convolutions with pooling over a 32 x 32 picture."""
    net = Net((1, 3, 32, 32))
    for channels in (16, 32, 32):
        net.conv(channels, 3).op("max_pool", kernel=(2, 2), strides=(2, 2))
    return net.op("reshape", shape=(1, 512)).dense(512, 10).op("softmax", axis=-1).module()


def keywords() -> IRModule:
    """Depthwise separable convolutions over a 49 x 10 spectrogram, for keyword spotting (DS-CNN)."""
    net = Net((1, 1, 49, 10)).conv(32, 3, stride=2)
    for _ in range(3):
        net.conv(32, 3, groups=32).conv(32, 1)
    return net.op("reduce_mean", axes=(2, 3)).dense(32, 12).op("softmax", axis=-1).module()


def mobilenet(size: int = 96, width: float = 0.35, classes: int = 10) -> IRModule:
    """MobileNetV2 (Sandler et al., 2018) for microcontrollers, with small images and few channels.

    Channels are rounded to multiples of 8, as in the authors' code. The rows of the table of blocks are
    (expansion, channels, blocks, stride).
    """

    def rounded(channels: float) -> int:
        near = max(8, int(channels + 4) // 8 * 8)
        return near + 8 if near < 0.9 * channels else near

    net = Net((1, 3, size, size)).conv(rounded(32 * width), 3, stride=2)
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, channels, count, stride in rows:
        outs = rounded(channels * width)
        for step in (stride, *(1,) * (count - 1)):
            before, inner = net.value, net.channels * expansion
            if expansion > 1:
                net.conv(inner, 1)
            net.conv(inner, 3, stride=step, groups=inner).conv(outs, 1, relu=False)
            if step == 1 and before.shape == net.value.shape:
                net.op("add", before)
    net.conv(1280, 1).op("reduce_mean", axes=(2, 3))
    return net.dense(1280, classes).op("softmax", axis=-1).module()


NETWORKS = {"mlp": mlp, "cifar": cifar, "keywords": keywords}


def feed(module: IRModule, seed: int = 1) -> Array:
    shape = module["main"].params[0].type.static_shape()
    values: Array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return values
