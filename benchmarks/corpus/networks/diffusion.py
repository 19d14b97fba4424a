"""The UNet of Stable Diffusion."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Resnet(nn.Module):
    """A block of Stable Diffusion's UNet: group norms, SiLU, the step's embedding in between."""

    def __init__(self, inner: int, outer: int, step: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inner), nn.GroupNorm(32, outer)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.step = nn.Linear(step, outer)
        self.short = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x))) + self.step(functional.silu(step))[:, :, None, None]
        return self.short(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Attention to itself or to a context, by scaled products."""

    def __init__(self, size: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(size, size, bias=False)
        self.k, self.v = (nn.Linear(context, size, bias=False) for _ in range(2))
        self.out = nn.Linear(size, size)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        found = functional.scaled_dot_product_attention(
            *map(split, (self.q(x), self.k(context), self.v(context)))
        )
        return self.out(found.transpose(1, 2).reshape(x.shape))


class Gated(nn.Module):
    """GEGLU."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(size, size * 8), nn.Linear(size * 4, size)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.inner(x).chunk(2, -1)
        return self.outer(value * functional.gelu(gate))


class Spatial(nn.Module):
    """A transformer block over the pixels, with attention to a text."""

    def __init__(self, size: int, context: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, size, eps=1e-6)
        self.before, self.after = nn.Conv2d(size, size, 1), nn.Conv2d(size, size, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.own, self.cross = Attention(size, size, heads), Attention(size, context, heads)
        self.gated = Gated(size)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        count, size, height, width = x.shape
        y = self.before(self.norm(x)).permute(0, 2, 3, 1).reshape(count, height * width, size)
        first = self.norms[0](y)
        y = y + self.own(first, first)
        y = y + self.cross(self.norms[1](y), context)
        y = y + self.gated(self.norms[2](y))
        return x + self.after(y.reshape(count, height, width, size).permute(0, 3, 1, 2))


class Diffusion(nn.Module):
    """The UNet of Stable Diffusion 1.5, of `base` times 1, 2, 4 and 4 channels (320 there).

    Latents [N, 4, S, S], steps [N] and texts [N, 77, 768] to noise [N, 4, S, S].
    """

    def __init__(self, base: int = 320, context: int = 768, heads: int = 8) -> None:
        super().__init__()
        sizes = [base * n for n in (1, 2, 4, 4)]
        wide = base * 4
        self.base = base
        self.time = nn.Sequential(nn.Linear(base, wide), nn.SiLU(), nn.Linear(wide, wide))
        self.enter = nn.Conv2d(4, base, 3, padding=1)

        def block(inner: int, outer: int, attends: bool) -> Any:
            parts: list[nn.Module] = [Resnet(inner, outer, wide)]
            return nn.ModuleList([*parts, *([Spatial(outer, context, heads)] if attends else [])])

        down: list[nn.Module] = []
        kept, at = [base], base
        for level, size in enumerate(sizes):
            for _ in range(2):
                down.append(block(at, size, level < 3))
                at = size
                kept.append(at)
            if level < 3:
                down.append(nn.Conv2d(at, at, 3, 2, 1))
                kept.append(at)
        self.down = nn.ModuleList(down)
        self.middle = nn.ModuleList([*block(at, at, True), Resnet(at, at, wide)])
        up: list[nn.Module] = []
        for level, size in reversed(list(enumerate(sizes))):
            for index in range(3):
                up.append(block(at + kept.pop(), size, level < 3))
                at = size
                if index == 2 and level:
                    up.append(nn.Sequential(nn.Upsample(scale_factor=2.0), nn.Conv2d(at, at, 3, padding=1)))
        self.up = nn.ModuleList(up)
        self.leave = nn.Sequential(nn.GroupNorm(32, base), nn.SiLU(), nn.Conv2d(base, 4, 3, padding=1))

    def forward(self, x: Tensor, step: Tensor, text: Tensor) -> Tensor:
        half = self.base // 2
        waves = torch.exp(-math.log(10000) * torch.arange(half) / half)
        angles = step[:, None].float() * waves[None]
        embedding = self.time(torch.cat([angles.cos(), angles.sin()], -1))

        def apply(parts: Any, y: Tensor) -> Tensor:
            for part in parts:
                y = part(y, embedding) if isinstance(part, Resnet) else part(y, text)
            return y

        x = self.enter(x)
        kept = [x]
        for part in self.down:
            x = apply(part, x) if isinstance(part, nn.ModuleList) else part(x)
            kept.append(x)
        x = apply(self.middle, x)
        for part in self.up:
            x = apply(part, torch.cat([x, kept.pop()], 1)) if isinstance(part, nn.ModuleList) else part(x)
        return self.leave(x)
