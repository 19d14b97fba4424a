"""Attention and its gradients, in torch.compile and in exported programs, against eager."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

import dlc_core as dlc

torch.manual_seed(0)
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export warns of itself


def qkv(queries=5, keys=7, heads=4, groups=4):
    return (
        torch.randn(2, heads, queries, 8),
        torch.randn(2, groups, keys, 8),
        torch.randn(2, groups, keys, 8),
    )


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.5}])
def test_attention(same_as_eager, options):
    same_as_eager(lambda q, k, v: attention(q, k, v, **options), *qkv(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["bool", "float", "float of one head"])
def test_masks(same_as_eager, kind):
    mask = torch.rand(2, 4, 5, 7) < 0.6
    mask[0, 1, 2] = False  # this query sees no key: its result is 0
    if kind != "bool":
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    if kind == "float of one head":
        mask = mask[:, 1:2]
    f = lambda q, k, v: attention(q, k, v, attn_mask=mask)  # noqa: E731
    same_as_eager(f, *qkv(), rtol=1e-4, atol=1e-5)
    same_as_eager(f, *qkv(), gradients=False, rtol=1e-4, atol=1e-5)


class Attention(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, *args):
        return attention(*args, **self.options)


@pytest.mark.parametrize(
    ("groups", "options", "mask"),
    [
        (4, {}, None),
        (4, {"is_causal": True}, None),
        (2, {"enable_gqa": True}, None),
        (4, {"scale": 0.1}, (5, 7)),
        (2, {"enable_gqa": True}, (2, 1, 5, 7)),
    ],
)
def test_exported_attention_is_one_op(groups, options, mask):
    args = qkv(groups=groups)
    if mask is not None:
        args += (torch.rand(mask) < 0.7,)
        args[3][..., 0] = True
    module = Attention(**options)
    program = torch.export.export(module, args)
    names = {node.op.name for node in dlc.graph.post_order(dlc.load(program)["main"].body)}
    assert "attention" in names
    assert not names & {"softmax", "matmul"}
    found = dlc.compile(program)(*(each.numpy() for each in args))
    torch.testing.assert_close(torch.from_numpy(found), module(*args), rtol=1e-4, atol=1e-5)
