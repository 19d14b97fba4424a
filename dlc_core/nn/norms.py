"""Normalisations. They compute as in inference mode: batch norms use their running statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc_core.diag import UsageError
from dlc_core.nn.checks import expect, expect_spatial
from dlc_core.nn.module import Module, Parameter
from dlc_core.nn.tensor import Tensor, call, constant, type_text


class _BatchNorm(Module):
    ignored_state = ("num_batches_tracked",)
    rank: ClassVar[int]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        dtype: str = "float32",
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight, self.bias = _scales(num_features, affine, dtype)
        self.running_mean = Parameter((num_features,), dtype)
        self.running_var = Parameter((num_features,), dtype, "ones")

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        scale, bias = _given_scales(self.weight, self.bias, self.num_features, x)
        return call("batch_norm", x, scale, bias, self.running_mean, self.running_var, eps=self.eps, axis=1)

    def _check(self, x: Tensor) -> None:
        expect_spatial(x, self.rank, self.num_features)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


class BatchNorm1d(_BatchNorm):
    """(x - running_mean) / sqrt(running_var + eps) weight + bias for each channel of (n, c) or (n, c, l)."""

    rank = 1

    def _check(self, x: Tensor) -> None:
        if x.ndim != 2:
            super()._check(x)
        else:
            expect(x, 1, self.num_features)


class BatchNorm2d(_BatchNorm):
    """(x - running_mean) / sqrt(running_var + eps) weight + bias for each channel of images (n, c, h, w).

        norm = nn.BatchNorm2d(64)

    `momentum` is accepted, and is not used at inference. Without `affine` there is no weight and no bias.
    """

    rank = 2


class BatchNorm3d(_BatchNorm):
    """(x - running_mean) / sqrt(running_var + eps) weight + bias for each channel of (n, c, d, h, w)."""

    rank = 3


def _scales(count: int, affine: bool, dtype: str) -> tuple[Parameter | None, Parameter | None]:
    return (Parameter((count,), dtype, "ones"), Parameter((count,), dtype)) if affine else (None, None)


def _given_scales(
    weight: Parameter | None, bias: Parameter | None, count: int, x: Tensor
) -> tuple[Tensor, Tensor]:
    """The scale and the shift of each channel; ones and zeros if the layer has none."""
    ones, zeros = ([value] * count for value in (1, 0))
    return (
        constant(ones, x.dtype) if weight is None else weight,
        constant(zeros, x.dtype) if bias is None else bias,
    )


class GroupNorm(Module):
    """Groups of channels of (n, c, ...) normalised over channels and spatial dims, then scaled and shifted.

    norm = nn.GroupNorm(8, 64)        # 8 groups of 8 channels
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: str = "float32",
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise UsageError(f"{num_channels} channels do not split into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight, self.bias = _scales(num_channels, affine, dtype)

    def forward(self, x: Tensor) -> Tensor:
        expect(x, 1, self.num_channels)
        scale, bias = _given_scales(self.weight, self.bias, self.num_channels, x)
        return call("group_norm", x, scale, bias, groups=self.num_groups, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"


class _InstanceNorm(Module):
    rank: ClassVar[int]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        dtype: str = "float32",
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight, self.bias = _scales(num_features, affine, dtype)

    def forward(self, x: Tensor) -> Tensor:
        expect_spatial(x, self.rank, self.num_features)
        scale, bias = _given_scales(self.weight, self.bias, self.num_features, x)
        return call("instance_norm", x, scale, bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sequence (n, c, l) normalised; see `InstanceNorm2d`."""

    rank = 1


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each image (n, c, h, w) normalised, and with `affine` scaled and shifted."""

    rank = 2


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each volume (n, c, d, h, w) normalised; see `InstanceNorm2d`."""

    rank = 3


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
            expect(x, axis, size)
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
        expect(x, -1, self.dim)
        return call("rms_norm", x, self.weight, axis=-1, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"


class LocalResponseNorm(Module):
    """x / (k + alpha / size * sum of squares of the `size` nearest channels) ** beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 3:
            raise UsageError("the layer needs channels and spatial dims", why=f"the input is {type_text(x)}")
        return call("lrn", x, size=self.size, alpha=self.alpha, beta=self.beta, bias=self.k, axis=1)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LocalResponseNorm",
    "RMSNorm",
]
