"""Networks for sequences: recurrent cells, convolutions, and torch's own Transformer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH = 24


class Tagger(nn.Module):
    """A class for each token, by recurrent layers of a kind: RNN, LSTM or GRU."""

    def __init__(self, kind: str, *, classes: int = 5, **given: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 16)
        self.layers = getattr(nn, kind)(16, WIDTH, batch_first=True, **given)
        size = given.get("proj_size") or WIDTH
        self.head = nn.Linear(size * (2 if given.get("bidirectional") else 1), classes)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.layers(self.embed(input_ids))
        return self.head(states)


class Cells(nn.Module):
    """A loop over cells of a kind, which is unrolled."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell = getattr(nn, kind)(8, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state: Any = None
        made = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            made.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(made, 1)


class Attentive(nn.Module):
    """A recurrent encoder, and a decoder with attention over its states (arXiv:1409.0473)."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(99, 16), nn.Embedding(99, 16)
        self.encoder = nn.GRU(16, WIDTH, batch_first=True, bidirectional=True)
        self.bridge, self.keys = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.decoder = nn.GRU(16, WIDTH, batch_first=True)
        self.head = nn.Linear(3 * WIDTH, 99)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        states, last = self.encoder(self.source(source))
        begin = torch.tanh(self.bridge(torch.cat([last[0], last[1]], -1)))
        decoded, _ = self.decoder(self.target(target), begin[None])
        weights = torch.softmax(decoded @ self.keys(states).transpose(1, 2), -1)
        return self.head(torch.cat([decoded, weights @ states], -1))


class Translator(nn.Module):
    """torch.nn.Transformer with masks, token embeddings and sinusoidal positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 32)
        self.body = nn.Transformer(32, 2, 2, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 99)

    def _embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])[:, None]
        rates = torch.exp(torch.arange(0, 32, 2) * (-9.2 / 32))
        waves = torch.stack([torch.sin(places * rates), torch.cos(places * rates)], -1).flatten(1)
        return self.embed(tokens) + waves

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        made = self.body(self._embedded(source), self._embedded(target), tgt_mask=mask, tgt_is_causal=True)
        return self.head(made)


class Encoder(nn.Module):
    """torch.nn.TransformerEncoder over a sequence of vectors, with a mask of padding."""

    def __init__(self, *, norm_first: bool = False, activation: str = "relu") -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, batch_first=True, norm_first=norm_first, activation=activation
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.arange(x.shape[1])[None] >= x.shape[1] - 2
        return self.head(self.body(x, src_key_padding_mask=hidden.expand(x.shape[0], -1)))


class TextCnn(nn.Module):
    """Convolutions of several widths over a text, with maxima over time (arXiv:1408.5882)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 16)
        self.widths = nn.ModuleList(nn.Conv1d(16, 12, width) for width in (2, 3, 4))
        self.head = nn.Linear(36, 5)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids).transpose(1, 2)
        made = [functional.relu(each(x)).amax(-1) for each in self.widths]
        return self.head(torch.cat(made, 1))


class Bag(nn.Module):
    """The mean of a text's embeddings (arXiv:1607.01759)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(99, 16, mode="mean")
        self.head = nn.Linear(16, 5)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(input_ids))


class Temporal(nn.Module):
    """Dilated causal convolutions with residuals and weight normalisation (arXiv:1803.01271)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for index in range(3):
            convolution = nn.Conv1d(8, 8, 3, dilation=2**index)
            self.layers.append(nn.utils.parametrizations.weight_norm(convolution))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = x + functional.relu(layer(functional.pad(x, (2 * 2**index, 0))))
        return x


class WaveNet(nn.Module):
    """Gated dilated convolutions with skip connections (arXiv:1609.03499)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 1)
        self.gates = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**index) for index in range(4))
        self.mixes = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(4))
        self.last = nn.Conv1d(16, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        total = torch.zeros_like(x)
        for index, (gate, mix, skip) in enumerate(zip(self.gates, self.mixes, self.skips, strict=True)):
            a, b = gate(functional.pad(x, (2**index, 0))).chunk(2, 1)
            made = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(made)
            x = x + mix(made)
        return self.last(functional.relu(total))
