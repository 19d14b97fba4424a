"""Linear layers, embeddings, and layers that move elements.

Names, shapes and layouts of parameters are those of PyTorch, here and in the other modules of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from dlc_core.diag import UsageError
from dlc_core.ir.types import Dim
from dlc_core.nn.checks import Sizes, expect, expect_spatial, sizes
from dlc_core.nn.module import Module, Parameter
from dlc_core.nn.tensor import Tensor, call, matmul, type_text


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
        expect(x, -1, self.in_features)
        y = matmul(x, self.weight, transpose_b=True)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class Embedding(Module):
    """Rows of a table by their indices."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: str = "float32") -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter((num_embeddings, embedding_dim), dtype, "normal")

    def forward(self, indices: Tensor) -> Tensor:
        return call("gather", self.weight, indices, axis=0)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Flatten(Module):
    """The dims from `start_dim` on as one."""

    def __init__(self, start_dim: int = 1) -> None:
        self.start_dim = start_dim

    def forward(self, x: Tensor) -> Tensor:
        if not 0 <= self.start_dim < x.ndim:
            raise UsageError(f"there is no dim {self.start_dim}", why=f"the input is {type_text(x)}")
        return x.reshape(*x.shape[: self.start_dim], -1)


class Identity(Module):
    """Its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Dropout(Identity):
    """Nothing, at inference."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p


class Unflatten(Module):
    """Dim `dim` as several dims, of which one may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        if not -x.ndim <= self.dim < x.ndim:
            raise UsageError(f"there is no dim {self.dim}", why=f"the input is {type_text(x)}")
        axis = self.dim % x.ndim
        return x.reshape(*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :])


class ZeroPad2d(Module):
    """Images with a border of zeros: (left, right, top, bottom), or one width for all sides."""

    def __init__(self, padding: Sizes) -> None:
        self.padding = sizes(padding, 4, "padding")

    def forward(self, x: Tensor) -> Tensor:
        expect_spatial(x, 2)
        left, right, top, bottom = self.padding
        return call("pad", x, pads=(0, 0, top, left, 0, 0, bottom, right))


class PixelShuffle(Module):
    """Channels as blocks of pixels: (n, c r r, h, w) becomes (n, c, h r, w r)."""

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        expect_spatial(x, 2)
        return call("depth_to_space", x, block=self.upscale_factor, mode="CRD")


class Upsample(Module):
    """Images (n, c, h, w) at `size`, or at `scale_factor` times their size.

        up = nn.Upsample(scale_factor=2, mode="bilinear")

    `mode` is "nearest", "bilinear" or "bicubic".
    """

    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: int | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        if (size is None) == (scale_factor is None):
            raise UsageError("the size of the result is not given once", hint="give size or scale_factor")
        if mode not in _MODES:
            raise UsageError(f"mode {mode!r}", hint=f"one of {', '.join(_MODES)}")
        self.size = None if size is None else sizes(size, 2, "size")
        self.scale_factor, self.mode, self.align_corners = scale_factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        expect_spatial(x, 2)
        goal: tuple[Dim, ...] = self.size or tuple(d * (self.scale_factor or 1) for d in x.shape[2:])
        way = {"coordinates": "align_corners" if self.align_corners else "half_pixel"}
        if self.mode == "nearest":
            way = {"coordinates": "asymmetric", "rounding": "floor"}
        return call("resize", x, axes=(2, 3), sizes=goal, mode=_MODES[self.mode], **way)


_MODES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}

__all__ = [
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "Linear",
    "PixelShuffle",
    "Unflatten",
    "Upsample",
    "ZeroPad2d",
]
