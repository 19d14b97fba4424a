"""YOLOv8 in its smallest size."""

from __future__ import annotations

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
    """YOLOv8's block: one of two halves passes through bottlenecks, and all results are concatenated."""

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
    """SPPF: three consecutive pools, concatenated."""

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

    Images [N, 3, S, S] to [N, 84, S²/64 + S²/256 + S²/1024], and the scores as a separate output.
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
        self.register_buffer("centres", torch.cat(centres, 1)[None])
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
