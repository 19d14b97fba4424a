"""Layers: names, shapes and layouts of their parameters are those of PyTorch.

Comments in constructors give the shapes of parameters. `n` is the batch; images are (n, c, h, w).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

from dlc_core.diag import UsageError
from dlc_core.ir.types import Dim
from dlc_core.nn.module import Module, Parameter
from dlc_core.nn.tensor import Tensor, call, gelu, matmul, relu, sigmoid, silu, softmax, tanh, type_text

Pair = int | tuple[int, int]


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _expect(x: Tensor, axis: int, size: Dim, what: str) -> None:
    """Refuse an input whose dim `axis` is known not to be `size`."""
    if x.ndim < max(axis + 1, -axis):
        raise UsageError(f"{what} needs {size} in dim {axis}", why=f"the input is {type_text(x)}")
    found = x.shape[axis]
    if isinstance(found, int) and found != size:
        raise UsageError(
            f"{what} needs {size} in dim {axis}, the input has {found}", details=[f"input: {type_text(x)}"]
        )


def _expect_image(x: Tensor, channels: int | None, what: str) -> None:
    if x.ndim != 4:
        raise UsageError(f"{what} needs images (n, c, h, w)", why=f"the input is {type_text(x)}")
    if channels is not None:
        _expect(x, 1, channels, what)


class Linear(Module):
    """x weightᵀ + bias over the last dim."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: str = "float32"
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / sqrt(max(1, in_features))
        self.weight = Parameter((out_features, in_features), dtype, bound)
        self.bias = Parameter((out_features,), dtype, bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        _expect(x, -1, self.in_features, "the layer")
        y = matmul(x, self.weight, transpose_b=True)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class Conv2d(Module):
    """A convolution of images; `padding` are zeros on every side."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str = "float32",
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise UsageError(f"{in_channels} and {out_channels} channels do not split into {groups} groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        bound = 1 / sqrt(max(1, prod(shape[1:])))
        self.weight = Parameter(shape, dtype, bound)
        self.bias = Parameter((out_channels,), dtype, bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        _expect_image(x, self.in_channels, "the layer")
        operands = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return call(
            "conv",
            *operands,
            strides=self.stride,
            padding=(*self.padding, *self.padding),
            dilation=self.dilation,
            groups=self.groups,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        )


class BatchNorm2d(Module):
    """(x - running_mean) / sqrt(running_var + eps) weight + bias, for each channel."""

    ignored_state = ("num_batches_tracked",)

    def __init__(self, num_features: int, eps: float = 1e-5, dtype: str = "float32") -> None:
        self.num_features, self.eps = num_features, eps
        self.weight = Parameter((num_features,), dtype, "ones")
        self.bias = Parameter((num_features,), dtype)
        self.running_mean = Parameter((num_features,), dtype)
        self.running_var = Parameter((num_features,), dtype, "ones")

    def forward(self, x: Tensor) -> Tensor:
        _expect_image(x, self.num_features, "the layer")
        statistics = (self.weight, self.bias, self.running_mean, self.running_var)
        return call("batch_norm", x, *statistics, eps=self.eps, axis=1)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


class LayerNorm(Module):
    """Normalisation over the last dims, scaled and shifted."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        bias: bool = True,
        dtype: str = "float32",
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight = Parameter(shape, dtype, "ones")
        self.bias = Parameter(shape, dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        for axis, size in enumerate(self.normalized_shape, -len(self.normalized_shape)):
            _expect(x, axis, size, "the layer")
        scales = (self.weight,) if self.bias is None else (self.weight, self.bias)
        return call("layer_norm", x, *scales, axis=-len(self.normalized_shape), eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """x over its root mean square along the last dim, scaled."""

    def __init__(self, dim: int, eps: float = 1e-6, dtype: str = "float32") -> None:
        self.dim, self.eps = dim, eps
        self.weight = Parameter((dim,), dtype, "ones")

    def forward(self, x: Tensor) -> Tensor:
        _expect(x, -1, self.dim, "the layer")
        return call("rms_norm", x, self.weight, axis=-1, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"


class Embedding(Module):
    """Rows of a table by their indices."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: str = "float32") -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter((num_embeddings, embedding_dim), dtype, "normal")

    def forward(self, indices: Tensor) -> Tensor:
        return call("gather", self.weight, indices, axis=0)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class MaxPool2d(Module):
    """The largest element of each window."""

    def __init__(
        self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, ceil_mode: bool = False
    ) -> None:
        self.kernel_size, self.padding, self.ceil_mode = _pair(kernel_size), _pair(padding), ceil_mode
        self.stride = self.kernel_size if stride is None else _pair(stride)

    def forward(self, x: Tensor) -> Tensor:
        _expect_image(x, None, "pooling")
        return call("max_pool", x, **_window(self))

    def extra_repr(self) -> str:
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window; the border counts as zeros with `count_include_pad`, else not at all."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.padding, self.ceil_mode = _pair(kernel_size), _pair(padding), ceil_mode
        self.stride = self.kernel_size if stride is None else _pair(stride)
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        _expect_image(x, None, "pooling")
        return call("avg_pool", x, **_window(self), count_include_pad=self.count_include_pad)

    def extra_repr(self) -> str:
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _window(pool: MaxPool2d | AvgPool2d) -> dict[str, object]:
    return {
        "kernel": pool.kernel_size,
        "strides": pool.stride,
        "padding": (*pool.padding, *pool.padding),
        "ceil_mode": pool.ceil_mode,
    }


class GlobalAvgPool(Module):
    """The mean over the spatial dims of images; they stay as 1 unless `flatten`."""

    def __init__(self, flatten: bool = False) -> None:
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        _expect_image(x, None, "pooling")
        return x.mean(axis=(2, 3), keepdims=not self.flatten)


class Flatten(Module):
    """The dims from `start_dim` on as one."""

    def __init__(self, start_dim: int = 1) -> None:
        self.start_dim = start_dim

    def forward(self, x: Tensor) -> Tensor:
        if not 0 <= self.start_dim < x.ndim:
            raise UsageError(f"there is no dim {self.start_dim}", why=f"the input is {type_text(x)}")
        return x.reshape(*x.shape[: self.start_dim], -1)


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        return relu(x)


class GELU(Module):
    """x times the normal distribution function of x; `approximate` "tanh" is an approximation."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return gelu(x, self.approximate)


class SiLU(Module):
    """x sigmoid(x)"""

    def forward(self, x: Tensor) -> Tensor:
        return silu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, x: Tensor) -> Tensor:
        return sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return tanh(x)


class Softmax(Module):
    """exp(x) over its sum along a dim."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return softmax(x, self.dim)


class Identity(Module):
    """Its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Dropout(Identity):
    """Nothing, at inference."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p


__all__ = [
    "GELU",
    "AvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "Identity",
    "LayerNorm",
    "Linear",
    "MaxPool2d",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
]
