"""Attention (arXiv:1706.03762)."""

from __future__ import annotations

from math import sqrt

from dlc_core.diag import UsageError
from dlc_core.ir.types import Dim
from dlc_core.nn.layers import Linear
from dlc_core.nn.module import Module
from dlc_core.nn.tensor import Tensor, call, matmul, softmax, type_text, where

MASKED = -1e30
"""The score of masked keys, whose weight is exactly 0."""


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """softmax(q kᵀ / sqrt(d) + mask) v, for q (…, n, d), k (…, m, d) and v (…, m, e).

    A mask of bools selects the visible keys; other masks are added to the scores. With `causal`, the keys up
    to i are visible to query i.
    """
    size = q.shape[-1]
    if not isinstance(size, int):
        raise UsageError("the size of heads is not known", why=f"the queries are {type_text(q)}")
    scores = matmul(q, k, transpose_b=True) * (1 / sqrt(size))
    if mask is not None:
        scores = where(mask, scores, MASKED) if mask.dtype.is_bool else scores + mask
    if causal:
        scores = where(_causal_mask(q.shape[-2], k.shape[-2]), scores, MASKED)
    return matmul(softmax(scores), v)


def _causal_mask(queries: Dim, keys: Dim) -> Tensor:
    """bool[queries, keys]: whether a key is not after the query."""
    rows = call("arange", stop=queries).reshape(-1, 1)
    columns = call("arange", stop=keys).reshape(1, -1)
    return columns <= rows


class MultiHeadAttention(Module):
    """Attention of several heads over (n, tokens, embed): four linear maps, `q_proj`, `k_proj`, `v_proj`,
    `out_proj`."""

    def __init__(self, embed_dim: int, num_heads: int, bias: bool = True, dtype: str = "float32") -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise UsageError(f"{embed_dim} features do not split over {num_heads} heads")
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.q_proj = Linear(embed_dim, embed_dim, bias, dtype)
        self.k_proj = Linear(embed_dim, embed_dim, bias, dtype)
        self.v_proj = Linear(embed_dim, embed_dim, bias, dtype)
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Queries come from `x`, keys and values from `memory`, by default `x` too."""
        source = x if memory is None else memory
        q, k, v = (
            self._heads(self.q_proj(x)),
            self._heads(self.k_proj(source)),
            self._heads(self.v_proj(source)),
        )
        mixed = scaled_dot_product_attention(q, k, v, mask, causal).transpose(0, 2, 1, 3)
        joined = mixed.reshape(*x.shape[:-1], self.num_heads * self.head_dim)
        found: Tensor = self.out_proj(joined)
        return found

    def _heads(self, x: Tensor) -> Tensor:
        if x.ndim != 3:
            raise UsageError("attention needs (n, tokens, embed)", why=f"the input is {type_text(x)}")
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, self.head_dim).transpose(0, 2, 1, 3)

    def extra_repr(self) -> str:
        return f"{self.num_heads * self.head_dim}, {self.num_heads}"


__all__ = ["MultiHeadAttention", "scaled_dot_product_attention"]
