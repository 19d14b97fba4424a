"""Recurrent and state-space networks, and forecasts of series."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class LanguageModel(nn.Module):
    """The medium LSTM of Zaremba et al.: words [N, T] to logits [N, T, 10000]."""

    def __init__(self, words: int = 10000, size: int = 650) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, 2, batch_first=True)
        self.leave = nn.Linear(size, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.lstm(self.embed(x))[0])


class Tagger(nn.Module):
    """A bidirectional LSTM over words [N, T] to 17 tags of each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20000, 100)
        self.lstm = nn.LSTM(100, 256, 2, bidirectional=True, batch_first=True)
        self.leave = nn.Linear(512, 17)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.lstm(self.embed(x))[0]).log_softmax(-1)


class GruForecast(nn.Module):
    """Sixteen series of 96 steps to 24 more of each."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.leave = nn.GRU(16, 128, 2, batch_first=True), nn.Linear(128, 24 * 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.gru(x)[0][:, -1]).view(-1, 24, 16)


class GruStep(nn.Module):
    """Gains of 22 bands from features of a frame and a state."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.gru = nn.Linear(42, 128), nn.GRU(128, 256, 2, batch_first=True)
        self.leave = nn.Linear(256, 22)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.gru(self.enter(x).tanh(), state)
        return self.leave(y).sigmoid(), state


