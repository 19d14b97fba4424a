"""Networks that make or change images: DiT, a decoder of latents, DCGAN, ESPCN, EDSR, style transfer."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.corpus.networks.diffusion import Attention


class DiTBlock(nn.Module):
    """A transformer layer whose norms and residuals are scaled by an embedding of the step."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(size, 1e-6, elementwise_affine=False) for _ in range(2))
        self.attention = Attention(size, size, heads)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU("tanh"), nn.Linear(4 * size, size))
        self.scales = nn.Sequential(nn.SiLU(), nn.Linear(size, 6 * size))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.scales(step)[:, None].chunk(6, -1)
        y = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.attention(y, y)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """DiT-S/2: latents [N, 4, 32, 32] and steps [N] to noise [N, 4, 32, 32]."""

    def __init__(self, size: int = 384, layers: int = 12, heads: int = 6, side: int = 16) -> None:
        super().__init__()
        self.size, self.side = size, side
        self.enter = nn.Conv2d(4, size, 2, 2)
        self.places = nn.Parameter(torch.randn(1, side * side, size) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, size), nn.SiLU(), nn.Linear(size, size))
        self.layers = nn.ModuleList(DiTBlock(size, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(size, 1e-6, elementwise_affine=False)
        self.scales, self.leave = nn.Linear(size, 2 * size), nn.Linear(size, 16)

    def forward(self, latents: Tensor, step: Tensor) -> Tensor:
        waves = torch.exp(-math.log(10000) * torch.arange(128) / 128)
        angles = step[:, None].float() * waves[None]
        told = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        x = self.enter(latents).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x, told)
        shift, scale = self.scales(functional.silu(told))[:, None].chunk(2, -1)
        x = self.leave(self.norm(x) * (1 + scale) + shift)
        x = x.view(-1, self.side, self.side, 2, 2, 4).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(-1, 4, 2 * self.side, 2 * self.side)


class Residual(nn.Module):
    """A block of a decoder of latents."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(32, inner, 1e-6), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1),
            nn.GroupNorm(32, outer, 1e-6), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1),
        )  # fmt: skip
        self.short = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.short(x) + self.body(x)


class PixelAttention(nn.Module):
    """Attention over all pixels with one head."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(32, size, 1e-6), Attention(size, size, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(y, y).transpose(1, 2).reshape(x.shape)


class VaeDecoder(nn.Sequential):
    """The decoder of Stable Diffusion of `base` channels (128 there): [N, 4, S, S] to [N, 3, 8S, 8S]."""

    def __init__(self, base: int = 128) -> None:
        wide = 4 * base
        parts: list[nn.Module] = [
            nn.Conv2d(4, wide, 3, padding=1),
            Residual(wide, wide),
            PixelAttention(wide),
        ]
        parts += [Residual(wide, wide)]
        at = wide
        for level, size in enumerate((wide, wide, 2 * base, base)):
            for _ in range(3):
                parts.append(Residual(at, size))
                at = size
            if level < 3:
                parts += [nn.Upsample(scale_factor=2.0), nn.Conv2d(at, at, 3, padding=1)]
        super().__init__(*parts, nn.GroupNorm(32, base, 1e-6), nn.SiLU(), nn.Conv2d(base, 3, 3, padding=1))


class Generator(nn.Sequential):
    """DCGAN: noise [N, 100, 1, 1] to images [N, 3, 64, 64]."""

    def __init__(self, base: int = 64) -> None:
        sizes = [100, 8 * base, 4 * base, 2 * base, base]
        parts: list[nn.Module] = []
        for index, (inner, outer) in enumerate(pairwise(sizes)):
            stride, padding = (2, 1) if index else (1, 0)
            parts += [nn.ConvTranspose2d(inner, outer, 4, stride, padding, bias=False)]
            parts += [nn.BatchNorm2d(outer), nn.ReLU()]
        super().__init__(*parts, nn.ConvTranspose2d(base, 3, 4, 2, 1, bias=False), nn.Tanh())


class Espcn(nn.Sequential):
    """Three times the resolution of the luminance [N, 1, H, W]."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
            nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3),
        )  # fmt: skip


class EdsrBlock(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Edsr(nn.Module):
    """EDSR's baseline: 16 blocks of 64 channels, twice the resolution of [N, 3, H, W]."""

    def __init__(self, size: int = 64, blocks: int = 16) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, size, 3, padding=1)
        self.body = nn.Sequential(
            *(EdsrBlock(size) for _ in range(blocks)), nn.Conv2d(size, size, 3, padding=1)
        )
        self.leave = nn.Sequential(
            nn.Conv2d(size, 4 * size, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(size, 3, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.enter(x)
        return self.leave(y + self.body(y))


class Padded(nn.Sequential):
    """A convolution whose border repeats the image's edge mirrored."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int = 1) -> None:
        super().__init__(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(inner, outer, kernel, stride))


class StyleBlock(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            Padded(size, size, 3), nn.InstanceNorm2d(size, affine=True), nn.ReLU(),
            Padded(size, size, 3), nn.InstanceNorm2d(size, affine=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Style(nn.Sequential):
    """Fast neural style transfer: images [N, 3, S, S] to images of the same size."""

    def __init__(self) -> None:
        def norm(size: int) -> list[nn.Module]:
            return [nn.InstanceNorm2d(size, affine=True), nn.ReLU()]

        parts: list[nn.Module] = [Padded(3, 32, 9), *norm(32), Padded(32, 64, 3, 2), *norm(64)]
        parts += [Padded(64, 128, 3, 2), *norm(128), *(StyleBlock(128) for _ in range(5))]
        for inner, outer in ((128, 64), (64, 32)):
            parts += [nn.Upsample(scale_factor=2.0), Padded(inner, outer, 3), *norm(outer)]
        super().__init__(*parts, Padded(32, 3, 9))
