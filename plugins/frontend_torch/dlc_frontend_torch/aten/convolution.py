"""Convolutions, and their gradients as convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.support.record import record
from dlc_frontend_torch.aten.weight_gradient import weight_gradient
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

Ints = tuple[int, ...]


@record(frozen=True)
class Geometry:
    """Numbers of a convolution, one for each spatial dim; `padding` is that of both ends."""

    strides: Ints
    padding: Ints
    dilation: Ints
    extra: Ints
    groups: int

    @staticmethod
    def of(
        c: Call, spatial: int, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: Any
    ) -> Geometry:
        """From the arguments of an operator, which have one number for all dims, or one for each."""
        strides, pads, steps, extra = (
            c.numbers(each, "a stride, padding or dilation") * (spatial if len(each) == 1 else 1)
            for each in (stride, padding, dilation, output_padding)
        )
        return Geometry(strides, pads, steps, extra, c.number(groups, "the number of groups"))

    def options(self) -> dict[str, Any]:
        """The attributes of a convolution. `conv_transpose` takes `output_padding` too."""
        return {
            "strides": self.strides, "padding": (*self.padding, *self.padding), "dilation": self.dilation,
            "groups": self.groups,
        }  # fmt: skip


@aten("convolution")
def convolution(
    c: Call, x: Node, weight: Node, bias: Node | None, stride: Sequence[Any], padding: Sequence[Any],
    dilation: Sequence[Any], transposed: bool, output_padding: Sequence[Any], groups: int,
) -> Node:  # fmt: skip
    spatial = len(weight.shape) - 2
    geometry = Geometry.of(c, spatial, stride, padding, dilation, output_padding, groups)
    batched = x if len(x.shape) == spatial + 2 else std.unsqueeze(x, axes=(0,))
    args = (batched, weight) if bias is None else (batched, weight, bias)
    made = (
        std.conv_transpose(*args, output_padding=geometry.extra, **geometry.options())
        if transposed
        else std.conv(*args, **geometry.options())
    )
    return made if batched is x else std.squeeze(made, axes=(0,))


@aten("convolution_backward")
def convolution_backward(
    c: Call, grad: Node, x: Node, weight: Node, bias_sizes: Any, stride: Sequence[Any],
    padding: Sequence[Any], dilation: Sequence[Any], transposed: bool, output_padding: Sequence[Any],
    groups: int, output_mask: Sequence[bool],
) -> tuple[Node | None, ...]:  # fmt: skip
    """The gradients of input, weight and bias, as far as `output_mask` asks for them."""
    spatial = len(weight.shape) - 2
    geometry = Geometry.of(c, spatial, stride, padding, dilation, output_padding, groups)
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        of_input = (
            _cropped(std.conv(grad, weight, **geometry.options()), x.shape)
            if transposed
            else _input_gradient(c, grad, weight, geometry, x.shape)
        )
    if output_mask[1]:
        small, large = (x, grad) if transposed else (grad, x)
        of_weight = weight_gradient(
            small, large, weight.shape, geometry.strides, geometry.padding, geometry.dilation, geometry.groups
        )
    if output_mask[2]:
        of_bias = std.reduce_sum(grad, axes=(0, *range(2, spatial + 2)))
    return of_input, of_weight, of_bias


def _input_gradient(c: Call, grad: Node, weight: Node, geometry: Geometry, shape: Sequence[Dim]) -> Node:
    """The transposed convolution of the gradient. Elements after the last window have the gradient 0."""
    extra = []
    for axis, (size, kernel) in enumerate(zip(shape[2:], weight.shape[2:], strict=True)):
        step = geometry.strides[axis]
        if step == 1:
            extra.append(0)
            continue
        covered = size + 2 * geometry.padding[axis] - geometry.dilation[axis] * (kernel - 1) - 1
        extra.append(c.number(covered % step, "a gradient of a strided convolution"))
    return std.conv_transpose(grad, weight, output_padding=tuple(extra), **geometry.options())


def _cropped(x: Node, shape: Sequence[Dim]) -> Node:
    """The first elements along the spatial dims."""
    if tuple(x.shape[2:]) == tuple(shape[2:]):
        return x
    axes = tuple(range(2, len(shape)))
    return std.slice(x, begins=(0,) * len(axes), ends=tuple(shape[2:]), axes=axes)