class TcnBlock(nn.Module):
    """Two causal convolutions with a dilation, and a residual."""

    def __init__(self, inner: int, outer: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(inner, outer, 7, dilation=dilation)
        self.second = nn.Conv1d(outer, outer, 7, dilation=dilation)
        self.short = nn.Conv1d(inner, outer, 1) if inner != outer else nn.Identity()
        self.padding = 6 * dilation

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(functional.pad(x, (self.padding, 0))).relu()
        y = self.second(functional.pad(y, (self.padding, 0))).relu()
        return (y + self.short(x)).relu()


class Tcn(nn.Module):
    """Temporal convolutions over [N, 1, T] to 10 classes."""

    def __init__(self, size: int = 25, levels: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(*(TcnBlock(size if n else 1, size, 2**n) for n in range(levels)))
        self.leave = nn.Linear(size, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.body(x)[:, :, -1])


class NBeats(nn.Module):
    """N-BEATS with 12 generic blocks: 48 steps to 12 more."""

    def __init__(self, past: int = 48, future: int = 12, size: int = 256, blocks: int = 12) -> None:
        super().__init__()
        self.past = past
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(past, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size),
                nn.ReLU(), nn.Linear(size, past + future),
            )
            for _ in range(blocks)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor | None = None
        for block in self.blocks:
            found = block(x)
            x = x - found[:, : self.past]
            ahead = found[:, self.past :]
            total = ahead if total is None else total + ahead
        assert total is not None
        return total


class MambaLayer(nn.Module):
    """One step of a selective state space with its window of convolution."""

    def __init__(self, size: int = 768, wide: int = 1536, states: int = 16, rank: int = 48) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(size)
        self.enter, self.leave = nn.Linear(size, 2 * wide, bias=False), nn.Linear(wide, size, bias=False)
        self.kernel, self.bias = (
            nn.Parameter(torch.randn(wide, 4) * 0.3),
            nn.Parameter(torch.randn(wide) * 0.1),
        )
        self.select, self.time = nn.Linear(wide, rank + 2 * states, bias=False), nn.Linear(rank, wide)
        self.decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(wide, 1))
        self.skip = nn.Parameter(torch.ones(wide))
        self.sizes = [rank, states, states]

    def forward(self, x: Tensor, state: Tensor, window: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, gate = self.enter(self.norm(x)).chunk(2, -1)
        window = torch.cat([window, y[..., None]], -1)
        y = functional.silu((window * self.kernel).sum(-1) + self.bias)
        rank, b, c = self.select(y).split(self.sizes, -1)
        step = functional.softplus(self.time(rank))[..., None]
        state = state * (step * -self.decay.exp()).exp() + step * b[:, None] * y[..., None]
        y = (state * c[:, None]).sum(-1) + self.skip * y
        return x + self.leave(y * functional.silu(gate)), state, window[..., 1:]


class MambaStep(nn.Module):
    """Tokens [N], states [L, N, 1536, 16] and windows [L, N, 1536, 3] to logits and new states."""

    def __init__(self, layers: int = 4, words: int = 32000) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, 768), nn.RMSNorm(768)
        self.layers = nn.ModuleList(MambaLayer() for _ in range(layers))
        self.leave = nn.Linear(768, words, bias=False)

    def forward(self, tokens: Tensor, states: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, kept, seen = self.embed(tokens), [], []
        for index, layer in enumerate(self.layers):
            x, state, window = layer(x, states[index], windows[index])
            kept.append(state)
            seen.append(window)
        return self.leave(self.norm(x)), torch.stack(kept), torch.stack(seen)


class DiagonalLayer(nn.Module):
    """S4D: a convolution as long as the sequence, as the product with a Toeplitz matrix."""

    def __init__(self, size: int, states: int, length: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.decay = nn.Parameter(-torch.rand(size, states) * 2 - 0.5)
        self.angle = nn.Parameter(torch.arange(states) * 3.14 + torch.zeros(size, 1))
        self.step = nn.Parameter(torch.rand(size, 1) * 0.05 + 0.001)
        self.real, self.imaginary = (nn.Parameter(torch.randn(size, states) * 0.3) for _ in range(2))
        self.skip, self.mix = nn.Parameter(torch.randn(size)), nn.Linear(size, 2 * size)
        self.length = length
        index = torch.arange(length)
        self.register_buffer("lag", (index[:, None] - index).clamp(min=0))
        self.register_buffer("causal", (index[:, None] >= index).float())

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        time = torch.arange(self.length) * self.step[..., None]
        grown = (self.decay[..., None] * time).exp()
        angle = self.angle[..., None] * time
        kernel = (grown * (self.real[..., None] * angle.cos() - self.imaginary[..., None] * angle.sin())).sum(
            1
        )
        matrix = kernel[:, self.lag] * self.causal
        found = torch.einsum("dts,bsd->btd", matrix, y) * self.step[:, 0] + self.skip * y
        return x + functional.glu(self.mix(functional.gelu(found)), -1)


class DiagonalStates(nn.Module):
    """Signals [N, T, 4] to 10 classes."""

    def __init__(self, size: int = 64, layers: int = 2, states: int = 16, length: int = 1024) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(4, size), nn.Linear(size, 10)
        self.layers = nn.ModuleList(DiagonalLayer(size, states, length) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.leave(x.mean(1))


class RwkvLayer(nn.Module):
    """One step of RWKV-4: a mix over time and one over channels, with five vectors of state."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.k, self.v, self.r, self.o, self.r2 = (nn.Linear(size, size, bias=False) for _ in range(5))
        self.k2, self.v2 = nn.Linear(size, 4 * size, bias=False), nn.Linear(4 * size, size, bias=False)
        self.mixes = nn.Parameter(torch.rand(5, size))
        self.first, self.decay = nn.Parameter(torch.randn(size)), nn.Parameter(torch.randn(size))

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        before, seen, above, below, most = state[0], state[1], state[2], state[3], state[4]

        def mixed(y: Tensor, last: Tensor, index: int) -> Tensor:
            return torch.lerp(last, y, self.mixes[index])

        y = self.norm1(x)
        k, v, r = (f(mixed(y, before, n)) for n, f in enumerate((self.k, self.v, self.r)))
        now = self.first + k
        peak = torch.maximum(most, now)
        a, b = (most - peak).exp(), (now - peak).exp()
        found = (a * above + b * v) / (a * below + b + 1e-6)
        peak = torch.maximum(most - self.decay.exp(), k)
        a, b = (most - self.decay.exp() - peak).exp(), (k - peak).exp()
        x = x + self.o(r.sigmoid() * found)
        z = self.norm2(x)
        inner = self.k2(mixed(z, seen, 3)).relu().square()
        x = x + self.r2(mixed(z, seen, 4)).sigmoid() * self.v2(inner)
        return x, torch.stack([y, z, a * above + b * v, a * below + b, peak])


class RwkvStep(nn.Module):
    """Tokens [N] and states [L, 5, N, 512] to logits and new states."""

    def __init__(self, size: int = 512, layers: int = 6, words: int = 32000) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, size), nn.LayerNorm(size)
        self.layers = nn.ModuleList(RwkvLayer(size) for _ in range(layers))
        self.leave = nn.Linear(size, words, bias=False)

    def forward(self, tokens: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        x, kept = self.embed(tokens), []
        for index, layer in enumerate(self.layers):
            x, state = layer(x, states[index])
            kept.append(state)
        return self.leave(self.norm(x)), torch.stack(kept)


class EcgBlock(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(inner, outer, 17, 4, 8), nn.BatchNorm1d(outer), nn.ReLU(),
            nn.Conv1d(outer, outer, 17, padding=8), nn.BatchNorm1d(outer),
        )  # fmt: skip
        self.short = nn.Sequential(nn.MaxPool1d(4), nn.Conv1d(inner, outer, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) + self.short(x)).relu()


class EcgNet(nn.Sequential):
    """Signals [N, 12, 4096] to six diagnoses."""

    def __init__(self) -> None:
        sizes = [64, 128, 196, 256, 320]
        super().__init__(
            nn.Conv1d(12, 64, 17, padding=8), nn.BatchNorm1d(64), nn.ReLU(),
            *(EcgBlock(a, b) for a, b in pairwise(sizes)), nn.Flatten(), nn.Linear(320 * 16, 6),
        )  # fmt: skip
