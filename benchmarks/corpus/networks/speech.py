"""Networks of sound and of lines of text: Conformer, keyword spotting, separation, codecs, CRNN."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class FeedForward(nn.Sequential):
    """Half of a macaron layer of Conformer."""

    def __init__(self, size: int) -> None:
        super().__init__(nn.LayerNorm(size), nn.Linear(size, 4 * size), nn.SiLU(), nn.Linear(4 * size, size))


class RelativeAttention(nn.Module):
    """Attention with positions relative to the query, as Transformer-XL has it."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, size // heads
        self.norm = nn.LayerNorm(size)
        self.q, self.k, self.v, self.out = (nn.Linear(size, size) for _ in range(4))
        self.place = nn.Linear(size, size, bias=False)
        self.u, self.w = (nn.Parameter(torch.randn(heads, self.width) * 0.1) for _ in range(2))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        count, length, size = x.shape
        y = self.norm(x)
        q, k, v = (part(y).view(count, length, self.heads, self.width) for part in (self.q, self.k, self.v))
        p = self.place(positions).view(2 * length - 1, self.heads, self.width)
        content = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
        position = torch.einsum("bihd,jhd->bhij", q + self.w, p)
        padded = functional.pad(position, (1, 0)).view(count, self.heads, 2 * length, length)
        shifted = padded[:, :, 1:].view(count, self.heads, length, 2 * length - 1)[:, :, :, :length]
        share = ((content + shifted) / math.sqrt(self.width)).softmax(-1)
        found = torch.einsum("bhij,bjhd->bihd", share, v)
        return self.out(found.reshape(count, length, size))


