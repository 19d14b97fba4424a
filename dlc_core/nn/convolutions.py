"""Convolutions and transposed convolutions over 1, 2 or 3 spatial dims."""

from __future__ import annotations

from math import prod, sqrt
from typing import ClassVar

from dlc_core.diag import UsageError
from dlc_core.nn.checks import Sizes, expect_spatial, sizes
from dlc_core.nn.module import Module, Parameter
from dlc_core.nn.tensor import Tensor, call


class _Filtered(Module):
    """The filters, the bias and the window of both kinds."""

    rank: ClassVar[int]

    def _set_filters(
        self,
        channels: tuple[int, int],
        kernel_size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        groups: int,
        bias: bool,
        dtype: str,
        *,
        transposed: bool = False,
    ) -> None:
        """`channels` are those of inputs and outputs."""
        inputs, outputs = channels
        if groups < 1 or inputs % groups or outputs % groups:
            raise UsageError(f"{inputs} and {outputs} channels do not split into {groups} groups")
        self.in_channels, self.out_channels, self.groups = inputs, outputs, groups
        self.kernel_size = sizes(kernel_size, self.rank, "kernel_size")
        self.stride, self.dilation = (sizes(v, self.rank, "the window") for v in (stride, dilation))
        first, second = (inputs, outputs) if transposed else (outputs, inputs)
        shape = (first, second // groups, *self.kernel_size)
        bound = 1 / sqrt(max(1, prod(shape[1:])))
        self.weight = Parameter(shape, dtype, bound)
        self.bias = Parameter((outputs,), dtype, bound) if bias else None

    def _operands(self, x: Tensor) -> tuple[Tensor | Parameter, ...]:
        expect_spatial(x, self.rank, self.in_channels)
        return (x, self.weight) if self.bias is None else (x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        )


class _Convolution(_Filtered):
    """A convolution; `padding` are zeros on every side, or "same" for a result of the input's size."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str = "float32",
    ) -> None:
        self._set_filters((in_channels, out_channels), kernel_size, stride, dilation, groups, bias, dtype)
        self.padding = padding if isinstance(padding, str) else sizes(padding, self.rank, "padding")
        self._pads = self._borders()

    def _borders(self) -> tuple[int, ...]:
        """The widths of the border at the begins, then at the ends."""
        if not isinstance(self.padding, str):
            return (*self.padding, *self.padding)
        if self.padding == "valid":
            return (0,) * (2 * self.rank)
        if self.padding != "same" or any(s != 1 for s in self.stride):
            raise UsageError(
                f"padding {self.padding!r} with a stride of {self.stride}", hint='"same" needs 1'
            )
        total = [d * (k - 1) for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        return (*(t // 2 for t in total), *(t - t // 2 for t in total))

    def forward(self, x: Tensor) -> Tensor:
        return call(
            "conv",
            *self._operands(x),
            strides=self.stride,
            padding=self._pads,
            dilation=self.dilation,
            groups=self.groups,
        )


class Conv1d(_Convolution):
    """A convolution of sequences (n, c, l); `weight` is (out, in / groups, k).

        conv = nn.Conv1d(16, 32, 3, padding=1)        # (n, 16, l) -> (n, 32, l)

    `padding` are zeros on both sides, or "same" for a result of the input's length.
    """

    rank = 1


class Conv2d(_Convolution):
    """A convolution of images (n, c, h, w); `weight` is (out, in / groups, kh, kw).

        conv = nn.Conv2d(3, 64, 7, stride=2, padding=3)       # (n, 3, 224, 224) -> (n, 64, 112, 112)

    `padding` are zeros on every side, or "same" for a result of the input's size.
    """

    rank = 2


class Conv3d(_Convolution):
    """A convolution of volumes (n, c, d, h, w); `weight` is (out, in / groups, kd, kh, kw).

    conv = nn.Conv3d(3, 8, (1, 3, 3), padding=(0, 1, 1))
    """

    rank = 3


class _TransposedConvolution(_Filtered):
    """The gradient of a convolution with respect to its input; `padding` crops the result."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        dtype: str = "float32",
    ) -> None:
        channels = in_channels, out_channels
        self._set_filters(channels, kernel_size, stride, dilation, groups, bias, dtype, transposed=True)
        self.padding, self.output_padding = (
            sizes(v, self.rank, "padding") for v in (padding, output_padding)
        )

    def forward(self, x: Tensor) -> Tensor:
        return call(
            "conv_transpose",
            *self._operands(x),
            strides=self.stride,
            padding=(*self.padding, *self.padding),
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class ConvTranspose1d(_TransposedConvolution):
    """A transposed convolution of sequences (n, c, l); `weight` is (in, out / groups, k)."""

    rank = 1


class ConvTranspose2d(_TransposedConvolution):
    """A transposed convolution of images (n, c, h, w); `weight` is (in, out / groups, kh, kw).

        up = nn.ConvTranspose2d(64, 32, 2, stride=2)          # (n, 64, h, w) -> (n, 32, 2 h, 2 w)

    `padding` crops the result, `output_padding` adds rows and columns at its ends.
    """

    rank = 2


class ConvTranspose3d(_TransposedConvolution):
    """A transposed convolution of volumes (n, c, d, h, w); `weight` is (in, out / groups, kd, kh, kw)."""

    rank = 3


__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]
