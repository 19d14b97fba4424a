"""Rows of tables: perceptrons, transformers over columns, recommendations, policies."""

from __future__ import annotations

from typing import Any

from benchmarks.corpus.recipe import Network, published


def _here(make: str, *args: Any, names: tuple[str, ...]) -> Network:
    from benchmarks.corpus.networks import tables

    return Network(getattr(tables, make)(), args, names)


def _columns(batch: int, numbers: int, kinds: int, values: int) -> tuple[Any, Any]:
    """Numbers [N, numbers] and categories [N, kinds]."""
    import torch

    return torch.randn(batch, numbers), torch.randint(0, values, (batch, kinds))


@published("tabular/mlp-512", "here", dims={"batch": 64}, dtypes=("int8", "bfloat16"))
def _mlp(batch: int) -> Network:
    import torch

    return _here("Mlp", torch.randn(batch, 64), names=("x",))


@published("tabular/ft-transformer", "here", dims={"batch": 64})
def _ft_transformer(batch: int) -> Network:
    return _here("FtTransformer", *_columns(batch, 8, 6, 50), names=("numbers", "kinds"))


@published("tabular/tabnet", "here", dims={"batch": 64})
def _tabnet(batch: int) -> Network:
    import torch

    return _here("TabNet", torch.randn(batch, 54), names=("x",))


@published("recommender/dlrm-small", "here", dims={"batch": 64})
def _dlrm(batch: int) -> Network:
    return _here("Dlrm", *_columns(batch, 13, 26, 10000), names=("numbers", "kinds"))


@published("recommender/deepfm", "here", dims={"batch": 64})
def _deepfm(batch: int) -> Network:
    return _here("DeepFm", *_columns(batch, 13, 26, 10000), names=("numbers", "kinds"))


@published("recommender/wide-deep-dcn", "here", dims={"batch": 64})
def _cross(batch: int) -> Network:
    return _here("CrossNetwork", *_columns(batch, 13, 26, 10000), names=("numbers", "kinds"))


@published("recommender/sasrec-50", "here", dims={"batch": 2})
def _sasrec(batch: int) -> Network:
    """The next item after 50, by causal attention."""
    import torch

    return _here("SasRec", torch.randint(1, 20000, (batch, 50)), names=("items",))


@published("policy/ppo-atari-84", "here", dims={"batch": 2}, dtypes=("int8",))
def _atari(batch: int) -> Network:
    import torch

    return _here("Atari", torch.rand(batch, 4, 84, 84), names=("frames",))


@published("policy/sac-humanoid", "here", dims={"batch": 2})
def _actor(batch: int) -> Network:
    import torch

    return _here("Actor", torch.randn(batch, 376), names=("state",))


@published("moe/moe-mlp-8", "here", dims={"batch": 64})
def _experts(batch: int) -> Network:
    """Two of eight experts for each row; all are computed."""
    import torch

    return _here("Experts", torch.randn(batch, 256), names=("x",))