class ConvModule(nn.Module):
    """The convolution of Conformer: a gate, a depthwise convolution over 31 frames."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.enter = nn.Conv1d(size, 2 * size, 1)
        self.depth = nn.Conv1d(size, size, 31, padding=15, groups=size)
        self.batch = nn.BatchNorm1d(size)
        self.leave = nn.Conv1d(size, size, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.glu(self.enter(self.norm(x).transpose(1, 2)), 1)
        return self.leave(functional.silu(self.batch(self.depth(y)))).transpose(1, 2)


class ConformerLayer(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.first, self.last = FeedForward(size), FeedForward(size)
        self.attention, self.conv = RelativeAttention(size, heads), ConvModule(size)
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        x = x + self.attention(x, positions)
        x = x + self.conv(x)
        return self.norm(x + 0.5 * self.last(x))


class Conformer(nn.Module):
    """Spectra [N, T, 80] to logits [N, T/4, 128], of 16 layers of 144 channels."""

    def __init__(self, size: int = 144, layers: int = 16, heads: int = 4, frames: int = 99) -> None:
        super().__init__()
        self.enter = nn.Sequential(
            nn.Conv2d(1, size, 3, 2), nn.ReLU(), nn.Conv2d(size, size, 3, 2), nn.ReLU()
        )
        self.project = nn.Linear(size * 19, size)
        self.layers = nn.ModuleList(ConformerLayer(size, heads) for _ in range(layers))
        self.leave = nn.Linear(size, 128)
        distance = torch.arange(frames - 1, -frames, -1.0)[:, None]
        rate = torch.exp(torch.arange(0, size, 2.0) * (-math.log(10000) / size))
        angle = distance * rate
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.enter(x[:, None])
        y = self.project(y.transpose(1, 2).flatten(2))
        for layer in self.layers:
            y = layer(y, self.positions)
        return self.leave(y)


class KeywordNet(nn.Sequential):
    """DS-CNN of MLPerf Tiny: spectra [N, 1, 49, 10] to 12 words."""

    def __init__(self, size: int = 64) -> None:
        parts: list[nn.Module] = [nn.Conv2d(1, size, (10, 4), 2, (5, 1)), nn.BatchNorm2d(size), nn.ReLU()]
        for _ in range(4):
            parts += [nn.Conv2d(size, size, 3, padding=1, groups=size), nn.BatchNorm2d(size), nn.ReLU()]
            parts += [nn.Conv2d(size, size, 1), nn.BatchNorm2d(size), nn.ReLU()]
        super().__init__(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(size, 12))


class TasBlock(nn.Module):
    """A block of Conv-TasNet: a residual and a skip, from a dilated depthwise convolution."""

    def __init__(self, size: int, wide: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(size, wide, 1), nn.PReLU(), nn.GroupNorm(1, wide, 1e-8),
            nn.Conv1d(wide, wide, 3, padding=dilation, dilation=dilation, groups=wide),
            nn.PReLU(), nn.GroupNorm(1, wide, 1e-8),
        )  # fmt: skip
        self.residual, self.skip = nn.Conv1d(wide, size, 1), nn.Conv1d(wide, size, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        return x + self.residual(y), self.skip(y)


class ConvTasNet(nn.Module):
    """One second of a mixture [N, 1, 16000] to two sources [N, 2, 16000]."""

    def __init__(self, filters: int = 512, size: int = 128, wide: int = 512, kernel: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, kernel, kernel // 2, bias=False)
        self.norm, self.enter = nn.GroupNorm(1, filters, 1e-8), nn.Conv1d(filters, size, 1)
        self.blocks = nn.ModuleList(TasBlock(size, wide, 2**n) for _ in range(3) for n in range(8))
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv1d(size, 2 * filters, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(filters, 1, kernel, kernel // 2, bias=False)
        self.filters = filters

    def forward(self, x: Tensor) -> Tensor:
        coded = self.encoder(x).relu()
        y, total = self.enter(self.norm(coded)), None
        for block in self.blocks:
            y, skip = block(y)
            total = skip if total is None else total + skip
        masks = self.mask(total).view(x.shape[0], 2, self.filters, -1)
        parts = (coded[:, None] * masks).flatten(0, 1)
        return self.decoder(parts).view(x.shape[0], 2, -1)


class CodecUnit(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ELU(), nn.Conv1d(size, size // 2, 3, padding=1), nn.ELU(), nn.Conv1d(size // 2, size, 1)
        )
        self.short = nn.Conv1d(size, size, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.short(x) + self.body(x)


class CodecEncoder(nn.Module):
    """The encoder of EnCodec at 24 kHz: samples [N, 1, T] to frames [N, 128, T/320], with two LSTM layers."""

    def __init__(self, base: int = 32) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv1d(1, base, 7, padding=3)]
        for ratio in (2, 4, 5, 8):
            parts += [CodecUnit(base), nn.ELU()]
            parts += [nn.Conv1d(base, 2 * base, 2 * ratio, ratio, (ratio + 1) // 2)]
            base *= 2
        self.body = nn.Sequential(*parts)
        self.lstm = nn.LSTM(base, base, 2, batch_first=True)
        self.leave = nn.Sequential(nn.ELU(), nn.Conv1d(base, 128, 7, padding=3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return self.leave(y + self.lstm(y.transpose(1, 2))[0].transpose(1, 2))


class TextEncoder(nn.Module):
    """The encoder of Tacotron 2: letters [N, T] to [N, T, 512]."""

    def __init__(self, size: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(148, size)
        parts: list[nn.Module] = []
        for _ in range(3):
            parts += [nn.Conv1d(size, size, 5, padding=2), nn.BatchNorm1d(size), nn.ReLU()]
        self.convs = nn.Sequential(*parts)
        self.lstm = nn.LSTM(size, size // 2, bidirectional=True, batch_first=True)

    def forward(self, text: Tensor) -> Tensor:
        return self.lstm(self.convs(self.embed(text).transpose(1, 2)).transpose(1, 2))[0]


class Crnn(nn.Module):
    """Images of a line [N, 1, 32, W] to logits [N, W/4 + 1, 37]."""

    def __init__(self) -> None:
        super().__init__()

        def block(inner: int, outer: int, kernel: int = 3, norm: bool = False) -> list[nn.Module]:
            parts: list[nn.Module] = [
                nn.Conv2d(inner, outer, kernel, padding=kernel // 2 if kernel > 2 else 0)
            ]
            return [*parts, *([nn.BatchNorm2d(outer)] if norm else []), nn.ReLU()]

        self.body = nn.Sequential(
            *block(1, 64), nn.MaxPool2d(2), *block(64, 128), nn.MaxPool2d(2),
            *block(128, 256, norm=True), *block(256, 256), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *block(256, 512, norm=True), *block(512, 512), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *block(512, 512, 2, norm=True),
        )  # fmt: skip
        self.lstm = nn.LSTM(512, 256, 2, bidirectional=True, batch_first=True)
        self.leave = nn.Linear(512, 37)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.lstm(self.body(x).squeeze(2).transpose(1, 2))[0])
