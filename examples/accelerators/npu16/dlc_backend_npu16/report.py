"""Cycles of the convolutions of ResNet-50 against the bound of the array: `python -m
dlc_backend_npu16.report`.

Each convolution is compiled alone, with bias and ReLU, and those that end a block with the addition of the
block's input. The bound is the number of multiply-adds divided by 256, the multipliers of the array.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import dlc_core as dlc
from dlc_core.graph import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import registry
from dlc_core.runtime.executable import Executable

MULTIPLIERS = 16 * 16
LIMIT = 1.3
"""The most cycles, as a multiple of the bound, that the report accepts."""


@dataclass(frozen=True)
class Conv:
    """A convolution of one image of `size` x `size` pixels, with a border of half its kernel."""

    inputs: int
    size: int
    outputs: int
    kernel: int
    stride: int
    adds: bool = False
    """Whether it adds the input of its block."""

    @property
    def result(self) -> int:
        """Rows and columns of the result."""
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return self.result**2 * self.outputs * self.inputs * self.kernel**2

    @property
    def bound(self) -> int:
        """The cycles in which all multipliers work all the time."""
        return -(-self.macs // MULTIPLIERS)

    def __str__(self) -> str:
        name = f"{self.kernel}x{self.kernel}/{self.stride} {self.inputs}x{self.size}x{self.size}"
        return f"{name} to {self.outputs}" + " + add" * self.adds

    def module(self, dtype: str = "float32") -> IRModule:
        """The convolution as a model with weights of a fixed seed."""
        rng = np.random.default_rng(0)
        x = param("x", tensor_type((1, self.inputs, self.size, self.size), dtype))
        shape = (self.outputs, self.inputs, self.kernel, self.kernel)
        attrs = {"padding": (self.kernel // 2,) * 4, "strides": (self.stride,) * 2}
        if dtype == "int8":
            weights = constant(rng.integers(-128, 128, shape).astype(np.int8))
            return IRModule({"main": Function("main", (x,), std.conv(x, weights, **attrs))})
        scale = np.float32((self.inputs * self.kernel**2) ** -0.5)
        weights = constant(rng.standard_normal(shape, np.float32) * scale)
        bias = constant(rng.standard_normal((self.outputs, 1, 1), np.float32))
        made = std.add(std.conv(x, weights, **attrs), bias)
        params = [x]
        if self.adds:
            params.append(param("r", tensor_type((1, self.outputs, self.result, self.result), dtype)))
            made = std.add(made, params[1])
        return IRModule({"main": Function("main", tuple(params), std.relu(made))})

    def compiled(self, target: str = "npu16", dtype: str = "float32") -> Executable:
        """The convolution on a machine."""
        return dlc.compile(self.module(dtype), target)

    def inputs_of(self, dtype: str = "float32") -> list[np.ndarray]:
        """Arrays for a call."""
        rng = np.random.default_rng(1)
        shapes = [(1, self.inputs, self.size, self.size), (1, self.outputs, self.result, self.result)]
        if dtype == "int8":
            return [rng.integers(-128, 128, shapes[0]).astype(np.int8)]
        return [rng.standard_normal(shape, np.float32) for shape in shapes[: 1 + self.adds]]


def resnet50() -> Iterator[Conv]:
    """The different convolutions of ResNet-50, those with the stride in the first layer of a block too."""
    yield Conv(3, 224, 64, 7, 2)
    size, inputs = 56, 64
    for number, width in enumerate((64, 128, 256, 512)):
        stride = 1 if number == 0 else 2
        yield Conv(inputs, size, width, 1, 1)
        if stride == 2:
            yield Conv(inputs, size, width, 1, 2)
        yield Conv(width, size, width, 3, stride)
        yield Conv(inputs, size, 4 * width, 1, stride)
        size //= stride
        yield Conv(width, size, 4 * width, 1, 1, adds=True)
        yield Conv(4 * width, size, width, 1, 1)
        if stride == 2:
            yield Conv(width, size, width, 3, 1)
        inputs = 4 * width


def cycles_of(conv: Conv, target: str, dtype: str) -> int:
    """The cycles of a call."""
    exe = conv.compiled(target, dtype)
    device = registry().devices["npu16"]
    before = device.cycles
    exe(*conv.inputs_of(dtype))
    return device.cycles - before


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. The exit status is 1 if a convolution exceeds the limit."""
    parser = argparse.ArgumentParser(prog="python -m dlc_backend_npu16.report", description=__doc__)
    parser.add_argument("--target", default="npu16", help="the machine, with options")
    parser.add_argument("--dtype", default="float32", choices=("float32", "int8"))
    parser.add_argument("--only", default="", help="convolutions whose name has this")
    given = parser.parse_args(arguments)
    print("| convolution | cycles | bound | ratio |")
    print("| --- | --: | --: | --: |")
    worst = total = bound = 0.0
    for conv in resnet50():
        if given.only in str(conv):
            cycles = cycles_of(conv, given.target, given.dtype)
            ratio = cycles / conv.bound
            worst, total, bound = max(worst, ratio), total + cycles, bound + conv.bound
            print(f"| {conv} | {cycles:,} | {conv.bound:,} | {ratio:.3f} |", flush=True)
    print(f"| all, worst {worst:.3f} | {total:,.0f} | {bound:,.0f} | {total / max(1, bound):.3f} |")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
