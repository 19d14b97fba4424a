"""Networks over graphs and over sets of points."""

from __future__ import annotations

from typing import Any

from benchmarks.corpus.recipe import Network, published

CORA = {"nodes": 2708, "edges": 10556}
AXES = ({0: "nodes"}, {1: "edges"})


def _graph(make: str, nodes: int, edges: int, features: int, **values: Any) -> Network:
    """A network of `networks.graphs` over random features and edges."""
    import torch

    from benchmarks.corpus.networks import graphs

    args = (torch.randn(nodes, features), torch.randint(0, nodes, (2, edges)))
    return Network(getattr(graphs, make)(features, **values), args, ("x", "edges"), AXES)


@published("graph/gcn-cora", "here", batches=(1,), dims={"nodes": 1500, "edges": 6000})
def _gcn(batch: int, nodes: int = CORA["nodes"], edges: int = CORA["edges"]) -> Network:
    return _graph("Gcn", nodes, edges, 1433)


@published("graph/gat-cora", "here", batches=(1,), dims={"nodes": 1500, "edges": 6000})
def _gat(batch: int, nodes: int = CORA["nodes"], edges: int = CORA["edges"]) -> Network:
    return _graph("Gat", nodes, edges, 1433)


@published("graph/sage-pubmed", "here", batches=(1,), dims={"nodes": 5000, "edges": 30000})
def _sage(batch: int, nodes: int = 19717, edges: int = 88648) -> Network:
    return _graph("Sage", nodes, edges, 500)


@published("graph/gin-molecules", "here", batches=(1, 8), dims={"nodes": 200, "edges": 440})
def _gin(batch: int, nodes: int = 0, edges: int = 0) -> Network:
    """Molecules of 25 atoms and 54 bonds."""
    return _graph("Gin", nodes or 25 * batch, edges or 54 * batch, 64)


@published("graph/graph-transformer-128", "here", dims={"batch": 2})
def _graph_transformer(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.graphs import GraphTransformer

    near = (torch.rand(batch, 128, 128) < 0.1).float()
    return Network(GraphTransformer(), (torch.randn(batch, 128, 64), near), ("x", "near"))


@published("points/pointnet-1024", "here", dims={"batch": 2}, dtypes=("bfloat16",))
def _pointnet(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.graphs import PointNet

    return Network(PointNet(), (torch.randn(batch, 3, 1024),))


@published("points/dgcnn-512", "here", batches=(1,))
def _dgcnn(batch: int) -> Network:
    """A dynamic graph network, which searches for the nearest points in each layer."""
    import torch

    from benchmarks.corpus.networks.graphs import DynamicGraph

    return Network(DynamicGraph(), (torch.randn(batch, 3, 512),))
