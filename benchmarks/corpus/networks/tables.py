"""Networks over rows of tables, over items that were bought, and over states of a game."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def dense(*sizes: int) -> nn.Sequential:
    """Layers with ReLU between them."""
    parts: list[nn.Module] = []
    for inner, outer in pairwise(sizes):
        parts += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = dense(64, 512, 512, 512, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).softmax(-1)


class FtTransformer(nn.Module):
    """A token for each column: numbers [N, 8], categories [N, 6] to [N, 1]."""

    def __init__(self, numbers: int = 8, kinds: int = 6, values: int = 50, size: int = 192) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(numbers, size) * 0.1) for _ in range(2))
        self.embed = nn.Embedding(kinds * values, size)
        self.register_buffer("begin", torch.arange(kinds) * values)
        self.whole = nn.Parameter(torch.randn(1, 1, size) * 0.1)
        layer = nn.TransformerEncoderLayer(size, 8, 256, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.norm, self.leave = nn.LayerNorm(size), nn.Linear(size, 1)

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        first = numbers[..., None] * self.weight + self.bias
        tokens = [self.whole.expand(numbers.shape[0], -1, -1), first, self.embed(kinds + self.begin)]
        return self.leave(self.norm(self.body(torch.cat(tokens, 1))[:, 0]).relu())


class GatedLayer(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inner, 2 * outer, bias=False), nn.BatchNorm1d(2 * outer))

    def forward(self, x: Tensor) -> Tensor:
        return functional.glu(self.body(x), -1)


def sparsemax(x: Tensor) -> Tensor:
    """The projection of rows to the simplex, by their sorted values."""
    ordered = x.sort(-1, descending=True).values
    total = ordered.cumsum(-1)
    rank = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    kept = (1 + rank * ordered > total).to(x.dtype)
    count = kept.sum(-1, keepdim=True)
    least = ((ordered * kept).sum(-1, keepdim=True) - 1) / count
    return (x - least).clamp(min=0)


class TabNet(nn.Module):
    """Five steps, each with a mask of columns: [N, 54] to [N, 7]."""

    def __init__(self, columns: int = 54, size: int = 64, steps: int = 5) -> None:
        super().__init__()
        self.norm, self.size = nn.BatchNorm1d(columns), size
        self.shared = GatedLayer(columns, 2 * size)
        self.own = nn.ModuleList(GatedLayer(2 * size, 2 * size) for _ in range(steps + 1))
        self.masks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, columns, bias=False), nn.BatchNorm1d(columns)) for _ in range(steps)
        )
        self.leave = nn.Linear(size, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        prior, told = torch.ones_like(x), self.own[0](self.shared(x))[:, self.size :]
        total: Tensor | None = None
        for own, mask in zip(self.own[1:], self.masks):
            chosen = sparsemax(mask(told) * prior)
            prior = prior * (1.3 - chosen)
            y = self.shared(x * chosen)
            y = (y + own(y)) * 0.5**0.5
            found, told = y[:, : self.size].relu(), y[:, self.size :]
            total = found if total is None else total + found
        assert total is not None
        return self.leave(total)


class Embedded(nn.Module):
    """A vector for each category of each column, in one table."""

    def __init__(self, kinds: int = 26, values: int = 10000, size: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(kinds * values, size)
        self.register_buffer("begin", torch.arange(kinds) * values)

    def forward(self, kinds: Tensor) -> Tensor:
        return self.embed(kinds + self.begin)


class Dlrm(nn.Module):
    """Products of all pairs of vectors between two perceptrons: [N, 13], [N, 26] to [N, 1]."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.table = Embedded(size=size)
        self.bottom, self.top = dense(13, 512, 256, size), dense(size + 27 * 26 // 2, 512, 256, 1)
        rows, columns = torch.tril_indices(27, 27, -1)
        self.register_buffer("pairs", rows * 27 + columns)

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        first = self.bottom(numbers).relu()
        vectors = torch.cat([first[:, None], self.table(kinds)], 1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([first, products], 1)).sigmoid()


class DeepFm(nn.Module):
    """A factorisation machine and a perceptron over the same vectors."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.table, self.linear = Embedded(size=size), Embedded(size=1)
        self.numbers, self.deep = nn.Linear(13, 1), dense(13 + 26 * size, 400, 400, 400, 1)

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        vectors = self.table(kinds)
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(-1, keepdim=True)
        deep = self.deep(torch.cat([numbers, vectors.flatten(1)], 1))
        return (self.numbers(numbers) + self.linear(kinds).sum(1) + pairs + deep).sigmoid()


class CrossNetwork(nn.Module):
    """DCN-V2: three crosses of all features, in parallel with a perceptron."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        wide = 13 + 26 * size
        self.table = Embedded(size=size)
        self.crosses = nn.ModuleList(nn.Linear(wide, wide) for _ in range(3))
        self.deep, self.leave = dense(wide, 256, 256), nn.Linear(wide + 256, 1)

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        first = torch.cat([numbers, self.table(kinds).flatten(1)], 1)
        x = first
        for cross in self.crosses:
            x = first * cross(x) + x
        return self.leave(torch.cat([x, self.deep(first).relu()], 1)).sigmoid()


class SasRec(nn.Module):
    """Items [N, 50] to scores of all items [N, 20000]."""

    def __init__(self, items: int = 20000, size: int = 64, length: int = 50) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(items, size), nn.Parameter(torch.randn(length, size) * 0.1)
        layer = nn.TransformerEncoderLayer(size, 2, 4 * size, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, items: Tensor) -> Tensor:
        x = self.body(self.embed(items) + self.place, self.mask, is_causal=False)
        return x[:, -1] @ self.embed.weight.t()


class Atari(nn.Module):
    """Four frames [N, 4, 84, 84] to a policy over 6 actions and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3),
            nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        )  # fmt: skip
        self.policy, self.value = nn.Linear(512, 6), nn.Linear(512, 1)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(frames)
        return self.policy(x).softmax(-1), self.value(x)


class Actor(nn.Module):
    """States [N, 376] to actions [N, 17] and the logarithm of their spread."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.leave = dense(376, 256, 256), nn.Linear(256, 34)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.leave(self.body(state).relu()).chunk(2, -1)
        return mean.tanh(), spread.clamp(-20, 2)


class Experts(nn.Module):
    """Perceptrons. Each row uses the two with the largest scores."""

    def __init__(self, size: int = 256, wide: int = 1024, experts: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(size, experts, bias=False)
        self.inner = nn.Parameter(torch.randn(experts, size, wide) / size**0.5)
        self.outer = nn.Parameter(torch.randn(experts, wide, size) / wide**0.5)

    def forward(self, x: Tensor) -> Tensor:
        scores, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = torch.zeros_like(self.gate(x)).scatter(-1, chosen, scores / scores.sum(-1, keepdim=True))
        hidden = functional.silu(torch.einsum("nd,edh->enh", x, self.inner))
        return torch.einsum("enh,ehd,ne->nd", hidden, self.outer, weights)
