"""Networks of torch with random weights: `resnet18`, `bert`, `gpt`.

Seed torch before, to get the same weights again.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class BasicBlock(nn.Module):  # type: ignore[misc]
    """Two 3 × 3 convolutions and a shortcut (He and others, "Deep residual learning", 2015)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels == width
            else nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images of shape (batch, channels, height, width)."""
        inner = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(inner + self.shortcut(x))


def resnet18(classes: int = 1000, width: int = 64) -> nn.Module:
    """ResNet-18 for images of shape (batch, 3, height, width); `width` is the channels of the first stage."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = width
    for stage in range(4):
        for position in range(2):
            wide = width << stage
            layers.append(BasicBlock(channels, wide, 2 if stage and not position else 1))
            channels = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Block(nn.Module):  # type: ignore[misc]
    """A layer of a transformer. `causal` masks what comes later; the norm comes `first` as in GPT-2, or after
    the sum as in BERT.
    """

    def __init__(self, size: int, heads: int, causal: bool, first: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.first, self.dropout = heads, causal, first, dropout
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.project, self.merge = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.widen, self.narrow = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors of shape (batch, tokens, size)."""
        if self.first:
            x = x + self.attend(self.norm1(x))
            return x + self.transform(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.transform(x))

    def attend(self, x: Tensor) -> Tensor:
        batch, tokens, size = x.shape
        parts = self.project(x).view(batch, tokens, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        merged = self.merge(found.transpose(1, 2).reshape(batch, tokens, size))
        return functional.dropout(merged, self.dropout, self.training)

    def transform(self, x: Tensor) -> Tensor:
        return functional.dropout(self.narrow(functional.gelu(self.widen(x))), self.dropout, self.training)


class Transformer(nn.Module):  # type: ignore[misc]
    """Embeddings, layers, and scores for each token."""

    def __init__(
        self, words: int, length: int, size: int, heads: int, layers: int, causal: bool, dropout: float
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, size), nn.Embedding(length, size)
        self.layers = nn.ModuleList(Block(size, heads, causal, causal, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, words)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of shape (batch, tokens, words) for ids of shape (batch, tokens)."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def bert(
    words: int = 8192, length: int = 128, size: int = 512, layers: int = 4, dropout: float = 0.0
) -> Transformer:
    """A small BERT: attention to both sides, the norm after the sum."""
    return Transformer(words, length, size, size // 64, layers, False, dropout)


def gpt(
    words: int = 8192, length: int = 128, size: int = 256, layers: int = 4, dropout: float = 0.0
) -> Transformer:
    """A small GPT: causal attention, the norm first."""
    return Transformer(words, length, size, size // 32, layers, True, dropout)


__all__ = ["Transformer", "bert", "gpt", "resnet18"]
