"""Networks for tables, graphs, sets of points and rays."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Recommender(nn.Module):
    """Embeddings of features, their products, and layers over both (arXiv:1906.00091)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 8) for _ in range(4))
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 10, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        found = [table(sparse[:, index]) for index, table in enumerate(self.tables)]
        all_ = torch.stack([x, *found], 1)
        products = all_ @ all_.transpose(1, 2)
        rows, columns = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([x, products[:, rows, columns]], 1))


class Factorisation(nn.Module):
    """Matrix factorisation with a perceptron (arXiv:1708.05031)."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(30, 8), nn.Embedding(40, 8)
        self.mlp = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))
        self.head = nn.Linear(16, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        u, i = self.users(user), self.items(item)
        return self.head(torch.cat([u * i, self.mlp(torch.cat([u, i], -1))], -1)).squeeze(-1)


class Graph(nn.Module):
    """Graph convolutions over edges (arXiv:1609.02907): sums of neighbours by index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def _mixed(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        degree = torch.zeros(x.shape[0]).index_add(0, edges[1], torch.ones(edges.shape[1])) + 1
        scale = degree.rsqrt()[:, None]
        sent = (x * scale)[edges[0]]
        return torch.zeros_like(x).index_add(0, edges[1], sent) * scale + x / degree[:, None]

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.first(self._mixed(x, edges)))
        return functional.log_softmax(self.second(self._mixed(x, edges)), -1)


class GraphAttention(nn.Module):
    """Attention over edges (arXiv:1710.10903): a softmax by scatter_reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.source, self.target = nn.Linear(8, 16), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        scores = functional.leaky_relu(self.source(x)[edges[0]] + self.target(x)[edges[1]], 0.2).squeeze(-1)
        top = torch.full((x.shape[0],), -1e9).scatter_reduce(0, edges[1], scores, "amax")
        weights = torch.exp(scores - top[edges[1]])
        total = torch.zeros(x.shape[0]).scatter_add(0, edges[1], weights)
        shares = weights / (total[edges[1]] + 1e-9)
        sent = self.values(x)[edges[0]] * shares[:, None]
        return torch.zeros(x.shape[0], 16).index_add(0, edges[1], sent)


class Points(nn.Module):
    """The maximum over points of their features (arXiv:1612.00593), with a learnt 3 by 3 transform."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.turn_head = nn.Linear(16, 9)
        self.body = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.head = nn.Linear(64, 10)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        turn = self.turn_head(self.turn(points).amax(-1)).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.body(torch.bmm(turn, points)).amax(-1))


class Radiance(nn.Module):
    """Colours and densities along rays, and what a ray sees (arXiv:2003.08934)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3 + 24, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.density, self.colour = nn.Linear(32, 1), nn.Linear(32, 3)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        rates = 2.0 ** torch.arange(4)
        angles = points[..., None] * rates
        x = torch.cat([points, torch.sin(angles).flatten(-2), torch.cos(angles).flatten(-2)], -1)
        h = self.body(x)
        alpha = 1 - torch.exp(-functional.softplus(self.density(h)).squeeze(-1) * 0.1)
        seen = torch.cumprod(1 - alpha + 1e-10, -1)
        weights = alpha * torch.cat([torch.ones_like(seen[..., :1]), seen[..., :-1]], -1)
        return (weights[..., None] * torch.sigmoid(self.colour(h))).sum(-2)


class Experts(nn.Module):
    """A mixture of experts with a gate over the two best of each sample (arXiv:1701.06538)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, chosen = self.gate(x).topk(2, -1)
        weights = torch.zeros(x.shape[0], 4).scatter(1, chosen, torch.softmax(values, -1))
        made = torch.stack([expert(x) for expert in self.experts], 1)
        return (made * weights[..., None]).sum(1)


class Memory(nn.Module):
    """Codes of the nearest vectors of a codebook (arXiv:1711.00937): decoded values and codes."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(16, 8), nn.Linear(8, 16)
        self.codes = nn.Parameter(torch.randn(32, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.encoder(x)
        chosen = torch.cdist(h, self.codes).argmin(-1)
        return self.decoder(h + (self.codes[chosen] - h).detach()), chosen
