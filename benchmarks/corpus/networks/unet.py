"""U-Net."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


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
