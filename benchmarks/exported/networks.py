"""Networks of PyTorch that no package here has, as their papers or reference code describe them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class ConvAct(nn.Sequential):
    """A convolution, a batch norm and SiLU."""

    def __init__(self, inner: int, outer: int, kernel: int = 1, stride: int = 1) -> None:
        conv = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outer, eps=1e-3), nn.SiLU())


class Bottleneck(nn.Module):
    def __init__(self, size: int, residual: bool) -> None:
        super().__init__()
        self.first, self.second = ConvAct(size, size, 3), ConvAct(size, size, 3)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x))
        return x + y if self.residual else y


class C2f(nn.Module):
    """YOLOv8's block: two halves, of which one goes through bottlenecks, all joined."""

    def __init__(self, inner: int, outer: int, count: int, residual: bool = False) -> None:
        super().__init__()
        half = outer // 2
        self.before, self.after = ConvAct(inner, outer), ConvAct((2 + count) * half, outer)
        self.parts = nn.ModuleList(Bottleneck(half, residual) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        found = list(self.before(x).chunk(2, 1))
        for part in self.parts:
            found.append(part(found[-1]))
        return self.after(torch.cat(found, 1))


class Pyramid(nn.Module):
    """SPPF: three pools behind one another, joined."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.before, self.after = ConvAct(size, size // 2), ConvAct(size * 2, size)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        found = [self.before(x)]
        for _ in range(3):
            found.append(self.pool(found[-1]))
        return self.after(torch.cat(found, 1))


class YoloV8(nn.Module):
    """YOLOv8n with its decoded head: boxes as distributions over 16 distances, of 80 classes.

    Images [N, 3, S, S] to [N, 84, S²/64 + S²/256 + S²/1024], and apart the scores, which are smaller.
    """

    def __init__(self, size: int, classes: int = 80, bins: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvAct(3, 16, 3, 2), ConvAct(16, 32, 3, 2), C2f(32, 32, 1, True))
        self.third = nn.Sequential(ConvAct(32, 64, 3, 2), C2f(64, 64, 2, True))
        self.fourth = nn.Sequential(ConvAct(64, 128, 3, 2), C2f(128, 128, 2, True))
        self.fifth = nn.Sequential(ConvAct(128, 256, 3, 2), C2f(256, 256, 1, True), Pyramid(256))
        self.up4, self.up3 = C2f(384, 128, 1), C2f(192, 64, 1)
        self.down4, self.join4 = ConvAct(64, 64, 3, 2), C2f(192, 128, 1)
        self.down5, self.join5 = ConvAct(128, 128, 3, 2), C2f(384, 256, 1)
        wide = max(64, min(classes, 100))
        self.boxes = nn.ModuleList(
            nn.Sequential(ConvAct(c, 64, 3), ConvAct(64, 64, 3), nn.Conv2d(64, 4 * bins, 1))
            for c in (64, 128, 256)
        )
        self.scores = nn.ModuleList(
            nn.Sequential(ConvAct(c, wide, 3), ConvAct(wide, wide, 3), nn.Conv2d(wide, classes, 1))
            for c in (64, 128, 256)
        )
        self.classes, self.bins = classes, bins
        centres, steps = [], []
        for step in (8, 16, 32):
            axis = torch.arange(size // step) + 0.5
            y, x = torch.meshgrid(axis, axis, indexing="ij")
            centres.append(torch.stack([x, y]).flatten(1))
            steps.append(torch.full((1, x.numel()), float(step)))
        self.register_buffer("places", torch.cat(centres, 1)[None])
        self.register_buffer("steps", torch.cat(steps, 1))
        self.register_buffer("distances", torch.arange(bins, dtype=torch.float32).view(1, bins, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        third = self.third(self.stem(x))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        four = self.up4(torch.cat([functional.interpolate(fifth, scale_factor=2.0), fourth], 1))
        small = self.up3(torch.cat([functional.interpolate(four, scale_factor=2.0), third], 1))
        medium = self.join4(torch.cat([self.down4(small), four], 1))
        large = self.join5(torch.cat([self.down5(medium), fifth], 1))
        found = []
        for box, score, level in zip(self.boxes, self.scores, (small, medium, large)):
            joined = torch.cat([box(level), score(level)], 1)
            found.append(joined.view(joined.shape[0], 4 * self.bins + self.classes, -1))
        box, score = torch.cat(found, 2).split((4 * self.bins, self.classes), 1)
        count, _, cells = box.shape
        shares = box.view(count, 4, self.bins, cells).transpose(2, 1).softmax(1)
        near, far = (shares * self.distances).sum(1).chunk(2, 1)
        first, last = self.centres - near, self.centres + far
        decoded = torch.cat([(first + last) / 2, last - first], 1) * self.steps
        scores = score.sigmoid()
        return torch.cat([decoded, scores], 1), scores


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


class Twice(nn.Sequential):
    """Two convolutions of a U-Net."""

    def __init__(self, inner: int, outer: int) -> None:
        parts: list[nn.Module] = []
        for size in (inner, outer):
            parts += [nn.Conv2d(size, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]
        super().__init__(*parts)


class UNet(nn.Module):
    """U-Net as its paper has it, padded: images [N, 3, S, S] to [N, 2, S, S]."""

    def __init__(self, base: int = 64) -> None:
        super().__init__()
        sizes = [base * 2**n for n in range(5)]
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip([3, *sizes], sizes))
        steps = list(zip(sizes[::-1], sizes[-2::-1]))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in steps)
        self.up = nn.ModuleList(Twice(a, b) for a, b in steps)
        self.out = nn.Conv2d(base, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for part in self.down:
            x = part(functional.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for rise, part, other in zip(self.rise, self.up, kept[-2::-1]):
            x = part(torch.cat([other, rise(x)], 1))
        return self.out(x)
