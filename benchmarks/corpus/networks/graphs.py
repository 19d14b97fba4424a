"""Networks over graphs, given as features of nodes and pairs of nodes, and over sets of points."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def sums(values: Tensor, index: Tensor, count: int) -> Tensor:
    """The sum of the rows [E, ...] that go to each of `count` nodes."""
    return values.new_zeros(count, *values.shape[1:]).index_add(0, index, values)


class Gcn(nn.Module):
    """Two layers with symmetric normalisation: features [V, F] and edges [2, E] to logits [V, 7]."""

    def __init__(self, features: int, size: int = 64, classes: int = 7) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, size), nn.Linear(size, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        degree = sums(torch.ones_like(target, dtype=x.dtype), target, x.shape[0]) + 1
        scale = degree.rsqrt()
        weight = (scale[source] * scale[target])[:, None]
        own = (1 / degree)[:, None]

        def spread(y: Tensor) -> Tensor:
            return own * y + sums(y[source] * weight, target, y.shape[0])

        return spread(self.second(spread(self.first(x)).relu())).log_softmax(-1)


class GatLayer(nn.Module):
    """Attention of each node to its neighbours."""

    def __init__(self, inner: int, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.project = nn.Linear(inner, heads * size, bias=False)
        self.left, self.right = (nn.Parameter(torch.randn(heads, size) * 0.1) for _ in range(2))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        y = self.project(x).view(-1, self.heads, self.size)
        score = (y * self.left).sum(-1)[source] + (y * self.right).sum(-1)[target]
        weight = functional.leaky_relu(score, 0.2).clamp(max=20).exp()
        total = sums(weight, target, x.shape[0]).clamp(min=1e-9)  # exporters drop the addition of 1e-9
        found = sums(y[source] * weight[..., None], target, x.shape[0]) / total[..., None]
        return found.flatten(1)


class Gat(nn.Module):
    """Two layers, the first of eight heads."""

    def __init__(self, features: int, classes: int = 7) -> None:
        super().__init__()
        self.first, self.second = GatLayer(features, 8, 8), GatLayer(64, classes, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        return self.second(functional.elu(self.first(x, source, target)), source, target).log_softmax(-1)


class Sage(nn.Module):
    """GraphSAGE with means of neighbours."""

    def __init__(self, features: int, size: int = 128, classes: int = 3) -> None:
        super().__init__()
        sizes = [features, size, classes]
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.near = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        count = sums(torch.ones_like(target, dtype=x.dtype), target, x.shape[0]).clamp(min=1)[:, None]
        for index, (own, near) in enumerate(zip(self.own, self.near)):
            x = own(x) + near(sums(x[source], target, x.shape[0]) / count)
            x = functional.normalize(x.relu(), dim=-1) if index == 0 else x
        return x


class Gin(nn.Module):
    """Graph isomorphism networks: five layers, the sum over the nodes of each [1, 10]."""

    def __init__(self, features: int, size: int = 128, layers: int = 5) -> None:
        super().__init__()
        sizes = [features, *[size] * layers]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, b), nn.ReLU())
            for a, b in pairwise(sizes)
        )
        self.heads = nn.ModuleList(nn.Linear(size, 10) for _ in range(layers))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        total = x.new_zeros(1, 10)
        for layer, head in zip(self.layers, self.heads):
            x = layer(x + sums(x[source], target, x.shape[0]))
            total = total + head(x.mean(0, keepdim=True))
        return total


class GraphTransformer(nn.Module):
    """Attention over the nodes of dense graphs: features [N, V, 64], neighbours [N, V, V] to [N, V, 64]."""

    def __init__(self, size: int = 64, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, heads, 4 * size, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.heads = heads

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        mask = (1 - near) * -10.0
        for layer in self.layers:
            y = layer.norm1(x)
            wide = y.shape[-1] // self.heads
            weight, bias = layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias
            q, k, v = functional.linear(y, weight, bias).unflatten(-1, (3 * self.heads, wide)).chunk(3, 2)
            scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / wide**0.5 + mask[:, None]
            found = (scores.softmax(-1) @ v.transpose(1, 2)).transpose(1, 2).flatten(2)
            x = x + layer.self_attn.out_proj(found)
            x = x + layer.linear2(layer.linear1(layer.norm2(x)).relu())
        return x


def shared(sizes: list[int]) -> nn.Sequential:
    """Layers that are applied to each point separately."""
    parts: list[nn.Module] = []
    for inner, outer in pairwise(sizes):
        parts += [nn.Conv1d(inner, outer, 1), nn.BatchNorm1d(outer), nn.ReLU()]
    return nn.Sequential(*parts)


class Turn(nn.Module):
    """A matrix that PointNet predicts for all points and multiplies them with."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.points = size, shared([size, 64, 128, 1024])
        self.leave = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, size * size)
        )

    def forward(self, x: Tensor) -> Tensor:
        found = self.leave(self.points(x).amax(2)).view(-1, self.size, self.size) + torch.eye(self.size)
        return (x.transpose(1, 2) @ found).transpose(1, 2)


class PointNet(nn.Module):
    """Points [N, 3, P] to logits [N, 40]."""

    def __init__(self) -> None:
        super().__init__()
        self.turn3, self.turn64 = Turn(3), Turn(64)
        self.first, self.second = shared([3, 64, 64]), shared([64, 64, 128, 1024])
        self.leave = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.second(self.turn64(self.first(self.turn3(x)))).amax(2)).log_softmax(-1)


class EdgeConv(nn.Module):
    """A convolution over the nearest neighbours of each point."""

    def __init__(self, inner: int, outer: int, near: int) -> None:
        super().__init__()
        self.near = near
        self.body = nn.Sequential(nn.Conv2d(2 * inner, outer, 1), nn.BatchNorm2d(outer), nn.LeakyReLU(0.2))

    def forward(self, x: Tensor) -> Tensor:
        count, size, points = x.shape
        square = (x * x).sum(1)
        distance = square[:, :, None] + square[:, None] - 2 * x.transpose(1, 2) @ x
        index = distance.topk(self.near, -1, largest=False).indices
        flat = index.flatten(1)[:, None].expand(count, size, points * self.near)
        neighbours = x.gather(2, flat).view(count, size, points, self.near)
        own = x[..., None].expand_as(neighbours)
        return self.body(torch.cat([neighbours - own, own], 1)).amax(-1)


class DynamicGraph(nn.Module):
    """DGCNN: points [N, 3, P] to logits [N, 40]."""

    def __init__(self, near: int = 20) -> None:
        super().__init__()
        sizes = [3, 64, 64, 128, 256]
        self.layers = nn.ModuleList(EdgeConv(a, b, near) for a, b in pairwise(sizes))
        self.join = shared([512, 1024])
        self.leave = nn.Sequential(nn.Linear(2048, 512), nn.LeakyReLU(0.2), nn.Linear(512, 40))

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        y = self.join(torch.cat(found, 1))
        return self.leave(torch.cat([y.amax(2), y.mean(2)], 1))
